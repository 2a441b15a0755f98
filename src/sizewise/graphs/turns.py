"""Who uses the captures of a session now, and their end, which may come while a call still does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .marks import Clock


class Turns:
    """One caller at a time, and nobody waits: ``acquire(False)`` begins a turn, ``release()`` ends it.

    Whoever had a turn looks at ``ending`` after it, and calls `finish` if there is something. A turn may be interrupted
    by a signal whose handler retires the captures, so neither waits for the other.

    ``clock`` is the session's, and counts its replays; of a session that has none, whoever replays counts (``ticks``).
    """

    def __init__(self, session: Any = None) -> None:
        lock = threading.Lock()
        self.acquire: Callable[[bool], bool] = lock.acquire
        self.release: Callable[[], None] = lock.release
        self.ending: list[Callable[[], Any]] = []
        self.retired = False
        clock = getattr(session, "clock", None)
        self.ticks = clock is None
        self.clock: Clock = Clock() if clock is None else clock
        self.turn: Callable[[], Any] | None = getattr(session, "turn", None)
        """What a session wants around each use, such as waiting for another stream."""

    def retire(self, free: Callable[[], Any]) -> None:
        """Nobody gets a turn any more; ``free`` is called at once, or by whoever has the last turn, after it."""
        if not self.retired:
            self.retired = True
            self.ending.append(free)
            self.finish()

    def finish(self) -> None:
        # Never released: this was the last turn.
        if self.acquire(False):
            self.ending.pop()()
