"""The CPU's graph backend: each capture a tape, all of a session on one arena."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...monitor import validate_cudagraph_capturing_enabled
from ..backend import CannotCapture, Job
from ..window import capture_window
from .recorder import Recording, record
from .tape import Arena, Tape, bind, plan


class TapeBackend:
    """Records kernel calls where a GPU would capture them."""

    name = "tape"

    @contextmanager
    def session(self) -> Iterator[TapeSession]:
        """Raises CapturingDisabled (SW601). What was captured is released if the block raises."""
        validate_cudagraph_capturing_enabled()
        session = TapeSession()
        try:
            # What is made in inference mode could not be written by calls outside of it.
            with torch.inference_mode(False), torch.no_grad():
                yield session
        except BaseException:
            session.release()
            raise


class TapeSession:
    """Tapes on one arena, which is as large as the first, and so the largest, needs."""

    def __init__(self) -> None:
        self._arenas = [Arena(0)]
        self._tapes: list[Tape] = []
        self._released = False

    @property
    def bytes(self) -> int:
        return sum(arena.bytes for arena in self._arenas)

    def capture(self, job: Job) -> Tape:
        """Raises CannotCapture."""
        if self._released:
            raise CannotCapture("the session is released")
        inputs = tuple(tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in job.inputs)
        with capture_window():
            recording = record(dataclasses.replace(job, inputs=inputs))
        tape = self._bound(recording, job)
        self._tapes.append(tape)
        return tape

    def release(self) -> None:
        """Give up all tapes and their memory. They are not replayed any more."""
        self._released = True
        for tape in self._tapes:
            tape.release()
        self._tapes, self._arenas = [], []

    def _bound(self, recording: Recording, job: Job) -> Tape:
        planned = plan(recording, job.shares)
        arena = next((arena for arena in self._arenas if arena.bytes >= planned.bytes), None)
        if arena is None:
            arena = Arena(planned.bytes)
            self._arenas.append(arena)
        return bind(planned, arena, job.label)
