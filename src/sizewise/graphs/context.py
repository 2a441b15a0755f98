"""What a call is: its `BatchDescriptor` and the mode it was dispatched to, given for a block and read by wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ..config.modes import CUDAGraphMode, cudagraph_mode
from ..errors import capture as errors
from .backend import Session

RUNTIME_MODES = (CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL)
"""What one call can be; the other modes choose among them by the kind of the batch."""


@dataclass(frozen=True)
class BatchDescriptor:
    """The key a call is dispatched by: each dim's size after padding, and whether the batch is uniform.

    ``BatchDescriptor((("batch", 8), ("seq", 128)))``, or ``BatchDescriptor.of(batch=8, seq=128)``. ``uniform`` batches
    are those whose rows are all alike (decode), for which a FULL graph may hold what it cannot hold for others.
    """

    sizes: tuple[tuple[str, int], ...]
    uniform: bool = False

    @classmethod
    def of(cls, *, uniform: bool = False, **sizes: int) -> BatchDescriptor:
        return cls(tuple(sizes.items()), uniform)

    def relaxed(self) -> BatchDescriptor:
        """The key of PIECEWISE graphs, to which batches that are uniform are like any other."""
        return replace(self, uniform=False) if self.uniform else self

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes)
        return f"({sizes}{', uniform' if self.uniform else ''})"


@dataclass(frozen=True)
class ForwardContext:
    """Of one call. ``session``: where graphs that are missing are captured; None captures each on its own."""

    mode: CUDAGraphMode
    descriptor: BatchDescriptor | None = None
    session: Session | None = None


_CURRENT: ContextVar[ForwardContext | None] = ContextVar("sizewise_forward_context", default=None)


def current_context() -> ForwardContext | None:
    """The innermost `forward_context` of this thread or task; None outside of all."""
    return _CURRENT.get()


@contextmanager
def forward_context(
    mode: CUDAGraphMode | str, descriptor: BatchDescriptor | None = None, *, session: Session | None = None
) -> Iterator[ForwardContext]:
    """Within the block, wrappers of ``mode`` capture or replay the graph of ``descriptor``; others run as they are.

    Raises:
        InvalidRuntimeMode (SW634), a ValueError: a mode that no single call can have, or no descriptor for one that
            needs it.
        InvalidCudagraphMode (SW117), WrongType (SW104): no mode at all.
    """
    context = ForwardContext(runtime_mode(mode), descriptor, session)
    if context.mode is not CUDAGraphMode.NONE and descriptor is None:
        problem = f"{context.mode.name} needs a descriptor to find its graph by, and there is none"
        raise errors.InvalidRuntimeMode(mode=context.mode.name, problem=problem)
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def runtime_mode(mode: CUDAGraphMode | str) -> CUDAGraphMode:
    """The mode of one call, from itself or its name. Raises SW634, SW117, SW104."""
    known = cudagraph_mode(mode)
    if known not in RUNTIME_MODES:
        problem = "one call is NONE, PIECEWISE or FULL; the other modes choose among these by the kind of the batch"
        raise errors.InvalidRuntimeMode(mode="None" if known is None else known.name, problem=problem)
    return known
