"""How tests of the store start real processes on a folder, and what they put there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sizewise.cache import Entry, Store, open_store

from .command_line import environment

KEY = hashlib.sha256(b"a program").hexdigest()
OTHER_KEY = hashlib.sha256(b"another program").hexdigest()
FIELDS = {"owner": "Net", "built": "2030-01-02T03:04:05+00:00", "torch": "2.13.0", "sizes": {"batch": [1, 8]}}
FILES = {"caller.py": b"def call(): ...\n" * 40, "piece_0.so": bytes(range(256)) * 300}

PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
from sizewise.cache import open_store
from sizewise.errors import CacheError

root, KEY, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
FILES = {"caller.py": b"def call(): ...\\n" * 40, "piece_0.so": bytes(range(256)) * 300}
FIELDS = {"owner": "Net"}

def tell(**fields):
    print(json.dumps(fields), flush=True)
"""
"""What every child begins with; it imports neither torch nor these tests."""


class Child:
    """A Python process on a store's folder: it tells lines of JSON, and hears lines."""

    def __init__(self, code: str, root: Path, *arguments: str, key: str = KEY) -> None:
        command = [sys.executable, "-c", PRELUDE + code, str(root), key, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def told(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the child ended with {self.process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def go(self) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Its exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        """As the kernel does when memory is out."""
        self.process.kill()
        self.process.wait()


@contextmanager
def child(code: str, root: Path, *arguments: str, key: str = KEY) -> Iterator[Child]:
    """A child that is gone at the end."""
    made = Child(code, root, *arguments, key=key)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.kill()
        for pipe in (made.process.stdin, made.process.stdout):
            assert pipe is not None
            pipe.close()


def publish(store: Store, key: str = KEY, files: dict[str, bytes] | None = None, **fields: Any) -> Entry | None:
    with store.building(key, timeout=30) as token:
        return store.publish(key, {**FIELDS, **fields}, FILES if files is None else files, token=token)


def published(store: Store, key: str = KEY, files: dict[str, bytes] | None = None, **fields: Any) -> Entry:
    entry = publish(store, key, files, **fields)
    assert entry is not None
    return entry


def publish_fields(store: Store, fields: dict[str, Any], files: dict[str, bytes]) -> Entry | None:
    with store.building(KEY, timeout=5) as token:
        return store.publish(KEY, fields, files, token=token)


def contents(entry: Entry) -> dict[str, bytes]:
    return {name: entry.read(name) for name in entry.names}


def all_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if not path.is_dir())


def age(path: Path, seconds: float) -> None:
    """Make a file older than it is."""
    info = path.stat(follow_symlinks=False)
    os.utime(path, (info.st_mtime - seconds, info.st_mtime - seconds), follow_symlinks=False)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs at a folder."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "cache")
