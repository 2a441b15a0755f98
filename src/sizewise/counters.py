"""Counts of one compiled module: plain ints to read, exact under threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from .errors import state as errors

NAMES = (
    "traces",
    "compilations",
    "captures",
    "calls_capture",
    "calls_program",
    "calls_eager",
    "misses",
    "stale",
    "cache_hits",
    "cache_misses",
)


class Counters:
    """Attributes named in `NAMES` are ints; ``add(name)`` counts one more.

    ``next()`` on an `itertools.count` is one step of the interpreter, so concurrent calls lose nothing
    and no lock is taken.
    """

    def __init__(self) -> None:
        self._counts = {name: itertools.count() for name in NAMES}

    def __getattr__(self, name: str) -> int:
        counts = self.__dict__.get("_counts", {})
        if name not in counts:
            raise _unknown(name)
        return int(repr(counts[name])[len("count(") : -1])

    def adder(self, name: str) -> Any:
        """The fastest way to count: calling the result counts one."""
        return self._counts[name].__next__

    def add(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            next(self._counts[name])

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in NAMES}

    @contextmanager
    def expect(self, **deltas: int) -> Iterator[None]:
        """For tests: the body changes the named counts by exactly these numbers.

        Raises:
            UnknownCount (SW517): there is no such count.
            CountsDiffer (SW516), an AssertionError: a count changed by another number.
        """
        for name in deltas.keys() - set(NAMES):
            raise _unknown(name)
        before = self.as_dict()
        yield
        after = self.as_dict()
        seen = {name: after[name] - before[name] for name in deltas}
        if seen != deltas:
            raise errors.CountsDiffer(expected=deltas, seen=seen)

    def __repr__(self) -> str:
        return f"Counters({', '.join(f'{name}={value}' for name, value in self.as_dict().items() if value)})"


def _unknown(name: str) -> errors.UnknownCount:
    near = get_close_matches(name, NAMES, n=1)
    suggestion = f"write {near[0]!r}; " if near else ""
    return errors.UnknownCount(name=name, suggestion=suggestion, known=", ".join(NAMES))
