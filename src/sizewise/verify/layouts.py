"""Whether every piece is handed what it was compiled for.

Compiled pieces carry no assertions on their inputs (they would cost a tenth of a small piece). The same
conditions are checked here instead, on every value that goes from piece to piece, at every probe size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..caller import BuiltProgram
from ..errors import build as errors
from ..program import Variant, load_caller
from ..split import Piece
from ..traced import SizeFunction


def with_layout_checks(program: BuiltProgram) -> BuiltProgram:
    """The same program with a check in front of every piece."""
    variants = []
    for variant in program.variants:
        checks = [
            _checked(program, piece, backend.range_entries[variant.sizes].runnable)
            for piece, backend in zip(program.pieces, program.backends, strict=True)
        ]
        variants.append(Variant(variant.sizes, load_caller(program.source, program.scope, checks, "checked")))
    return replace(program, variants=variants)


def _checked(program: BuiltProgram, piece: Piece, runnable: Callable[[list[Any]], Sequence[Any]]) -> Any:
    symbols = program.traced.symbols
    holders = [node for node in piece.graph.graph.nodes if node.op == "placeholder"]
    expected: list[Any] = []
    for node in holders:
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            shape = tuple(_function(size, symbols) for size in value.shape)
            stride = tuple(_function(step, symbols) for step in value.stride())
            expected.append((node.name, shape, stride))
        else:
            expected.append(None)
    sizes_at = {
        index: symbols.function(node.meta["example_value"])
        for index, node in enumerate(holders)
        if expected[index] is None
    }

    def run(inputs: list[Any]) -> Sequence[Any]:
        sizes = _sizes(inputs, expected, sizes_at)
        for item, tensor in zip(expected, inputs, strict=True):
            if item is not None:
                _compare(program, piece, item, tensor, sizes)
        return runnable(inputs)

    return run


def _function(value: Any, symbols: Any) -> int | SizeFunction:
    return value if isinstance(value, int) else symbols.function(value)


def _sizes(inputs: list[Any], expected: list[Any], sizes_at: Mapping[int, SizeFunction]) -> dict[str, int]:
    """The dims' sizes, from size inputs and from axes that are a dim by itself."""
    sizes: dict[str, int] = {f.dims[0]: inputs[i] for i, f in sizes_at.items() if f.source in f.dims}
    for item, tensor in zip(expected, inputs, strict=True):
        for wanted, seen in zip(item[1], tensor.shape, strict=True) if item is not None else ():
            if isinstance(wanted, SizeFunction) and wanted.source in wanted.dims:
                sizes.setdefault(wanted.source, seen)
    return sizes


def _compare(program: BuiltProgram, piece: Piece, item: Any, tensor: torch.Tensor, sizes: Mapping[str, int]) -> None:
    name, shape, stride = item
    shape = tuple(_value(size, sizes, seen) for size, seen in zip(shape, tensor.shape, strict=True))
    stride = tuple(_value(step, sizes, seen) for step, seen in zip(stride, tensor.stride(), strict=True))
    # The stride of an axis with one entry means nothing.
    same_stride = all(a == b or size <= 1 for a, b, size in zip(stride, tensor.stride(), shape, strict=True))
    if shape != tuple(tensor.shape) or (not same_stride and tensor.numel()):
        raise errors.PieceLayout(
            owner=program.traced.owner,
            piece=piece.index,
            input=name,
            wanted_shape=shape,
            wanted_stride=stride,
            seen_shape=tuple(tensor.shape),
            seen_stride=tensor.stride(),
            sizes=", ".join(f"{key}={size}" for key, size in sizes.items()),
        )


def _value(wanted: int | SizeFunction, sizes: Mapping[str, int], seen: int) -> int:
    if isinstance(wanted, int):
        return wanted
    # A dim that no input shows by itself cannot be checked in this piece.
    return int(wanted(sizes)) if all(name in sizes for name in wanted.dims) else seen
