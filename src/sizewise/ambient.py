"""The state around a call that changes what a module computes, read in one place.

A program is built under one ambient state and serves only that one. Inference mode is not in it: the
same code runs in both, and tensors made inside belong to the caller's mode.

Private API: ``torch._C._len_torch_dispatch_stack``, ``torch._C._len_torch_function_stack``,
``torch._C._functorch.maybe_current_level``, ``torch.autograd.forward_ad._current_level``; what the public functions
call, ``torch._C._get_deterministic_algorithms`` and ``_get_float32_matmul_precision``. Checked on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as _forward_ad
from torch.utils._device import DeviceContext

NAMES = (
    "autocast",
    "the default dtype",
    "the default device",
    "deterministic algorithms",
    "float32 matmul precision",
    "the number of threads",
)

_THREADS = NAMES.index("the number of threads")

_autocast_enabled = torch.is_autocast_enabled
_threads = torch.get_num_threads
_dtype = torch.get_default_dtype
_deterministic = torch.are_deterministic_algorithms_enabled
_precision = torch.get_float32_matmul_precision
_READ = (_dtype, _deterministic, _precision, _threads)
_WRITE = (
    torch.set_default_dtype,
    torch.use_deterministic_algorithms,
    torch.set_float32_matmul_precision,
    torch.set_num_threads,
)


def default_device() -> Any:
    return torch.get_default_device()


def read(device_type: str) -> tuple[Any, ...]:
    """The ambient state for modules on ``device_type``, in the order of `NAMES`."""
    try:
        autocast = torch.get_autocast_dtype(device_type) if _autocast_enabled(device_type) else None
    except RuntimeError:
        autocast = None  # a device that has no autocast
    return autocast, _dtype(), _device_key(), _deterministic(), _precision(), _threads()


def _device_key() -> Any:
    # A default device is set by a torch function mode; without one it is the CPU, and asking is slow.
    return str(default_device()) if torch._C._len_torch_function_stack() else "cpu"


def how_to_set(name: str, value: Any, device_type: str) -> str:
    """What gives the setting ``name`` of `NAMES` this value, in words."""
    if name == "autocast":
        wanted = f"torch.autocast({device_type!r}, dtype={value})"
        return "call it outside torch.autocast" if value is None else f"call it under {wanted}"
    setters = {
        "the default dtype": f"torch.set_default_dtype({value})",
        "the default device": f"torch.set_default_device({value!r})",
        "deterministic algorithms": f"torch.use_deterministic_algorithms({value})",
        "float32 matmul precision": f"torch.set_float32_matmul_precision({value!r})",
        "the number of threads": f"torch.set_num_threads({value})",
    }
    return f"set it back with {setters[name]}"


def is_transformed() -> bool:
    """Whether a call is traced or transformed: by functorch, forward-mode gradients, or a mode of either kind."""
    return (
        bool(torch._C._len_torch_dispatch_stack())
        or torch._C._functorch.maybe_current_level() is not None
        or _forward_ad._current_level >= 0
        or (bool(torch._C._len_torch_function_stack()) and not _only_default_device())
    )


Question = tuple[Callable[..., Any], tuple[Any, ...], Any]


def questions(device_type: str, state: tuple[Any, ...]) -> tuple[list[Question], list[tuple[Any, str, Any]]] | None:
    """What `read` and `is_transformed` ask, with the answers where all is as in ``state`` and nothing is transformed.

    (function, its arguments, the answer), and (object, attribute, value). None where a default device was set.
    """
    autocast, dtype, device, deterministic, precision, threads = state
    if device != "cpu":
        return None
    asked: list[Question] = [
        (torch._C._len_torch_dispatch_stack, (), 0),
        (torch._C._len_torch_function_stack, (), 0),
        (torch._C._functorch.maybe_current_level, (), None),
        (_autocast_enabled, (device_type,), autocast is not None),
        (_dtype, (), dtype),
        (getattr(torch._C, "_get_deterministic_algorithms", _deterministic), (), deterministic),
        (getattr(torch._C, "_get_float32_matmul_precision", _precision), (), precision),
        (_threads, (), threads),
    ]
    if autocast is not None:
        asked.append((torch.get_autocast_dtype, (device_type,), autocast))
    return asked, [(_forward_ad, "_current_level", -1)]


def _only_default_device() -> bool:
    """Whether the torch function modes in force are nothing but a default device, which is part of the state."""
    modes = torch.overrides._get_current_function_mode_stack()
    return all(isinstance(mode, DeviceContext) for mode in modes)


def differences(seen: tuple[Any, ...], wanted: tuple[Any, ...]) -> list[tuple[str, Any, Any]]:
    """(name, seen, wanted) of every setting that differs."""
    return [(n, s, w) for n, s, w in zip(NAMES, seen, wanted, strict=True) if s != w]


def threads_of(state: tuple[Any, ...]) -> int:
    """The number of threads in what `read` gave."""
    return int(state[_THREADS])


def with_threads(state: tuple[Any, ...], threads: int) -> tuple[Any, ...]:
    """``state`` with another number of threads."""
    return (*state[:_THREADS], threads, *state[_THREADS + 1 :])


@contextmanager
def as_it_was(state: tuple[Any, ...], device_type: str) -> Iterator[None]:
    """Within, what `read` gave as ``state`` is set for this process; the default device stays as it is."""
    autocast, dtype, _, deterministic, precision, threads = state
    before = read(device_type)
    _set(dtype, deterministic, precision, threads)
    try:
        with torch.autocast(device_type, dtype=autocast, enabled=autocast is not None):
            yield
    finally:
        _set(before[1], *before[3:])


def _set(*state: Any) -> None:
    # Only what differs: torch imports its compilers to set one of them.
    for value, get, set_ in zip(state, _READ, _WRITE, strict=True):
        if get() != value:
            set_(value)
