"""What is known about sizes, as functions and statements about the user's dims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class SizeFunction:
    """An expression over dims as Python source, e.g. ``2*batch + 1``."""

    source: str
    dims: tuple[str, ...]

    def __call__(self, sizes: Mapping[str, int]) -> Any:
        return eval(self.source, {"math": math, "torch": torch}, dict(sizes))


@dataclass(frozen=True)
class Assumption:
    """Something a trace took for granted about sizes, and how it was settled."""

    text: str
    verdict: str
    """``proved`` (true for every size in range), ``checked`` (at entry) or ``refuted``."""
    method: str = ""
    counterexample: tuple[tuple[str, int], ...] = ()
    relation: tuple[str, str] | None = None
    """Two dims that have to be equal, when the verdict is ``checked``."""
