"""Which captured size serves a call: the cheapest that holds it."""

from __future__ import annotations

import linecache
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..config.captures import Decode, is_decode
from .bucket import Bucket

MOST_FUNCTIONS = 4096
"""Sizes whose functions are kept; each has some kilobytes."""


class NotNow(Exception):
    """Internal: a size is not captured at this moment, and may be later."""


class Buckets(dict[Any, Callable[..., Any] | None]):
    """The size of a call (a tuple of sizes, where there are several dims or none) -> the function that serves it, or
    None. What is asked for the first time is worked out and kept."""

    def __init__(
        self,
        dims: Sequence[str],
        buckets: Iterable[Bucket],
        padded: frozenset[str],
        count: Callable[[], Any],
        refuse: Callable[[Mapping[str, int]], Callable[..., Any]] | None = None,
        least: Mapping[int, int] | None = None,
        decode: Decode | None = None,
    ) -> None:
        """``padded`` are the dims that may be filled up; ``count`` is called at each replay; ``refuse`` gives what
        raises for a size that no bucket holds; ``least``, with one dim: bucket -> the smallest size that it serves.
        Buckets at ``decode`` are for decode batches only, the others for all."""
        super().__init__()
        self._least = least or {}
        self._refuse = refuse
        self._decode = decode or {}
        self._count = count
        self._dims = tuple(dims)
        self.padded = padded
        self.buckets = sorted(buckets, key=lambda bucket: (math.prod(bucket.sizes.values()), *bucket.sizes.values()))

    def __missing__(self, key: Any) -> Callable[..., Any] | None:
        sizes = dict(zip(self._dims, (key,) if len(self._dims) == 1 else key, strict=True))
        try:
            bucket = self.holding(sizes)
        except NotNow:
            return None
        found = bucket.function(sizes, self._count) if bucket is not None else None
        if bucket is None and self._refuse is not None:
            found = self._refuse(sizes)
        if len(self) >= MOST_FUNCTIONS:
            self._forget()
        self[key] = found
        return found

    def drop(self) -> None:
        """Forget all captures: every size is the program's."""
        self.buckets, self._refuse = [], None
        self._forget()

    def _forget(self) -> None:
        """Drop all functions, with the source that tracebacks show of them."""
        for function in self.values():
            name = "" if function is None else function.__code__.co_filename
            if name.startswith("<"):
                linecache.cache.pop(name, None)
        self.clear()

    def uncounted(self) -> Buckets:
        """The same captures, without counting or refusing."""
        return Buckets(self._dims, self.buckets, self.padded, int, least=self._least)

    def holding(self, sizes: Mapping[str, int]) -> Bucket | None:
        """The cheapest bucket for ``sizes``, by the number of elements along its dims; for a decode batch, one of its
        own kind if there is one."""
        at = [bucket.sizes for bucket in self.buckets]
        return next((self.buckets[index] for index in self._order(at, sizes)), None)

    def _order(self, points: Sequence[Mapping[str, int]], sizes: Mapping[str, int]) -> list[int]:
        """Which of ``points``, the cheapest first, hold a call of ``sizes``: from the best to the last resort."""
        fitting = [index for index, point in enumerate(points) if self._holds(point, sizes)]
        own = [index for index in fitting if is_decode(self._decode, points[index])]
        others = [index for index in fitting if index not in own]
        return own + others if is_decode(self._decode, sizes) else others

    def _holds(self, bucket: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        return all(
            size == bucket[dim] or (dim in self.padded and self._least.get(bucket[dim], 0) <= size < bucket[dim])
            for dim, size in sizes.items()
        )


class LazyBuckets(Buckets):
    """Buckets that are captured when a call first needs them: loading takes milliseconds, and captures many of them.

    One thread captures at a time; the calls of others are served by the program meanwhile.
    """

    def __init__(
        self,
        dims: Sequence[str],
        points: Iterable[Mapping[str, int]],
        padded: frozenset[str],
        count: Callable[[], Any],
        capture: Callable[[Mapping[str, int]], Bucket | None],
        least: Mapping[int, int] | None = None,
        decode: Decode | None = None,
    ) -> None:
        """``capture`` gives the bucket of one of ``points``, or None; it raises NotNow."""
        super().__init__(dims, (), padded, count, least=least, decode=decode)
        self._points = sorted((dict(point) for point in points), key=lambda point: math.prod(point.values()))
        self._capture = capture
        self._lock = threading.Lock()
        self._found: dict[tuple[int, ...], Bucket | None] = {}

    def holding(self, sizes: Mapping[str, int]) -> Bucket | None:
        """Raises NotNow."""
        for point in (self._points[index] for index in self._order(self._points, sizes)):
            key = tuple(point.values())
            if key not in self._found:
                if not self._lock.acquire(blocking=False):
                    raise NotNow
                try:
                    if key not in self._found:
                        self._found[key] = self._capture(point)
                finally:
                    self._lock.release()
            if self._found[key] is not None:
                return self._found[key]
        return None

    def drop(self) -> None:
        self._points, self._found = [], {}
        super().drop()
