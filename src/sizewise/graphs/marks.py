"""Whether a result that lies in a graph's own memory still holds what it was handed out with.

Each session has a clock that every replay of its captures moves on, since they may share memory. A result that is
handed out is a new tensor on the old memory, and carries the time; it is current until the clock has moved.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import capture as errors

_MARK = "_sizewise_mark"


class Clock:
    """Counts replays."""

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> None:
        self.now += 1


def hand_out(tensor: torch.Tensor, clock: Clock) -> torch.Tensor:
    """The same memory as another tensor, which knows when it was handed out."""
    out = tensor.detach()
    setattr(out, _MARK, (clock, clock.now))
    return out


def is_current(tensor: torch.Tensor) -> bool:
    """False for a result, or a view of one, whose memory a later replay may have overwritten.

    True for every tensor that was not handed out as ``outputs="static"``. A view that was made in inference mode does
    not know what it is a view of: ask for the result itself there.
    """
    mark = _mark(tensor)
    return mark is None or mark[0].now == mark[1]


def check_current(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself. Raises StaleOutput (SW633), a RuntimeError, where `is_current` says no."""
    mark = _mark(tensor)
    if mark is not None and mark[0].now != mark[1]:
        raise errors.StaleOutput(shape=tuple(tensor.shape), replays=mark[0].now - mark[1])
    return tensor


def _mark(tensor: torch.Tensor) -> Any:
    mark = getattr(tensor, _MARK, None)
    if mark is None and tensor._base is not None:
        mark = getattr(tensor._base, _MARK, None)
    return mark
