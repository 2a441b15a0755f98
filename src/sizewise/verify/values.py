"""Values to run a program with at a size: guesses, of which the first that it takes is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..calls import Call
from ..errors import build as errors
from ..program import Program
from .samples import resized, sample, sizes_in_words, tamer
from .state import ModuleState


class Run(NamedTuple):
    """One run of a program: its arguments, what it gave, and the module's state after it."""

    arguments: list[torch.Tensor]
    result: Any
    after: dict[str, torch.Tensor]


class Values:
    """Calls of a program at any size, made from ``example``; of zeros, where there is none (a loaded program)."""

    def __init__(self, program: Program, example: Call | None, weights: Sequence[torch.Tensor]) -> None:
        self._program, self._example, self._weights = program, example, weights
        self._generator = torch.Generator().manual_seed(0)

    def tame(self, sizes: Mapping[str, int]) -> Iterator[list[torch.Tensor]]:
        """Arguments of these sizes with the example's own values, the likeliest to be legal first."""
        return (self._arguments(call) for call in self._tame(sizes))

    def fresh(self, sizes: Mapping[str, int], state: ModuleState) -> Run:
        """With random values where the program takes them, or else the first of `tame`; ``state`` is put back.

        Raises what the program raises for the last that is tried.
        """
        return self._first(sizes, map(self._arguments, self._fresh(sizes)), state)

    def _arguments(self, call: Call) -> list[torch.Tensor]:
        values = call.tensor_values()
        return [values[path].contiguous() for path in self._program.arguments]

    def _tame(self, sizes: Mapping[str, int]) -> Iterator[Call]:
        traced = self._program.traced
        if self._example is not None:
            yield from tamer(self._example, traced.spec, sizes)
            return
        # No value is known, and 0 is what is written behind the values of a call as well.
        empty = resized(traced.call, traced.spec, sizes)
        yield empty.with_values({leaf.path: torch.zeros_like(leaf.value) for leaf in empty.tensors()})

    def _fresh(self, sizes: Mapping[str, int]) -> Iterator[Call]:
        traced = self._program.traced
        if self._example is not None:
            yield sample(self._example, traced.spec, sizes, self._generator)
        else:
            (zeros,) = self._tame(sizes)
            floats = {leaf.path: leaf.value for leaf in zeros.tensors() if leaf.value.is_floating_point()}
            yield zeros.with_values({path: self._noise(value) for path, value in floats.items()})
        yield from self._tame(sizes)

    def _noise(self, tensor: torch.Tensor) -> torch.Tensor:
        # Drawn in float32, which every generator can.
        return torch.randn(tensor.shape, generator=self._generator).to(tensor)

    def _first(self, sizes: Mapping[str, int], tried: Iterator[list[torch.Tensor]], state: ModuleState) -> Run:
        numbers = [sizes[name] for name in self._program.size_names]
        variant = self._program.variant_for(numbers[0] if numbers else None)
        problem: Exception | None = None
        for arguments in tried:
            try:
                result = variant.call(list(self._weights), *numbers, *arguments)
                return Run(arguments, result, state.current())
            except Exception as reason:
                problem = reason
            finally:
                state.restore()
        if problem is not None:
            raise problem
        owner, words = self._program.traced.owner, sizes_in_words(sizes)
        raise errors.ProgramFails(owner=owner, sizes=words, cause="there are no values to try it with", hint="")
