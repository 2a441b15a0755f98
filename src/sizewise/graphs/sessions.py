"""What sessions of every backend do alike: one at a time, a clock of replays, and an end for all captures together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from ..locks import ForkLock
from .marks import Clock


class Releasable(Protocol):
    released: bool


Kind = TypeVar("Kind", bound=Releasable)


class SharedSession(Generic[Kind]):
    """Captures that share memory. They are given up together: the memory of one may serve another of them.

    ``clock`` moves on at each replay of any of them.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.captures: list[Kind] = []
        self._lock = ForkLock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One caller's whole use of a capture: copying in, replay, copying out. Others wait."""
        with self._lock:
            yield

    def release(self) -> None:
        """Give up all captures and their memory. They are not replayed any more."""
        for capture in self.captures:
            capture.released = True
        self._free()

    def let_go(self, capture: Kind) -> None:
        """One capture is given up; its memory is freed with that of the last one."""
        capture.released = True
        if all(one.released for one in self.captures):
            self._free()

    def _free(self) -> None:
        """Give the memory of all captures back."""
