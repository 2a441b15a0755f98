"""What captures: one interface for CUDA graphs, the CPU's tape and the fake of the tests.

A capture is the run of one callable at one exact size, bound to fixed memory. Whoever uses it copies arguments into
``inputs``, calls ``replay()`` and reads ``result``, which the next replay overwrites; copying, padding and slicing are
the caller's (`bucket`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class CannotCapture(Exception):
    """Internal: a run cannot be replayed; the message names the operator, or what else is in the way."""


@dataclass(frozen=True)
class Job:
    """What to capture: ``call(*fixed, *inputs)``, or ``call([*inputs])`` where it is ``packed``, as pieces are.

    ``inputs`` hold legal values: the backend runs the call with them, also more than once. ``weights`` are the module's
    tensors that it reads where they are. What the run writes to the module is the caller's to keep and restore.
    """

    call: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    fixed: tuple[Any, ...] = ()
    weights: tuple[torch.Tensor, ...] = ()
    packed: bool = False
    shares: bool = False
    """Whether results may share memory with one another: they are read where they are."""
    label: str = ""

    def run(self, inputs: Sequence[torch.Tensor], call: Callable[..., Any] | None = None) -> Any:
        """Call it with ``inputs`` in the place of its own; ``call`` is what stands in for its callable."""
        call = call or self.call
        return call(list(inputs)) if self.packed else call(*self.fixed, *inputs)


class Capture(Protocol):
    """One captured run. Its replays, and those of captures of the same session, must not overlap in time."""

    inputs: tuple[torch.Tensor, ...]
    """Fixed memory; what they hold when `replay` is called is what it computes with. A replay may overwrite them."""
    result: Any
    """What the call returned: its containers, with tensors in fixed memory that the next replay overwrites."""
    bytes: int
    """Of memory that the capture needs for itself while it replays; captures of a session may share it."""
    live: tuple[str, ...]
    """The operators that run as they are within the replay, with memory of their own, since they cannot be captured."""

    def replay(self) -> None:
        """Run again. Called with gradients off."""

    def release(self) -> None:
        """Give its memory back; it is not replayed any more."""


class Session(Protocol):
    """Captures that share memory, made within one window. Give it the largest first."""

    @property
    def bytes(self) -> int:
        """Of memory that all its captures hold together."""

    def capture(self, job: Job) -> Capture:
        """Raises CannotCapture; what the failed attempt held is given back."""

    def release(self) -> None:
        """Give all captures up, and their memory. They are not replayed any more."""


class GraphBackend(Protocol):
    """A kind of captures. Opening a session is legal only while the gate (`monitor`) is open."""

    name: str

    def session(self) -> AbstractContextManager[Session]:
        """The window of one warm-up's captures. Raises CapturingDisabled (SW601)."""


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a result or in arguments, whatever holds it."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from tensors_of(getattr(value, each.name))
