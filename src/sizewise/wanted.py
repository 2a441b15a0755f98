"""What is to be captured: from the settings of a module, or those that a bundle was saved with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .built import Built
from .config.captures import BACKENDS, Decode, capture_points, check_decode, default_mode, default_sizes, is_decode
from .config.modes import CUDAGraphMode, cudagraph_mode
from .config.sizes import CaptureSizes, checked_capture_sizes, default_capture_sizes
from .dims import dims_of
from .errors.state import BadOption

if TYPE_CHECKING:
    from .config.compilation import CompilationConfig
    from .config.resolve import Resolved


@dataclass(frozen=True)
class Wanted:
    """What is to be captured: sizes per dim, and whether the user listed them."""

    sizes: Sequence[Mapping[str, int]]
    listed: bool
    partial: bool
    pads: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    """Whether a size that no capture serves is refused."""
    lazy: bool = False
    """Whether sizes are captured when a call first needs them."""
    proof: bool = False
    """Whether dims are filled up only where that is proved."""
    mode: CUDAGraphMode = CUDAGraphMode.FULL
    decode: Decode = field(default_factory=dict)
    static: bool = False
    """Whether results are handed out without a copy."""
    warmups: int | None = None
    """Runs of each call before its capture; None is the backend's own number."""

    def mode_at(self, sizes: Mapping[str, int]) -> CUDAGraphMode:
        """How calls of these sizes are captured: FULL, PIECEWISE or NONE."""
        return self.mode.decode_mode() if is_decode(self.decode, sizes) else self.mode.mixed_mode()


def wanted(
    built: Built,
    config: CompilationConfig | None,
    pads: Mapping[str, Any],
    strict: bool = False,
    decode: Decode | None = None,
    static: bool = False,
) -> Wanted | None:
    """What to capture for ``built``, whose settings were ``config`` (None: the defaults); None for nothing.

    ``decode`` are the sizes by which decode batches are known; a bundle brings its own.

    Raises:
        BadOption (SW510): ``pads``, ``strict`` or ``static``, which ask for captures, where nothing is to be captured.
        ConfigError: as `CompilationConfig.resolve` raises it.
    """
    dims = {name: (dim.min, dim.max) for name, dim in dims_of(built.spec).items()}
    device, lazy = built.entries[0].device_type, False
    if built.resolved is not None:
        found = _settings(built.resolved)
    elif config is not None:
        found = _settings(config.resolve(dims=dims, device=device, decode=decode))
    elif not built.examples and built.saved_config:
        # A bundle serves as the one who saved it did; its settings are read without the config's class.
        decode, lazy = built.decode, not strict
        found = _saved_settings(built.saved_config, dims, device, decode)
    else:
        found = _Settings(default_mode(dims, device, "inductor")[0], None)
    if found.mode is None or found.mode is CUDAGraphMode.NONE:
        asked = {"pad_values": pads or None, "on_miss": strict and "error", "outputs": static and "static"}
        _refuse_without_captures(asked)
        return None
    _check_pads(built, pads)
    points, warmups = list(capture_points(found.sizes, dims)), _warmups(built, config)
    told = (decode or {}) if found.mode.decode_mode() is not found.mode.mixed_mode() else {}
    return Wanted(
        points, found.listed, found.partial, pads, strict, lazy, found.proof, found.mode, told, static, warmups
    )


def _warmups(built: Built, config: CompilationConfig | None) -> int | None:
    settings = built.resolved.config if built.resolved is not None else config
    saved = (built.saved_config or {}).get("cudagraph_num_of_warmups")
    return saved if settings is None else settings.cudagraph_num_of_warmups


class _Settings(NamedTuple):
    mode: CUDAGraphMode | None
    sizes: CaptureSizes | None
    listed: bool = False
    partial: bool = False
    proof: bool = False


def _saved_settings(
    saved: Mapping[str, Any], dims: Mapping[str, tuple[int, int]], device: str, decode: Decode | None
) -> _Settings:
    """The mode and the sizes of a config that was saved, whether it was resolved before or not."""
    mode = cudagraph_mode(saved.get("cudagraph_mode"))
    sizes = checked_capture_sizes(saved.get("cudagraph_capture_sizes"))
    largest = saved.get("max_cudagraph_capture_size")
    if sizes is None and largest is not None and len(dims) == 1:
        low = next(iter(dims.values()))[0]
        sizes = [size for size in default_capture_sizes(largest, also=[low, largest]) if size >= low]
    if mode is None and decode is not None:
        mode = CUDAGraphMode.FULL if saved.get("splitting_ops") == [] else CUDAGraphMode.FULL_AND_PIECEWISE
    elif mode is None:
        listed = sizes is not None and device in BACKENDS
        mode = CUDAGraphMode.FULL if listed else default_mode(dims, device, saved.get("backend", ""))[0]
    if decode is not None:
        check_decode(decode, dims)
        sizes = sizes or default_sizes(dims, decode, mode is CUDAGraphMode.FULL_DECODE_ONLY)
    return _Settings(mode, sizes, partial=True, proof=bool(saved.get("require_proof")))


def _refuse_without_captures(asked: Mapping[str, Any]) -> None:
    for option, seen in asked.items():
        if seen:
            todo = 'leave it out, or have sizes captured: cudagraph_mode="FULL"'
            raise BadOption(option=option, seen=seen, legal="left out, where nothing is captured", todo=todo)


def _check_pads(built: Built, pads: Mapping[str, Any]) -> None:
    known = sorted(path for path, axes in built.spec.items() if axes)
    for path in pads:
        if path not in known:
            todo = f"name arguments that have a dim: {', '.join(known) or 'there are none'}"
            raise BadOption(option="pad_values", seen=dict(pads), legal="numbers of arguments with a dim", todo=todo)
    for entry in built.entries:
        for leaf in entry.program.traced.call.tensors():
            if leaf.path in pads and not _holds(leaf.value.dtype, pads[leaf.path]):
                legal = f"a value that {leaf.path} can have, whose dtype is {leaf.value.dtype}"
                todo = "give a number that the dtype holds: a whole one for integers, 0 or 1 for bool"
                raise BadOption(option="pad_values", seen=dict(pads), legal=legal, todo=todo)


def _holds(dtype: torch.dtype, value: float) -> bool:
    """Whether the value stays what it is, but for rounding to a float."""
    if dtype == torch.bool:
        return value in (0, 1)
    if dtype.is_floating_point or dtype.is_complex:
        return value != value or abs(value) == math.inf or abs(value) <= torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max and value == int(value)


def _settings(resolved: Resolved) -> _Settings:
    config = resolved.config
    listed = resolved.sources["cudagraph_capture_sizes"] == "set" or config.max_cudagraph_capture_size is not None
    sizes, proof = config.cudagraph_capture_sizes, config.require_proof
    return _Settings(config.cudagraph_mode, sizes, listed, config.allow_partial, proof)
