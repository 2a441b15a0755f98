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
from typing import IO, Any, cast

from .machine import THREADS

_DROPPED = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "TORCH_LOGS")
"""Settings of the user's shell that would change what is compared."""

Event = dict[str, Any]
ENDINGS = ("done", "error")


def environment(cache: Path, compiler: bool = True) -> dict[str, str]:
    """The workers' environment: one thread, a cache directory of their own, no model hub.

    Without ``compiler``: nothing at all on the PATH, and whatever would have to be built is an error.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    package_root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")]))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS))
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    programs = {"SIZEWISE_CACHE_DIR": str(cache / "sizewise"), "SIZEWISE_DISABLE_COMPILE_CACHE": "0"}
    found = {**kept, **threads, **quiet, "PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(cache), **programs}
    if compiler:
        return found
    chosen = ("CXX", "CC")
    found = {name: value for name, value in found.items() if name not in chosen}
    return {**found, "PATH": str(cache / "nothing"), "SIZEWISE_REQUIRE_WARM": "1"}


class Child:
    """``with Child(job, cache) as child: for event in child.events(): ...``; leaving ends the process."""

    def __init__(self, job: dict[str, Any], cache: Path, compiler: bool = True) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            # -P: a directory called sizewise where the user stands is not this package.
            [sys.executable, "-P", "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=environment(cache, compiler),
            text=True,
            # A group of its own: whatever the worker starts can be ended with it.
            start_new_session=True,
        )
        # Pipes were asked for above, so neither is None.
        self._orders = cast(IO[str], self._process.stdin)
        self._events = cast(IO[str], self._process.stdout)
        # The orders stay open: their end tells the worker that nobody is waiting any more.
        self.order(job)

    @property
    def pid(self) -> int:
        """Of the worker, and of the process group it leads."""
        return self._process.pid

    def order(self, order: dict[str, Any]) -> None:
        # A worker that has died sends no event either, and is found out there.
        with contextlib.suppress(BrokenPipeError):
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def next_event(self) -> Event | None:
        """None where the worker has ended."""
        line = self._events.readline()
        return json.loads(line) if line else None

    def events(self) -> Iterator[Event]:
        """Every event up to the one that ends the job."""
        while (event := self.next_event()) is not None:
            yield event
            if event["event"] in ENDINGS:
                return

    def kill(self) -> int:
        """End it at once, with all it started (SIGKILL); how it ended, as ``returncode`` of subprocess."""
        # Everybody may have left already.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def status(self) -> str:
        """How it ended, in words."""
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "signal 9 (memory may have run out: about 2 GB are needed)"
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
        self.kill()
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        self._events.close()
        self._words.close()
