"""Which captured size serves a call: the cheapest that holds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .bucket import Bucket

MOST_FUNCTIONS = 4096
"""Sizes whose functions are kept; each has some kilobytes."""


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
    ) -> None:
        """``padded`` are the dims that may be filled up; ``count`` is called at each replay; ``refuse`` gives what
        raises for a size that no bucket holds."""
        super().__init__()
        self._refuse = refuse
        self._count = count
        self._dims = tuple(dims)
        self.padded = padded
        self.buckets = sorted(buckets, key=lambda bucket: (math.prod(bucket.sizes.values()), *bucket.sizes.values()))

    def __missing__(self, key: Any) -> Callable[..., Any] | None:
        sizes = dict(zip(self._dims, (key,) if len(self._dims) == 1 else key, strict=True))
        bucket = self.holding(sizes)
        found = bucket.function(sizes, self._count) if bucket is not None else None
        if bucket is None and self._refuse is not None:
            found = self._refuse(sizes)
        if len(self) >= MOST_FUNCTIONS:
            self.clear()
        self[key] = found
        return found

    def holding(self, sizes: Mapping[str, int]) -> Bucket | None:
        """The cheapest bucket for ``sizes``, by the number of elements along its dims."""
        return next((bucket for bucket in self.buckets if self._holds(bucket.sizes, sizes)), None)

    def _holds(self, bucket: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
        return all(size == bucket[dim] or (dim in self.padded and size < bucket[dim]) for dim, size in sizes.items())
