"""What is captured where nothing, or not everything, was set. Imports neither torch nor pydantic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import config as errors
from .modes import CUDAGraphMode
from .sizes import CAPTURE_SIZES, CaptureSizes, check_within

Bounds = Mapping[str, tuple[int, int]]
"""Dim -> (min, max), in the order of declaration."""

Decode = Mapping[str, int]
"""Dim -> the size that all its decode batches have; a batch of other sizes is a mixed one."""

MOST = 16
"""Captures where no sizes were listed, over all dims together."""
BACKENDS = {"cpu": "tapes of kernel calls", "cuda": "CUDA graphs"}


def default_mode(dims: Bounds | None, device: str, backend: str) -> tuple[CUDAGraphMode, str]:
    """The mode where none was set, and why."""
    kind = device.split(":", maxsplit=1)[0]
    if kind not in BACKENDS:
        return CUDAGraphMode.NONE, f"nothing captures on {kind}"
    if kind == "cuda":
        return CUDAGraphMode.NONE, "CUDA graphs of compiled modules are written and not yet measured"
    if backend == "eager":
        return CUDAGraphMode.NONE, "pieces of backend 'eager' have no kernels to capture"
    if dims is not None and len(dims) > 1:
        return CUDAGraphMode.NONE, f"with several dims the sizes worth capturing have to be listed ({CAPTURE_SIZES})"
    return CUDAGraphMode.FULL, f"calls replay {BACKENDS[kind]}"


def default_sizes(dims: Bounds, decode: Decode | None = None, only: bool = False) -> CaptureSizes | None:
    """The sizes where none were listed: at most `MOST` over all dims; None without dims. Those of ``decode`` are among
    them, with ``only`` as the only ones of their dims."""
    if not dims:
        return None
    decode = decode or {}
    free = [name for name in dims if not (only and name in decode)]
    each = MOST if len(free) < 2 else max(2, int(MOST ** (1 / len(free)) + 1e-9))
    found = {}
    for name, (low, high) in dims.items():
        sizes = set(geometric_sizes(low, high, each)) if name in free else set()
        found[name] = sorted(sizes | ({decode[name]} if name in decode else set()))
    return found if len(dims) > 1 else next(iter(found.values()))


def is_decode(decode: Decode, sizes: Mapping[str, int]) -> bool:
    """Whether a batch of these sizes is a decode batch; none is where nothing is declared."""
    return bool(decode) and all(sizes.get(name) == size for name, size in decode.items())


def check_decode(decode: Any, dims: Bounds) -> None:
    """Raises DecodeDoesNotFit (SW145) where ``decode`` has no sizes of these dims."""
    names = ", ".join(map(repr, dims)) or "no dim"
    if not isinstance(decode, Mapping) or not decode:
        raise errors.DecodeDoesNotFit(decode=decode, why="it is no dict of sizes by dim", dims=names)
    for name, size in decode.items():
        if name not in dims:
            raise errors.DecodeDoesNotFit(decode=decode, why=f"there is no dim {name!r}", dims=names)
        low, high = dims[name]
        if type(size) is not int or not low <= size <= high:
            why = f"the dim {name!r} is an int from {low} to {high}"
            raise errors.DecodeDoesNotFit(decode=decode, why=why, dims=names)


def geometric_sizes(low: int, high: int, most: int = MOST) -> list[int]:
    """Sizes from ``low`` to ``high``, both included, dense where they are small: there a call is launch-bound."""
    powers = [1 << power for power in range(high.bit_length())]
    small, between = [3, 5, 6, 7], [power + power // 2 for power in powers if power > 4]
    # From most to least wanted; of powers the largest, which leave the widest gaps, first.
    order = [high, low, *reversed(powers), *small, *between]
    wanted = dict.fromkeys(size for size in order if low <= size <= high)
    return sorted(list(wanted)[:most])


def capture_points(sizes: CaptureSizes | None, dims: Bounds) -> Iterator[dict[str, int]]:
    """Every combination of sizes that ``sizes`` lists. Raises SW130, SW141."""
    if not dims:
        if sizes is not None:
            raise errors.CaptureSizesOfOtherDims(sizes=sizes, dims="no dim", todo=f"leave {CAPTURE_SIZES} out")
        yield {}
        return
    if sizes is None:
        sizes = default_sizes(dims)
    for point in _points(sizes, dims):
        for name, size in point.items():
            check_within(CAPTURE_SIZES, [size], name, *dims[name])
        yield point


def _points(sizes: Any, dims: Bounds) -> Iterator[dict[str, int]]:
    names = ", ".join(map(repr, dims))
    if isinstance(sizes, dict):
        if set(sizes) != set(dims):
            raise errors.CaptureSizesOfOtherDims(sizes=sizes, dims=names, todo=f"list sizes of each of {names}")
        for combination in itertools.product(*(sizes[name] for name in dims)):
            yield dict(zip(dims, combination, strict=True))
        return
    for size in sizes:
        point = size if isinstance(size, tuple) else (size,)
        if len(point) != len(dims):
            example = {name: [low, high] for name, (low, high) in dims.items()}
            todo = f"write {example}, or one number for each of {names}: {[tuple(low for low, _ in dims.values())]}"
            raise errors.CaptureSizesOfOtherDims(sizes=sizes, dims=names, todo=todo)
        yield dict(zip(dims, point, strict=True))
