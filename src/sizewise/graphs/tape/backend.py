"""The CPU's graph backend: each capture a tape, all of a session on one arena."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...monitor import validate_cudagraph_capturing_enabled
from ..backend import Job
from .recorder import record
from .tape import Arena, ArenaTooSmall, Tape, bind


class TapeBackend:
    """Records kernel calls where a GPU would capture them."""

    name = "tape"

    @contextmanager
    def session(self) -> Iterator[TapeSession]:
        validate_cudagraph_capturing_enabled()
        # What is made in inference mode could not be written by calls outside of it.
        with torch.inference_mode(False), torch.no_grad():
            yield TapeSession()


class TapeSession:
    """Tapes on one arena, which is as large as the first, and so the largest, needs."""

    def __init__(self) -> None:
        self._arenas = [Arena(0)]

    @property
    def bytes(self) -> int:
        return sum(arena.bytes for arena in self._arenas)

    def capture(self, job: Job) -> Tape:
        """Raises CannotCapture."""
        inputs = tuple(tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in job.inputs)
        recording, needed = record(dataclasses.replace(job, inputs=inputs)), 0
        for arena in self._arenas:
            try:
                return bind(recording, arena, job.label, job.shares)
            except ArenaTooSmall as problem:
                needed = problem.bytes
        self._arenas.append(Arena(needed))
        return bind(recording, self._arenas[-1], job.label, job.shares)
