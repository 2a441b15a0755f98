"""Ranges of sizes, as vLLM has them."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import build as errors


@dataclass(frozen=True, order=True)
class Range:
    """An inclusive interval of sizes, ``start <= size <= end``.

    Raises:
        BadRange (SW305).
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        good = type(self.start) is int and type(self.end) is int and 1 <= self.start <= self.end
        if not good:
            raise errors.BadRange(start=self.start, end=self.end)

    def __contains__(self, size: int) -> bool:
        return self.start <= size <= self.end

    def is_single_size(self) -> bool:
        return self.start == self.end

    def __str__(self) -> str:
        return f"({self.start}, {self.end})"
