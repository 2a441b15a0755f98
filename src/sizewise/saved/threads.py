"""The numbers of threads that a bundle is to serve with."""

from __future__ import annotations

import os
import threading
from typing import Any

from ..errors.state import BadOption

MOST = 4096
"""More than the largest machines have processors. For numbers beyond, libgomp ends the process, or crashes it."""


def checked_threads(threads: Any) -> list[int]:
    """Numbers of threads, each once. Raises BadOption (SW510)."""
    listed = threads if isinstance(threads, list | tuple | set | range) else [threads]
    if not listed or not all(type(count) is int and 1 <= count <= MOST for count in listed):
        todo = f"pass numbers from 1 to {MOST}, as torch.set_num_threads takes them"
        raise BadOption(option="threads", seen=threads, legal="a list of numbers of threads", todo=todo)
    most = max(listed)
    started = most if most <= (os.cpu_count() or 1) else _started(most)
    if started < most:
        todo = f"the programs are built with that many threads: raise the limit, or pass at most {started}"
        raise BadOption(option="threads", seen=threads, legal="what this process may start", todo=todo)
    return sorted(set(listed))


def _started(count: int) -> int:
    """How many threads more, up to ``count``, this process may have at a time: limits of users and containers count.

    Only starting them tells. OpenMP ends the process where one does not start.
    """
    over = threading.Event()
    running: list[threading.Thread] = []
    try:
        while len(running) < count:
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            running.append(thread)
    except RuntimeError:
        pass
    finally:
        over.set()
        for thread in running:
            thread.join()
    return len(running)
