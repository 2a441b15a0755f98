"""The store of compiled programs: what goes in comes out, or nothing does."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sizewise.cache import Store, open_store
from sizewise.cache.manifest import digest_of
from sizewise.errors import cache as errors
from sizewise.events import Timeline

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    OTHER_KEY,
    age,
    all_files,
    child,
    contents,
    publish,
    publish_fields,
    published,
    store,
)
from .command_line import environment

__all__ = ["store"]


def test_what_is_published_is_found_and_read(store: Store) -> None:
    assert store.candidates(KEY) == [] and store.entries() == [] and store.size() == 0
    entry = published(store)
    assert contents(entry) == FILES
    (again,) = open_store(store.root).candidates(KEY)
    assert contents(again) == FILES
    assert again.manifest.items() >= FIELDS.items() and again.manifest["key"] == KEY
    assert again.manifest["files"] == {
        name: {"sha256": digest_of(data), "size": len(data)} for name, data in FILES.items()
    }
    assert store.candidates(OTHER_KEY) == []
    assert store.size() > again.size == sum(map(len, FILES.values())) + again.manifest_bytes


def test_files_without_content_and_no_files_at_all(store: Store) -> None:
    assert contents(published(store, files={"empty": b"", "too": b""})) == {"empty": b"", "too": b""}
    assert contents(published(store, OTHER_KEY, files={})) == {}


def test_everything_is_for_the_user_alone(store: Store) -> None:
    old = os.umask(0)
    try:
        published(store)
    finally:
        os.umask(old)
    for path in [store.root, *store.root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_looking_makes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "cache")
    assert store.candidates(KEY) == store.entries() == [] and store.size() == 0
    assert not store.verify().problems and store.prune().entries == store.clear().entries == 0
    assert not store.root.exists()


def test_equal_files_are_kept_once(store: Store) -> None:
    published(store, files={"a": FILES["caller.py"], "b": FILES["caller.py"]})
    (blob,) = all_files(store.folder / "blobs")
    before = blob.stat()
    published(store, OTHER_KEY, files={"c": FILES["caller.py"]})
    after = blob.stat()
    assert all_files(store.folder / "blobs") == [blob] and before.st_ino == after.st_ino


def test_the_one_used_last_comes_first(store: Store) -> None:
    first, second, third = (published(store, number=number) for number in range(3))
    for entry, seconds in ((first, 300), (second, 200), (third, 100)):
        age(store.layout.manifest(KEY, entry.id), seconds)
    assert [entry.manifest["number"] for entry in store.candidates(KEY)] == [2, 1, 0]
    # Only reading is a use, not looking at the manifest.
    (used,) = [entry for entry in store.candidates(KEY) if entry.id == first.id]
    used.read("caller.py")
    assert [entry.manifest["number"] for entry in store.candidates(KEY)] == [0, 2, 1]
    assert store.entries()[0].id == first.id


def test_discarding(store: Store) -> None:
    first, second = published(store, number=1), published(store, number=2)
    store.discard(first)
    store.discard(first)
    assert [entry.id for entry in store.candidates(KEY)] == [second.id]
    assert contents(second) == FILES


def test_a_callers_own_words_about_a_file_are_kept(store: Store) -> None:
    table = {name: {"kind": "source", "sha256": digest_of(data)} for name, data in FILES.items()}
    entry = publish_fields(store, {"files": table}, FILES)
    assert entry is not None
    assert entry.manifest["files"]["caller.py"]["kind"] == "source"
    assert entry.manifest["files"]["caller.py"]["size"] == len(FILES["caller.py"])


@pytest.mark.parametrize(
    ("fields", "files", "seen"),
    [
        ({"x": float("nan")}, {}, "not JSON"),
        ({"x": {1, 2}}, {}, "not JSON"),
        ({"x": (1, 2)}, {}, "more than JSON"),
        ({"x": {1: 2}}, {}, "more than JSON"),
        ({"schema": 2}, {}, "'schema' is not 1"),
        ({"key": OTHER_KEY}, {}, "'key' is not"),
        ({"files": {"a": {}}}, {}, "not the files that were given"),
        ({"files": 3}, {}, "not the files that were given"),
        ({"files": {"a": 3}}, {"a": b""}, "not about the file"),
        ({"files": {"a": {"size": 1}}}, {"a": b""}, "not about the file"),
        ({}, {"a/b": b""}, "no plain name"),
        ({}, {"..": b""}, "no plain name"),
        ({}, {"": b""}, "no plain name"),
        ({}, {"a..b": b""}, "no plain name"),
        ({}, {"-rf": b""}, "no plain name"),
        ({}, {"a\n": b""}, "no plain name"),
        ({"x": "x" * (16 << 20)}, {}, "more than 16777216"),
    ],
)
def test_what_would_not_come_back_is_not_kept(
    store: Store, fields: dict[str, Any], files: dict[str, bytes], seen: str
) -> None:
    with store.building(KEY, timeout=5) as token:
        with pytest.raises(errors.NotStorable, match=seen):
            store.add(KEY, fields, files, token=token)
        assert store.publish(KEY, fields, files, token=token) is None
    assert store.entries() == [] and not all_files(store.folder / "blobs")


def test_what_nests_without_end_is_not_kept(store: Store) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert publish(store, x=deep) is None


@pytest.mark.parametrize("key", ["", "x", "../" * 8, KEY.upper(), KEY + "0", "é" * 64, KEY + "\n"])
def test_what_is_no_key(store: Store, key: str) -> None:
    assert store.candidates(key) == []
    with pytest.raises(errors.NotStorable, match="hexadecimal"), store.building(key, timeout=0):
        pass
    with store.building(KEY, timeout=1) as token:
        assert store.publish(key, FIELDS, FILES, token=token) is None


def test_a_problem_is_said_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    timeline = Timeline()
    told = open_store(store.root, tell=timeline.record)
    for _ in range(3):
        assert publish(told, x=float("nan")) is None
    (event,) = timeline.events()
    assert event.name == "cache.problem" and event.fields["code"] == "SW607"
    assert [(record.name, record.levelno) for record in caplog.records] == [("sizewise.cache", logging.WARNING)]
    assert "[SW607]" in caplog.text


def test_two_versions_side_by_side(store: Store) -> None:
    """Another version of the layout keeps to a folder of its own, and is left alone by everything."""
    entry = published(store)
    theirs = store.root / "programs-2" / "entries" / KEY[:2] / KEY / f"{entry.id}.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(json.dumps({"schema": 2, "key": KEY, "files": {}}))
    index = store.root / "errors.sqlite"
    index.write_bytes(b"the index of errors")
    assert [found.id for found in store.candidates(KEY)] == [entry.id] and not store.verify().problems
    store.prune(0)
    store.clear()
    assert store.entries() == [] and theirs.exists() and index.exists()


def test_the_store_imports_no_torch() -> None:
    code = "import sys, sizewise.cache; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert not {"torch", "pydantic", "typer", "rich", "platformdirs", "tempfile"} & set(done.stdout.split())


ELSEWHERE = """
import contextlib, hashlib, logging, platform
sys.modules["fcntl"] = None
for module in [name for name in sys.modules if name.startswith("sizewise")]:
    del sys.modules[module]
del os.geteuid, os.uname, os.O_NOFOLLOW, os.O_NONBLOCK, os.O_DIRECTORY
sys.platform = "win32"
from sizewise.cache import open_store
store = open_store(root)
with store.building(KEY, timeout=5) as token:
    entry = store.publish(KEY, FIELDS, FILES, token=token)
read = [entry.read(name) == FILES[name] for entry in store.candidates(KEY) for name in FILES]
tell(state=token.state, read=read, removed=store.prune(0).entries)
"""


def test_a_system_without_these_locks_and_owners(store: Store) -> None:
    """Windows is not served yet, but nothing falls over there: stood in for by taking its lacks away from here."""
    with child(ELSEWHERE, store.root) as elsewhere:
        assert elsewhere.told() == {"state": "unavailable", "read": [True, True], "removed": 1}
