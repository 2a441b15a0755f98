"""A stand-in for CUDA graphs that runs on a CPU, for tests: all that goes wrong on a GPU goes wrong here, visibly.

- Results lie in memory that the captures of one pool share: a replay of any of them scrambles those of the others.
- Tensors are read where they were at capture: a parameter whose data was moved since is read at its old address.
- Within a capture, waiting for the device, results sized by data, random numbers, memory from elsewhere and another
  capture are errors, also where the call swallows them.
- A failed capture drops the pool that it used; captures before it keep theirs.

What a real graph does and this one does not: a replay here runs the call's Python again, and a parameter that was
*replaced* in its module is seen by a call that looks it up there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .. import monitor
from ..errors import SizewiseError
from .backend import CannotCapture, Job
from .illegal import Watch, unless_broken
from .sessions import SharedSession
from .values import map_tensors, tensors_of
from .window import breach, capture_window, inside_capture, replay_window


class FakeBackend:
    """Captures on the CPU, and a record of them.

    Args:
        cudagraph_num_of_warmups: runs of each call before its capture.
        out_of_memory_at: the capture, counted from 1 over all sessions, that finds no memory.
        interrupt_at: the capture during which Ctrl-C is pressed.
        overwrite_inputs: keep inputs in memory of its own and overwrite them in each replay, as the interface allows
            and the CPU's tape does. Without it, inputs are the job's own tensors, as for CUDA graphs.
    """

    name = "fake"

    def __init__(
        self,
        *,
        cudagraph_num_of_warmups: int = 1,
        out_of_memory_at: int | None = None,
        interrupt_at: int | None = None,
        overwrite_inputs: bool = False,
    ) -> None:
        self.cudagraph_num_of_warmups, self.overwrite_inputs = cudagraph_num_of_warmups, overwrite_inputs
        self.out_of_memory_at, self.interrupt_at = out_of_memory_at, interrupt_at
        self.sessions: list[FakeSession] = []
        self.attempts = 0
        """Captures begun."""
        self.warm_ups = 0
        """Runs before captures, over all captures."""
        self.captures: list[FakeCapture] = []
        """Those that succeeded, in order; released ones too."""
        self.freed: list[object] = []
        """Pools that were given back."""

    @property
    def sizes(self) -> list[tuple[tuple[int, ...], ...]]:
        """The shapes of the inputs of each capture, in order."""
        return [tuple(tuple(tensor.shape) for tensor in capture.inputs) for capture in self.captures]

    @property
    def bytes(self) -> int:
        """Of memory that all sessions hold."""
        return sum(session.bytes for session in self.sessions)

    @contextmanager
    def session(self) -> Iterator[FakeSession]:
        """Raises CapturingDisabled (SW601). What was captured is released if the block raises."""
        monitor.validate_cudagraph_capturing_enabled()
        session = FakeSession(self)
        self.sessions.append(session)
        try:
            yield session
        except BaseException:
            session.release()
            raise

    def allocate(self, *shape: int) -> torch.Tensor:
        """Memory from elsewhere than the pool. Raises CannotCapture within a capture."""
        if inside_capture():
            breach("an allocation that is not the pool's")
        return torch.empty(*shape)

    def synchronize(self) -> None:
        """Wait for the device. Raises CannotCapture within a capture."""
        if inside_capture():
            breach("waits for the device")


class FakePool:
    """Memory that captures share."""


class FakeSession(SharedSession["FakeCapture"]):
    """``pool``: what the next capture shares memory with."""

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__()
        self._backend = backend
        self.pool = FakePool()
        self.busy = False

    @property
    def bytes(self) -> int:
        """Of memory: of each pool that is held, its largest capture's."""
        pools = {capture.pool for capture in self.captures if not capture.freed}
        return sum(max(capture.bytes for capture in self.captures if capture.pool is pool) for pool in pools)

    def capture(self, job: Job) -> FakeCapture:
        """Raises CannotCapture; KeyboardInterrupt where the backend was told to."""
        monitor.validate_cudagraph_capturing_enabled()
        try:
            with self._lock, capture_window() as window, torch.no_grad():
                self._backend.attempts += 1
                inputs = _own(job.inputs) if self._backend.overwrite_inputs else job.inputs
                for _ in range(self._backend.cudagraph_num_of_warmups):
                    job.run(inputs)
                    self._backend.warm_ups += 1
                unless_broken(window)
                result = self._watched(job, inputs)
                unless_broken(window)
                made = FakeCapture(self, job, inputs, result)
        except BaseException:
            self._drop_pool()
            raise
        self.captures.append(made)
        self._backend.captures.append(made)
        return made

    def _watched(self, job: Job, inputs: Sequence[torch.Tensor]) -> Any:
        try:
            with Watch():
                result = job.run(inputs)
        except (CannotCapture, SizewiseError):
            raise
        except Exception as problem:
            raise CannotCapture(f"{type(problem).__name__}: {problem}") from problem
        self._fail_if_told()
        return result

    def _fail_if_told(self) -> None:
        if self._backend.attempts == self._backend.interrupt_at:
            raise _pressed()
        if self._backend.attempts == self._backend.out_of_memory_at:
            raise CannotCapture("out of memory")

    def _drop_pool(self) -> None:
        # Captures before the failed one live on in it.
        if all(capture.pool is not self.pool for capture in self.captures):
            self._backend.freed.append(self.pool)
        self.pool = FakePool()

    def _free(self) -> None:
        self.clock.tick()
        for capture in self.captures:
            if not capture.freed:
                capture.freed = True
                capture.scramble()
                if capture.pool not in self._backend.freed:
                    self._backend.freed.append(capture.pool)
        self.pool = FakePool()


