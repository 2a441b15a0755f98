"""Whether a capture is under way here: nothing else is captured or replayed within one, whoever began it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from .backend import CannotCapture


class Window:
    """One capture, its warm-up runs included. ``broken``: what happened in it that no capture allows, if anything."""

    def __init__(self) -> None:
        self.broken: str | None = None


_CURRENT: ContextVar[Window | None] = ContextVar("sizewise_capture_window", default=None)


@contextmanager
def capture_window() -> Iterator[Window]:
    """Raises CannotCapture: a capture is under way already."""
    if inside_capture():
        breach("a capture within another capture")
    window = Window()
    with _as_current(window):
        yield window


@contextmanager
def replay_window() -> Iterator[Window]:
    """For a backend whose replay runs Python, which the replay of a real graph does not."""
    window = Window()
    with _as_current(window):
        yield window


@contextmanager
def _as_current(window: Window) -> Iterator[None]:
    token = _CURRENT.set(window)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def inside_capture() -> bool:
    """Within a capture of this package in this thread, or with the current CUDA stream capturing for anybody."""
    if _CURRENT.get() is not None:
        return True
    # Without a CUDA context nothing can be capturing, and builds without CUDA have no answer.
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def probe(device_type: str) -> Callable[[], Any]:
    """`inside_capture` for calls on one kind of device, as fast as can be asked; truthy for yes."""
    return _CURRENT.get if device_type == "cpu" else inside_capture


def breach(what: str) -> None:
    """Say that something illegal happened. Raises CannotCapture, and the capture fails also where that is swallowed."""
    window = _CURRENT.get()
    if window is not None and window.broken is None:
        window.broken = what
    raise CannotCapture(what)
