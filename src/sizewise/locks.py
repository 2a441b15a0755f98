"""A lock that survives a fork."""

from __future__ import annotations

import os
import threading
from typing import Any


class ForkLock:
    """A re-entrant lock. A forked child gets it free, whichever of the parent's threads held it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if os.getpid() != self._pid:
            # Of the parent's threads only the forking one goes on in the child: nobody else is here yet.
            self._pid, self._lock = os.getpid(), threading.RLock()
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()
