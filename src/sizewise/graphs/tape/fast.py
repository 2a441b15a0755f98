"""A tape in C++: the same calls, without the interpreter between them, and without its lock where it can be.

Kernels are called by their address, and matrix products by that of torch's C interface, which leaves out the dispatcher
(2.3 us of Python's ``torch.mm`` become 1.2 us on torch 2.13.0, for one row). Everything else is called as Python does.

Private API: ``OpOverload._op``; the symbols ``aoti_torch_cpu_mm_out``, ``_bmm_out`` and ``_addmm_out`` of libtorch_cpu;
kernels of Inductor's and of `compilers.kernels` under their names in the library they come from, which take pointers
and 64-bit numbers. Checked on torch 2.13.0 and 2.14.1. Where something is missing, Python makes that call.
"""

from __future__ import annotations

import ctypes
import functools
import os
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...native import address, current, found_layout
from ...native.layout import Layout
from .recorder import KERNEL, Step

CALL, BY_ADDRESS, THREE, ADDMM = range(4)
"""As in ``fast.cpp``."""
_MOST_ARGUMENTS = 64


def replay_of(steps: Sequence[Step], live: Callable[[Step], Callable[[], Any]]) -> Callable[[], None] | None:
    """A function that makes the calls of ``steps``, whose tensors lie where they will be; None without the extension.

    ``live`` gives a function for a step whose results are copied.
    """
    extension = current()
    layout = found_layout(extension) if extension is not None else None
    if extension is None or layout is None:
        return None
    made = [_call(live(step), (), {}) if step.results is not None else _step(step, layout) for step in steps]
    replay: Callable[[], None] = extension.Tape(tuple(made)).replay
    return replay


def _step(step: Step, layout: Layout) -> tuple[Any, ...]:
    usual = _call(step.run, step.args, step.kwargs)
    kernel = _kernel(step)
    if kernel is not None:
        values = tuple(value.data_ptr() if isinstance(value, torch.Tensor) else int(value) for value in step.args)
        return (BY_ADDRESS, kernel, values, *usual[3:])
    product = _product(step)
    if product is None:
        return usual
    kind, function, tensors, beta, alpha = product
    return (kind, function, tuple(address(tensor, layout) for tensor in tensors), beta, alpha, *usual[5:])


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    given = (*args, *kwargs.values())
    return CALL, 0, (), 0.0, 0.0, _direct(function), given, tuple(kwargs) or None


def _direct(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator without the function in Python around it, which only calls it, and takes 3 to 5 us for that."""
    if type(function) is torch._ops.OpOverload:
        found: Callable[..., Any] = getattr(function, "_op", function)
        return found
    return function


# -- kernels


def _kernel(step: Step) -> int | None:
    """The address of the kernel that a step calls, if that takes pointers and whole numbers."""
    function = step.run
    if not isinstance(function, types.BuiltinFunctionType) or not KERNEL.fullmatch(function.__name__) or step.kwargs:
        return None
    plain = all(type(value) is int or isinstance(value, torch.Tensor) for value in step.args)
    if not plain or len(step.args) > _MOST_ARGUMENTS:
        return None
    file = getattr(function.__self__, "__file__", None)
    library = _loaded(file) if file else None
    return _symbol(library, function.__name__) if library is not None else None


def _loaded(file: str) -> ctypes.CDLL | None:
    """A library that this process has loaded from ``file``, whatever lies there now."""
    mode = getattr(os, "RTLD_NOLOAD", None)
    if mode is None:
        return None
    try:
        return ctypes.CDLL(file, mode=os.RTLD_LAZY | mode)
    except OSError:
        return None


def _symbol(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


# -- matrix products

_PRODUCTS = {torch.mm: ("mm_out", THREE), torch.bmm: ("bmm_out", THREE), torch.addmm: ("addmm_out", ADDMM)}


def _product(step: Step) -> tuple[int, int, tuple[torch.Tensor, ...], float, float] | None:
    """(kind, address, tensors, beta, alpha) of a product into a given tensor."""
    name, kind = next((value for key, value in _PRODUCTS.items() if key is step.run), (None, CALL))
    factors = {"beta": 1, "alpha": 1} if kind == ADDMM else {}
    scalars = {key: step.kwargs.get(key, value) for key, value in factors.items()}
    tensors = (step.kwargs.get("out"), *step.args)
    known = {"out", *factors}
    if name is None or not step.kwargs.keys() <= known or len(tensors) != (4 if kind == ADDMM else 3):
        return None
    if not all(map(_is_plain, tensors)) or any(type(value) not in (int, float) for value in scalars.values()):
        return None
    library = _torch_library()
    function = _symbol(library, f"aoti_torch_cpu_{name}") if library is not None else None
    if function is None:
        return None
    return kind, function, tensors, float(scalars.get("beta", 0)), float(scalars.get("alpha", 0))


def _is_plain(tensor: Any) -> bool:
    """What the dispatcher would hand to the CPU's operator as it is."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and tensor.device.type == "cpu" and not (tensor.is_neg() or tensor.is_conj())


@functools.cache
def _torch_library() -> ctypes.CDLL | None:
    folder = Path(torch.__file__).parent / "lib"
    file = next((path for path in (folder / "libtorch_cpu.so", folder / "libtorch_cpu.dylib") if path.exists()), None)
    return _loaded(str(file)) if file is not None else None
