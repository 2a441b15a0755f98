"""Where a tensor's C++ object lies, and how many of its first bytes tell whether anything of the tensor changed.

Private API: the first member of a Python tensor is ``at::Tensor``, one pointer to ``c10::TensorImpl``, whose sizes (of
up to five axes), strides, offset, dtype, storage and dispatch keys lie in the object itself;
``torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr``; of ``torch._C._aoti``,
``unsafe_alloc_void_ptr_from_tensor`` and ``alloc_tensor_by_stealing_from_void_ptr``. Checked on torch 2.13.0 and
2.14.1. `found` tries each kind of change in the process, and is None where one does not show.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

AXES = 5
"""Sizes of tensors with more axes lie elsewhere."""
_BYTES = 208
_WORD = ctypes.sizeof(ctypes.c_void_p)


@dataclass(frozen=True)
class Layout:
    """``offset`` of the pointer in a Python tensor, bytes to compare, address of the function for a data pointer."""

    offset: int
    size: int
    data_pointer: int


@functools.cache
def found(extension: ModuleType) -> Layout | None:
    """What `Watch` and `Tape` of ``extension`` need to know about tensors, or None."""
    try:
        layout = _layout()
        return layout if _tells(extension, layout) else None
    except Exception:
        return None  # another torch or C library


def _layout() -> Layout:
    pointer = int(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)
    sample = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
    implementation = _implementation(sample)
    words = (ctypes.c_void_p * 6).from_address(id(sample))
    offset = list(words).index(implementation) * _WORD
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    return Layout(offset, min(_BYTES, usable(implementation)) // _WORD * _WORD, pointer)


def _implementation(tensor: torch.Tensor) -> int:
    aoti: Any = torch._C._aoti
    capsule = aoti.unsafe_alloc_void_ptr_from_tensor(tensor)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    value = ctypes.c_void_p.from_address(address(capsule, None)).value
    aoti.alloc_tensor_by_stealing_from_void_ptr(capsule)
    return int(value or 0)


def _tells(extension: ModuleType, layout: Layout) -> bool:
    """Whether each kind of change shows, and what is none does not."""
    with torch.no_grad(), torch.inference_mode(False):
        for change in _CHANGES:
            dtype = torch.complex64 if change is _conjugated else None
            tensor = torch.nn.Parameter(torch.ones(2, 2, dtype=dtype), requires_grad=False)
            watch = _watch(extension, tensor, layout)
            tensor.add_(1)
            if not watch.intact():
                return False
            change(tensor)
            if watch.intact():
                return False
    return True


def _watch(extension: ModuleType, tensor: torch.Tensor, layout: Layout) -> Any:
    return extension.Watch((), (), (), (), (tensor,), None, layout.offset, layout.size, layout.data_pointer)


def _replaced(tensor: torch.Tensor) -> None:
    tensor.data = torch.ones(2, 2)


def _transposed(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.t()


def _reshaped(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.view(4)


def _cut(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data[:1]


def _moved(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data[1:]


def _negated(tensor: torch.Tensor) -> None:
    tensor.data = torch._neg_view(tensor.data)


def _conjugated(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.conj()


def _of_integers(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data.view(torch.int32)


def _freed(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().resize_(0)


def _swapped(tensor: torch.Tensor) -> None:
    torch.utils.swap_tensors(tensor, torch.nn.Parameter(torch.ones(2, 2), requires_grad=False))


_CHANGES: tuple[Callable[[torch.Tensor], None], ...] = (
    _replaced,
    _transposed,
    _reshaped,
    _cut,
    _moved,
    _negated,
    _conjugated,
    _of_integers,
    _freed,
    _swapped,
)


def address(tensor: torch.Tensor, layout: Layout) -> int:
    """An ``AtenTensorHandle``: the address of the ``at::Tensor`` in a Python tensor, for as long as that is held."""
    return id(tensor) + layout.offset
