"""One eager run, written down: every operator with the tensors it took and gave, by number.

Private API: ``_cdata`` of storages, and ``StorageWeakRef`` and ``WeakTensorKeyDictionary``, which keep a number from
being given twice without keeping memory. Checked on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from . import operators
from .tags import Shape

READS_VALUES = frozenset(
    {"numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage", "_typed_storage"}
)
"""Methods of tensors that hand values out without calling an operator."""


@dataclass(frozen=True)
class Seen:
    """A tensor at one moment of a run. Numbers are given in the order of first appearance."""

    number: int
    storage: int
    shape: Shape
    dtype: torch.dtype
    layout: tuple[Any, ...]
    """Strides and offset in its storage."""


@dataclass(frozen=True)
class Outside:
    """A tensor that no operator of the run made: a weight, a constant."""

    seen: Seen
    value: torch.Tensor
    """Itself where it is the module's, else a copy of what it was when it was first used."""
    own: bool


@dataclass(frozen=True)
class Step:
    """One operator. ``args`` and ``kwargs`` have a `Seen` for each tensor; ``results`` are the tensors it gave."""

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Any, ...]
    after: Mapping[str, Seen]
    """The tensors that it wrote to, by argument, as they were afterwards."""


class Log(TorchDispatchMode):
    """Writes the steps of a run down while it is on."""

    supports_higher_order_operators = True

    def __init__(self, own_storages: frozenset[int]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.outside: dict[int, Outside] = {}
        self._own = own_storages
        self._numbers: WeakIdKeyDictionary = WeakTensorKeyDictionary()
        self._storages: dict[int, int] = {}
        self._held: list[StorageWeakRef] = []
        self._count = 0
        self.busy = False
        """Whether it is reading a tensor itself."""

    def give_number(self, tensor: torch.Tensor) -> Seen:
        """The tensor by its number; a new one if it has none."""
        if tensor not in self._numbers:
            self._numbers[tensor] = self._count
            self._count += 1
        return self._seen(tensor)

    def used(self, tensor: torch.Tensor) -> Seen:
        """A tensor as an argument: where no operator made it, it is from outside."""
        if tensor in self._numbers:
            return self._seen(tensor)
        seen = self.give_number(tensor)
        own = seen.storage < 0 or _storage_key(tensor) in self._own
        value = tensor if own else tensor.detach().clone()
        self.outside[seen.number] = Outside(seen, value, own)
        return seen

    def values_read(self, name: str, args: Sequence[Any]) -> None:
        """Write down that values were handed out beside all operators."""
        self.steps.append(Step(f"torch.Tensor.{name}", None, _mapped(self.used, tuple(args)), {}, (), {}))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        taken, named = _mapped(self.used, tuple(args)), _mapped(self.used, given)
        result = func(*args, **given)
        results = result if isinstance(result, (tuple, list)) else [result]
        flat: list[Any] = []
        for item in results:
            flat += item if isinstance(item, (tuple, list)) else [item]
        after = {}
        for index, name in operators.written(func):
            value = args[index] if index < len(args) else given.get(name)
            if isinstance(value, torch.Tensor):
                after[name] = self.give_number(value)
        seen = tuple(_mapped(self.give_number, flat))
        self.steps.append(Step(operators.full_name(func), func, taken, named, seen, after))
        return result

    def _seen(self, tensor: torch.Tensor) -> Seen:
        self.busy = True
        key = _storage_key(tensor)
        layout: tuple[Any, ...] = (str(tensor.layout),)
        if key is not None:
            layout = (tensor.stride(), tensor.storage_offset())
            if key not in self._storages:
                # The weak reference keeps the address from being given to another storage.
                self._held.append(StorageWeakRef(tensor.untyped_storage()))
                self._storages[key] = len(self._storages)
        storage = -1 if key is None else self._storages[key]
        self.busy = False
        return Seen(self._numbers[tensor], storage, tuple(tensor.shape), tensor.dtype, layout)


class ValueWatch(TorchFunctionMode):
    """Notices while it is on that values of tensors are handed to Python beside all operators."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in READS_VALUES and not self._log.busy and args and isinstance(args[0], torch.Tensor):
            self._log.values_read(name, args[:1])
        return func(*args, **(kwargs or {}))


def _storage_key(tensor: torch.Tensor) -> int | None:
    if tensor.layout != torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def storage_keys(tensors: Sequence[torch.Tensor]) -> frozenset[int]:
    """The storages of tensors that live as long as what is logged."""
    return frozenset(key for tensor in tensors if (key := _storage_key(tensor)) is not None)


def _mapped(number: Callable[[torch.Tensor], Seen], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return number(value)
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (tuple, list)):
        return tuple(_mapped(number, item) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(number, item) for key, item in value.items()}
    return value
