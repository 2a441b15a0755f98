"""What a process is watched for that shall serve without compiling. Runs in the worker."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec")
"""Python's audit events of a process that is started."""
_COMPILERS = ("g++", "gcc", "c++", "cc", "clang++", "clang", "icpx")
_STACK = ("torch._dynamo", "torch._inductor")


class Watch:
    """Keeps what is started from now on. It cannot be ended."""

    def __init__(self) -> None:
        self.started: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self.started.append(f"{event} {arguments[:2]}")


def compiler_modules() -> set[str]:
    """The modules of Dynamo and Inductor that this process has imported."""
    return {name for name in sys.modules if name.startswith(_STACK)}


def compilers() -> list[str]:
    """The C++ compilers that this process would find."""
    names = [*_COMPILERS, *filter(None, (os.environ.get("CXX"), os.environ.get("CC")))]
    return [path for path in map(shutil.which, names) if path is not None]