class FakeCapture:
    """One captured run. ``replays`` counts; ``freed``: its memory belongs to somebody else."""

    live: tuple[str, ...] = ()

    def __init__(self, session: FakeSession, job: Job, inputs: tuple[torch.Tensor, ...], result: Any) -> None:
        self._session, self._job, self.pool = session, job, session.pool
        self.inputs = inputs
        # Aliases keep the memory of this moment, wherever the tensors themselves move to.
        self._bound = [(tensor, tensor.detach()) for tensor in (*job.weights, *_within(job.fixed))]
        elsewhere = {_memory(tensor) for tensor in (*inputs, *(alias for _, alias in self._bound))}
        own: dict[int, torch.Tensor] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if _memory(tensor) in elsewhere:
                return tensor
            return own.setdefault(id(tensor), torch.empty_like(tensor))

        self.result = map_tensors(result, keep)
        self._own = list(own.values())
        self.bytes = sum(tensor.untyped_storage().nbytes() for tensor in self._own)
        self.replays = 0
        self.released = self.freed = False
        self._scrambled = False
        # As on a GPU: a capture computes nothing.
        self.scramble()

    def replay(self) -> None:
        """Raises CannotCapture: it is released, or another replay of its session is under way."""
        if self.released:
            raise CannotCapture("the capture is released")
        if self._session.busy:
            raise CannotCapture("two replays of one session overlap in time")
        self._session.busy = True
        try:
            for other in self._session.captures:
                if other is not self and other.pool is self.pool:
                    other.scramble()
            with replay_window(), torch.no_grad(), self._where_it_was():
                self._copy(self._job.run(self.inputs))
            self.replays += 1
        finally:
            self._session.busy = False
            self._session.clock.tick()
        if self._session._backend.overwrite_inputs:
            for tensor in self.inputs:
                _scramble(tensor)

    def release(self) -> None:
        self._session.let_go(self)

    def scramble(self) -> None:
        """Overwrite the results."""
        if not self._scrambled:
            self._scrambled = True
            for tensor in self._own:
                _scramble(tensor)

    def _copy(self, result: Any) -> None:
        self._scrambled = False
        for mine, seen in zip(tensors_of(self.result), tensors_of(result), strict=True):
            if mine.shape != seen.shape:
                raise CannotCapture(f"a result of shape {tuple(mine.shape)} is {tuple(seen.shape)} now")
            if _memory(mine) != _memory(seen):
                mine.copy_(seen)

    @contextmanager
    def _where_it_was(self) -> Iterator[None]:
        """Tensors that moved are back at the addresses of the capture."""
        moved = [(t, alias, t.data) for t, alias in self._bound if _memory(t) != _memory(alias)]
        for tensor, alias, _ in moved:
            tensor.data = alias
        try:
            yield
        finally:
            for tensor, _, now in moved:
                tensor.data = now


def _pressed() -> KeyboardInterrupt:
    return KeyboardInterrupt("the fake was told to be interrupted here")


def _own(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone() for tensor in inputs)


def _within(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _within(part)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _scramble(tensor: torch.Tensor) -> None:
    """No value that was there stays: not a number, or the bits turned over."""
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.bitwise_not_()
