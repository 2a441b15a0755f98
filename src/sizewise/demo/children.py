"""A worker process and the events it reports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .machine import THREADS

_DROPPED = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "TORCH_LOGS")
"""Settings of the user's shell that would change what is compared."""

Event = dict[str, Any]
ENDINGS = ("done", "error")


def environment(cache: Path) -> dict[str, str]:
    """The workers' environment: one thread, a cache directory of their own, no model hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return {**kept, **threads, **quiet, "PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(cache)}


class Child:
    """``with Child(job, cache) as child: for event in child.events(): ...``; leaving ends the process."""

    def __init__(self, job: dict[str, Any], cache: Path) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            # -P: a directory called sizewise where the user stands is not this package.
            [sys.executable, "-P", "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=environment(cache),
            text=True,
            # A group of its own: whatever the worker starts can be ended with it.
            start_new_session=True,
        )
        # stdin stays open: its end tells the worker that nobody is waiting any more.
        self.order(job)

    def order(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        # A worker that has died sends no event either, and is found out there.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def next_event(self) -> Event | None:
        """None where the worker has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def events(self) -> Iterator[Event]:
        """Every event up to the one that ends the job."""
        while (event := self.next_event()) is not None:
            yield event
            if event["event"] in ENDINGS:
                return

    def status(self) -> str:
        """How it ended, in words."""
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def last_words(self, characters: int = 600) -> str:
        self._words.seek(0)
        text = self._words.read().decode(errors="replace").strip()
        return text[-characters:] or "none"

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Everybody may have left already.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._words):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
