"""The capture gate: whether capturing a graph is legal at this moment, in the whole process.

The gate is process-wide because the device is. It is open at first. Code that is about to capture
calls `validate_cudagraph_capturing_enabled()`; code that owns the life cycle opens and closes the gate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from .errors import capture as errors
from .events import logger
from .locks import ForkLock

__all__ = [
    "CaptureGate",
    "cudagraph_capturing",
    "cudagraph_capturing_enabled",
    "profiling_run",
    "set_cudagraph_capturing_enabled",
    "validate_cudagraph_capturing_enabled",
]


class CaptureGate:
    """A live yes or no: truthy, and True when called, while capturing is legal."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._base = True
        # One entry per open `cudagraph_capturing` block, the latest last. Blocks of several threads
        # may end in any order; with a saved former value the last to end would restore a stale one.
        self._blocks: dict[object, bool] = {}
        # Written under the lock, read without it: a reader never waits.
        self._enabled = True

    def __bool__(self) -> bool:
        return self._enabled

    def __call__(self) -> bool:
        return self._enabled

    def __repr__(self) -> str:
        state = "open: capturing is legal" if self._enabled else "closed: capturing is refused"
        return f"<capture gate, {state}; call it or test its truth>"

    def set(self, enabled: bool) -> None:
        """Set the innermost open block's value, or the gate's own where no block is open."""
        with self._lock:
            if self._blocks:
                self._blocks[next(reversed(self._blocks))] = enabled
            else:
                self._base = enabled
            self._settle()

    @contextmanager
    def block(self, enabled: bool) -> Iterator[None]:
        token = object()
        with self._lock:
            self._blocks[token] = enabled
            self._settle()
        try:
            yield
        finally:
            with self._lock:
                del self._blocks[token]
                self._settle()

    def _settle(self) -> None:
        self._enabled = next(reversed(self._blocks.values()), self._base)


cudagraph_capturing_enabled = CaptureGate()


def validate_cudagraph_capturing_enabled() -> None:
    """Call this before any capture. Raises SW601 (a RuntimeError) while the gate is closed."""
    if not cudagraph_capturing_enabled:
        raise errors.CapturingDisabled(thread=threading.current_thread().name)


def set_cudagraph_capturing_enabled(enabled: bool) -> None:
    """Open (True) or close (False) the gate for the whole process.

    Inside a `cudagraph_capturing` block the setting ends with the block. Raises SW603 (a TypeError)
    for anything but a bool.
    """
    cudagraph_capturing_enabled.set(_checked(enabled))


@contextmanager
def cudagraph_capturing(enabled: bool) -> Iterator[None]:
    """Open or close the gate for a block; the former value returns at its end, also on an exception.

    The gate is process-wide: while blocks of several threads are open, the latest one entered decides.
    Raises SW603 (a TypeError) for anything but a bool.
    """
    with cudagraph_capturing_enabled.block(_checked(enabled)):
        yield


class CompileCounts(Protocol):
    """What `profiling_run` reads; the ``counters`` of a compiled module have both."""

    @property
    def traces(self) -> int: ...

    @property
    def compilations(self) -> int: ...


@contextmanager
def profiling_run(counters: CompileCounts) -> Iterator[None]:
    """The first run of what is built, to measure its memory or time; its length is logged, in seconds.

    Raises CompiledInProfilingRun (SW635), an AssertionError: by the counters, something was traced or compiled
    meanwhile, so that what was measured is not what will serve.
    """
    before = counters.traces, counters.compilations
    started = time.perf_counter()
    yield
    elapsed = time.perf_counter() - started
    traces, compilations = counters.traces - before[0], counters.compilations - before[1]
    if traces or compilations:
        raise errors.CompiledInProfilingRun(compilations=compilations, traces=traces)
    logger.info("Initial profiling/warmup run took %.2f s", elapsed)


def _checked(enabled: object) -> bool:
    if not isinstance(enabled, bool):
        raise errors.CapturingFlagNotBool(value=enabled, kind=type(enabled).__name__)
    return enabled
