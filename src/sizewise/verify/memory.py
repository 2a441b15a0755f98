"""How much memory a call takes, by the sizes in a trace; what is done where the machine has less.

Figures are bytes and estimates: tensors of the graph that are alive together, without what an operator needs inside.
Weights are there already and are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..dims import Dim
from ..errors import config as errors
from ..trace.graph import TracedGraph
from ..traced import SizeFunction
from .machine import allocation_failure, available
from .samples import sizes_in_words
from .state import in_words as first_line

SHARE = 0.8
"""The part of the available memory that a check may take."""
_COMPARISON = 48
"""Bytes per number that comparing two results takes: both in float64, and what is made on the way."""

Size = int | str
"""A number, or the source of a `SizeFunction`: the name of a dim, where it is no more than that."""


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the graph; it is alive from the node that makes it to the last one that reads it."""

    shape: tuple[Size, ...]
    itemsize: int
    first: int = 0
    last: int = 0


class Estimate:
    """What a call of a traced module takes, as a function of the sizes of its dims."""

    def __init__(self, traced: TracedGraph) -> None:
        self._traced = traced
        self._functions: dict[str, SizeFunction] = {}
        spec = traced.spec
        self._inputs = [
            _Tensor(_declared(leaf.value.shape, spec.get(leaf.path, {})), leaf.value.element_size())
            for leaf in traced.call.tensors()
        ]
        nodes = list(traced.graph.graph.nodes)
        self._made = list(self._tensors(nodes))
        self._outputs = [tensor for tensor in self._made if tensor.last == len(nodes) - 1]

    def serving(self, sizes: Mapping[str, int]) -> int:
        """One call: its arguments, what is made of them, and the result."""
        values = self._values(sizes)
        return _total(self._inputs, values) + self._peak(values)

    def checking(self, sizes: Mapping[str, int]) -> int:
        """The self-test at these sizes: copies of the arguments, eager's result beside the program's, both compared."""
        values = self._values(sizes)
        inputs, outputs = _total(self._inputs, values), _total(self._outputs, values)
        numbers = [_numel(tensor, values) for tensor in self._outputs]
        compared = outputs + _COMPARISON * max(numbers, default=0)
        drawn = 8 * max((_numel(tensor, values) for tensor in self._inputs), default=0)
        return max(inputs + drawn, 3 * inputs + outputs + max(self._peak(values), compared))

    def _peak(self, values: Mapping[str, int]) -> int:
        changes: dict[int, int] = {}
        for tensor in self._made:
            size = _numel(tensor, values) * tensor.itemsize
            changes[tensor.first] = changes.get(tensor.first, 0) + size
            changes[tensor.last + 1] = changes.get(tensor.last + 1, 0) - size
        alive = peak = 0
        for place in sorted(changes):
            alive += changes[place]
            peak = max(peak, alive)
        return peak

    def _tensors(self, nodes: Sequence[Any]) -> Iterator[_Tensor]:
        """What the graph allocates: of tensors that share memory, the first, alive as long as any of them."""
        places = {node: index for index, node in enumerate(nodes)}
        found: dict[int, _Tensor] = {}
        for index, node in enumerate(nodes):
            last = max((places[user] for user in node.users), default=index)
            for value in _tensors_in(node.meta.get("example_value")):
                key = value.untyped_storage()._cdata
                if node.op in ("placeholder", "get_attr"):
                    found.setdefault(key, _Tensor((0,), 0))
                    continue
                made = found.get(key) or _Tensor(tuple(map(self._size, value.shape)), value.element_size(), index)
                found[key] = _Tensor(made.shape, made.itemsize, made.first, max(made.last, last))
        return (tensor for tensor in found.values() if tensor.itemsize)

    def _size(self, value: Any) -> Size:
        if isinstance(value, int):
            return value
        function = self._traced.symbols.function(value)
        self._functions.setdefault(function.source, function)
        return function.source

    def _values(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Every size that depends on dims, computed once."""
        values = {source: max(0, int(function(sizes))) for source, function in self._functions.items()}
        return {**values, **sizes}


def _declared(shape: Sequence[int], axes: Mapping[int, Dim]) -> tuple[Size, ...]:
    return tuple(axes[axis].name if axis in axes else size for axis, size in enumerate(shape))


def _numel(tensor: _Tensor, values: Mapping[str, int]) -> int:
    return math.prod(size if isinstance(size, int) else values[size] for size in tensor.shape)


def _total(tensors: Sequence[_Tensor], values: Mapping[str, int]) -> int:
    return sum(_numel(tensor, values) * tensor.itemsize for tensor in tensors)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided:
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors_in(item)


def largest_fitting(
    dims: Mapping[str, Dim], upper: Mapping[str, int], fits: Callable[[dict[str, int]], bool]
) -> dict[str, int] | None:
    """The largest sizes up to ``upper`` for which ``fits(sizes)``, all dims lowered alike; None where none fit."""
    span = max((upper[name] - dim.min for name, dim in dims.items()), default=0)

    def lowered(step: int) -> dict[str, int]:
        return {name: dim.min + (upper[name] - dim.min) * step // max(span, 1) for name, dim in dims.items()}

    if not fits(lowered(0)):
        return None
    low, high = 0, span
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(lowered(middle)) else (low, middle - 1)
    return lowered(low)


def in_bytes(count: int) -> str:
    """A number of bytes as a person reads it: ``16.0 GB``."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(len(units) - 1, (len(str(count)) - 1) // 3)
    return f"{float(f'{count / 1000**power:.3g}'):g} {units[power]}"


class Budget:
    """What the self-test of one trace may take on this machine."""

    def __init__(self, traced: TracedGraph) -> None:
        self._traced = traced
        self._estimate = Estimate(traced)
        devices = {leaf.value.device.type for leaf in traced.call.tensors()}
        self._available = available("cuda" if "cuda" in devices else "cpu")

    def refuse_unservable(self, probes: Sequence[Mapping[str, int]]) -> None:
        """Raises NotEnoughMemory (SW140) where one call at the sizes of a probe takes more than there is."""
        for sizes in probes:
            if not self._fits(self._estimate.serving(sizes)):
                raise self._not_enough(sizes, self._estimate.serving(sizes), "")

    def checkable(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The sizes themselves, or the largest below them at which there is memory for the self-test; None for none."""
        dims = {name: dim for name, dim in self._traced.dims.items() if name in sizes}
        if self._fits(self._estimate.checking(sizes)):
            return dict(sizes)
        return largest_fitting(dims, sizes, lambda lower: self._fits(self._estimate.checking(lower)))

    def in_words(self, sizes: Mapping[str, int]) -> str:
        """Why there is no check at these sizes."""
        return f"that would take about {in_bytes(self._estimate.checking(sizes))} of memory, and {self._there_is()}"

    @contextmanager
    def named_failures(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """An allocation that fails in a trial at these sizes, as NotEnoughMemory (SW140) with its cause."""
        try:
            yield
        except Exception as problem:
            cause = allocation_failure(problem)
            if cause is None:
                raise
            words = f"; {first_line(cause)}"
            raise self._not_enough(sizes, self._estimate.checking(sizes), words) from cause

    def _fits(self, wanted: int) -> bool:
        return self._available is None or wanted <= SHARE * self._available

    def _there_is(self) -> str:
        if self._available is None:
            return "how much is free is not known"
        allowed, free = in_bytes(int(SHARE * self._available)), in_bytes(self._available)
        return f"{allowed} may be used, of {free} that are free"

    def _not_enough(self, sizes: Mapping[str, int], wanted: int, words: str) -> errors.NotEnoughMemory:
        return errors.NotEnoughMemory(
            owner=self._traced.owner,
            sizes=sizes_in_words(sizes),
            needed=in_bytes(wanted),
            available=self._there_is(),
            problem=words,
            todo=self._smaller(sizes),
        )

    def _smaller(self, sizes: Mapping[str, int]) -> str:
        """A declaration with a range that fits by a wide margin, to copy."""
        dims = self._traced.dims
        half = (self._available or 0) * SHARE / 2
        found = largest_fitting(dims, sizes, lambda lower: self._estimate.checking(lower) <= half)
        if found is None:
            return "free memory, or warm up on a machine with more: the smallest sizes do not fit either."
        lowered = {name: max(dims[name].min, _rounded(size)) for name, size in found.items() if size < sizes[name]}
        written = ", ".join(f'Dim("{name}", min={dims[name].min}, max={size})' for name, size in lowered.items())
        return f"declare the sizes that are really served: {written or 'smaller ones'}, say, can be checked here."


def _rounded(size: int) -> int:
    """A size cut to two digits."""
    step = 10 ** max(0, len(str(size)) - 2)
    return size // step * step
