"""Which sizes are worth capturing, where nobody listed them: where launching is a part of a call that can be noticed.

A replay saves the same time at every size, that of launching; what a call computes grows. So the smallest size tells
what is saved, and the program's own time at each size whether that matters, and how far down a capture serves smaller
calls before the program, which computes less, is as fast.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOTICED = 0.03
"""The part of a call that a replay has to save."""
_RUNS = 5


@dataclass(frozen=True)
class Worth:
    """What was found. ``least``: captured size -> the smallest size it serves; ``without``: size -> why not."""

    least: Mapping[int, int] = field(default_factory=dict)
    without: Mapping[int, str] = field(default_factory=dict)


def measure(
    sizes: Sequence[int], low: int, replay: Callable[[], Any], program: Callable[[int], Callable[[], Any]]
) -> Worth:
    """What is worth capturing of ``sizes``, which ascend; calls are from ``low``.

    ``replay`` runs a capture of the first, ``program(size)`` gives what runs the program. Larger sizes are not run once
    one is not worth it.
    """
    times: dict[int, float] = {}
    least: dict[int, int] = {}
    saved = 0.0
    for before, size in itertools.pairwise([0, *sizes]):
        times[size] = _fastest(program(size))
        saved = saved if before else times[size] - _fastest(replay)
        if saved < NOTICED * times[size]:
            words = f"{max(saved, 0) * 1e6:.0f} us of {times[size] * 1e6:.0f} us"
            why = f"at {size} a replay saves {words}, less than {NOTICED:.0%}"
            return Worth(least, {larger: why for larger in sizes if larger >= size})
        least[size] = _least(before, times[before], size, times[size], saved) if before else low
    return Worth(least)


def _least(before: int, below: float, size: int, above: float, saved: float) -> int:
    """The smallest size above ``before`` at which the program, in a straight line between two times, is not faster."""
    served = above - saved
    for candidate in range(before + 1, size):
        if below + (above - below) * (candidate - before) / (size - before) >= served:
            return candidate
    return size


def _fastest(run: Callable[[], Any]) -> float:
    """Seconds."""
    run()
    found = float("inf")
    for _ in range(_RUNS):
        # Of this thread alone: on a busy machine the clock on the wall says little.
        began = time.thread_time()
        run()
        found = min(found, time.thread_time() - began)
    return found
