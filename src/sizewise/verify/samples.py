"""Fresh inputs like an example: random where values are free, drawn from the example where they may not be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from ..calls import Call
from ..dims import Dim, DimSpec
from ..traced import Traced

if TYPE_CHECKING:
    from ..trace import TracedGraph

MANY_DIMS = 2
"""Dims up to which every combination of sizes is tried."""


def probe_sizes(dims: Mapping[str, Dim]) -> Iterator[dict[str, int]]:
    """Smallest, next and largest of every dim; all combinations for one or two dims."""
    choices = {name: sorted({dim.min, min(dim.min + 1, dim.max), dim.max}) for name, dim in dims.items()}
    if len(dims) <= MANY_DIMS:
        yield from (dict(zip(choices, sizes, strict=True)) for sizes in itertools.product(*choices.values()))
        return
    middle = {name: sizes[len(sizes) // 2] for name, sizes in choices.items()}
    yield {name: sizes[0] for name, sizes in choices.items()}
    yield {name: sizes[-1] for name, sizes in choices.items()}
    for name, sizes in choices.items():
        yield from ({**middle, name: size} for size in sizes)


SEARCHED = 4096
"""Points that are searched for critical sizes."""


def critical_sizes(traced: TracedGraph) -> list[dict[str, int]]:
    """Sizes at which a size computed in the graph becomes 0 or 1, one for each such size.

    A trace with unbacked symbols takes such a size for neither, whatever it is: where it is, broadcasting
    and squeezing may go another way than in eager mode.
    """
    found: dict[tuple[int, ...], dict[str, int]] = {}
    functions = {}
    for node in traced.graph.graph.nodes:
        value = node.meta.get("example_value")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                function = traced.symbols.function(size)
                if function.source not in function.dims:
                    functions[function.source] = function
    for function in functions.values():
        dims = [traced.dims[name] for name in function.dims]
        wanted = {0, 1}
        # `product` lists its ranges, and no more than the first of each are looked at.
        ranges = [range(dim.min, min(dim.max, dim.min + SEARCHED) + 1) for dim in dims]
        for point in itertools.islice(itertools.product(*ranges), SEARCHED):
            sizes = dict(zip(function.dims, point, strict=True))
            value = function(sizes)
            if value in wanted:
                wanted.discard(value)
                whole = {name: sizes.get(name, min(2, dim.max)) for name, dim in traced.dims.items()}
                whole = {name: max(size, traced.dims[name].min) for name, size in whole.items()}
                found.setdefault(tuple(whole.values()), whole)
    return list(found.values())


def in_range(traced: Traced, sizes: Mapping[str, int]) -> bool:
    """Whether ``traced`` is about these sizes: in its ranges, and equal where it found dims to be equal."""
    if any(name in traced.dims and size not in traced.dims[name] for name, size in sizes.items()):
        return False
    related = [assumption.relation for assumption in traced.assumptions if assumption.relation]
    return all(sizes[first] == sizes[second] for first, second in related)


def resized(call: Call, spec: DimSpec, sizes: Mapping[str, int]) -> Call:
    """The call's own values, cut or repeated to ``sizes``."""
    values = {}
    for leaf in call.tensors():
        tensor = leaf.value
        for axis, dim in spec.get(leaf.path, {}).items():
            tensor = _extended(tensor, axis, sizes[dim.name])
        values[leaf.path] = tensor.clone()
    return call.with_values(values)


def tamer(call: Call, spec: DimSpec, sizes: Mapping[str, int]) -> Iterator[Call]:
    """The call's own values cut or repeated to ``sizes``, and the same with every integer at the smallest of them."""
    example = resized(call, spec, sizes)
    yield example
    smallest = {
        leaf.path: torch.full_like(leaf.value, int(leaf.value.to(torch.int64).min()))
        for leaf in example.tensors()
        if not (leaf.value.is_floating_point() or leaf.value.is_complex()) and leaf.value.numel()
    }
    yield example.with_values({**{leaf.path: leaf.value for leaf in example.tensors()}, **smallest})


def sample(call: Call, spec: DimSpec, sizes: Mapping[str, int], generator: torch.Generator) -> Call:
    """The call at ``sizes`` with fresh values.

    Floats that take many values become normal numbers with the example's mean and spread. Of masks (two
    values, in rows) whole rows are redrawn. Everything else (ids, lengths, floats with few values) is
    redrawn from the example's own values, which are the only ones known to be legal.
    """
    values = {}
    for leaf in call.tensors():
        tensor = leaf.value
        mask = is_mask(tensor)
        axes = spec.get(leaf.path, {})
        for axis, dim in axes.items():
            if mask:
                tensor = _extended(tensor, axis, sizes[dim.name])
        shape = [sizes[axes[axis].name] if axis in axes else size for axis, size in enumerate(leaf.value.shape)]
        values[leaf.path] = _other_rows(tensor, generator) if mask else _redrawn(leaf.value, shape, generator)
    return call.with_values(values)


def is_mask(tensor: torch.Tensor) -> bool:
    """Few values in rows: where they stand in a row means something (padding is at one end, say)."""
    is_float = tensor.is_floating_point() or tensor.is_complex()
    return tensor.ndim >= 2 and not is_float and tensor.numel() > 0 and tensor.unique().numel() <= 2


def _extended(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """``tensor`` cut, or its last entry repeated, to ``size`` along ``axis``."""
    index = torch.arange(size, device=tensor.device).clamp(max=tensor.shape[axis] - 1)
    return tensor.index_select(axis, index)


def _other_rows(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole rows of ``tensor``, drawn with repeats."""
    index = torch.randint(tensor.shape[0], (tensor.shape[0],), generator=generator)
    return tensor.index_select(0, index.to(tensor.device))


def _redrawn(example: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if not example.numel():
        return example.new_zeros(shape)
    if example.is_complex():
        parts = [_redrawn(part(example), shape, generator) for part in (torch.real, torch.imag)]
        return torch.complex(*parts).to(example.dtype)
    if example.is_floating_point() and example.unique().numel() > 2 and bool(torch.isfinite(example).all()):
        wide = example.double()
        # In place: it may be large.
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        noise.mul_(float(wide.std()) or 1.0).add_(float(wide.mean()))
        return noise.to(device=example.device, dtype=example.dtype)
    flat = example.detach().reshape(-1)
    if example.unique().numel() == flat.numel():
        # Values that are all distinct may have to be (slots, positions): repeat none sooner than needed.
        order = torch.cat(
            [torch.randperm(flat.numel(), generator=generator) for _ in range(math.prod(shape) // flat.numel() + 1)]
        )
        index = order[: math.prod(shape)].reshape(shape)
    else:
        index = torch.randint(flat.numel(), shape, generator=generator)
    return flat[index.to(flat.device)].clone(memory_format=torch.contiguous_format)


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "the example's sizes"
