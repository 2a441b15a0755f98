"""Operators that no CUDA graph can hold: those that wait for the device or whose result's size is data, and randomness.

Private API: ``torch.utils._python_dispatch.TorchDispatchMode``. Checked on torch 2.13.0 and 2.14.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .backend import CannotCapture, Job
from .window import Window, breach, replay_window


class Watch(TorchDispatchMode):
    """Refuses what `illegal` names; code that runs without the dispatcher, as generated kernels do, is not seen."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        what = illegal(func, args, kwargs or {})
        if what is not None:
            breach(what)
        return func(*args, **(kwargs or {}))


def illegal(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why a call cannot be captured, with the operator's name; None if it can be."""
    why = _why(func, args, kwargs)
    return None if why is None else f"{func} {why}"


def _why(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    name = func.name().partition(".")[0]
    if torch.Tag.data_dependent_output in func.tags:
        return "reads a value on the host, which waits for the device"
    if name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"):
        return "selects by a mask: how many elements there are depends on data" if _by_mask(func, args) else None
    if torch.Tag.dynamic_output_shape in func.tags:
        return "has a result whose size depends on data"
    if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, kwargs):
        return "draws random numbers"
    if name in ("aten::_to_copy", "aten::copy_") and _between_devices(args, kwargs):
        return "copies between devices, which waits for the device"
    return None


def _by_mask(func: Any, args: Sequence[Any]) -> bool:
    masks = any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    # Writing one value through a mask is a masked fill.
    return masks and not (len(args) > 2 and args[2].numel() == 1)


def _draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """False for a dropout that is turned off."""
    values = _arguments(func, args, kwargs)
    off = values.get("train") is False or values.get("training") is False
    return not off and values.get("dropout_p") != 0.0


def _arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    schema = func._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, args, strict=False)}
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return {**defaults, **given, **kwargs}


def _between_devices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    kinds = {value.device.type for value in args if isinstance(value, torch.Tensor)}
    target = kwargs.get("device")
    return len(kinds if target is None else kinds | {torch.device(target).type}) > 1


def illegal_operator(job: Job) -> str | None:
    """Run the call once more, to name the operator after a capture has failed without a name; None if none is found."""
    try:
        with replay_window() as window, torch.no_grad(), Watch():
            job.run(job.inputs)
    except CannotCapture as found:
        return str(found)
    except Exception:
        return None
    return window.broken


def unless_broken(window: Window) -> None:
    """Raises CannotCapture if something illegal happened in the window and its error was swallowed."""
    if window.broken is not None:
        raise CannotCapture(window.broken)
