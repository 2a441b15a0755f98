"""Real processes that start in milliseconds: forked from a server that has torch and its compilers imported.

A process is killed, waits for locks and writes files as any other; only its imports are done. Tests in which these
matter start an interpreter of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

PATIENCE = 120


class Started:
    """One process: it tells dicts, and waits for `go` before it begins and wherever it stops."""

    def __init__(self, folder: Path | None, task: str, variables: Mapping[str, str], arguments: dict[str, Any]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.cache_children"])
        place = {} if folder is None else {"SIZEWISE_CACHE_DIR": str(folder)}
        environment = {"SIZEWISE_DISABLE_COMPILE_CACHE": "0", **place, **variables}
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_begin, args=(theirs, environment, task, arguments))
        self.process.start()
        theirs.close()
        assert self.told() == {"started": self.pid}

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def told(self) -> dict[str, Any]:
        """What it says next."""
        assert self._pipe.poll(PATIENCE), "the process says nothing"
        found: dict[str, Any] = self._pipe.recv()
        assert "failed" not in found, found["failed"]
        return found

    def go(self) -> Started:
        self._pipe.send("go")
        return self

    def kill(self) -> None:
        """As the kernel does when memory is out."""
        self.process.kill()
        self.process.join()
        assert self.process.exitcode == -9

    def answer(self) -> dict[str, Any]:
        """The last thing it says, once it has ended by itself."""
        found = self.told()
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0, found
        return found

    def close(self) -> None:
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._pipe.close()


@contextmanager
def started(
    folder: Path | None, task: str = "serve", variables: Mapping[str, str] | None = None, **arguments: Any
) -> Iterator[Started]:
    """A process that is ready to begin, and gone at the end."""
    made = Started(folder, task, variables or {}, arguments)
    try:
        yield made
    finally:
        made.close()


def run(folder: Path | None, task: str = "serve", variables: Mapping[str, str] | None = None, **arguments: Any) -> Any:
    """What a process says that runs to its end."""
    with started(folder, task, variables, **arguments) as process:
        return process.go().answer()


def _begin(pipe: Connection, variables: Mapping[str, str], task: str, arguments: dict[str, Any]) -> None:
    # Not above: the tests' own process does not build what this imports and builds.
    from . import cache_children

    os.environ.update(variables)
    torch.set_num_threads(1)

    def tell(**fields: Any) -> None:
        pipe.send(fields)

    tell(started=os.getpid())
    pipe.recv()
    function: Callable[..., None] = getattr(cache_children, task)
    try:
        function(tell, pipe, **{name: _found(cache_children, value) for name, value in arguments.items()})
    except Exception:
        tell(failed=traceback.format_exc())
        raise


def _found(module: Any, value: Any) -> Any:
    """``before_publishing=`` and the like are given by name."""
    return getattr(module, value[1:]) if isinstance(value, str) and value.startswith(":") else value
