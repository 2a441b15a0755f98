"""The module's own tensors around a trial run: kept, compared, put back."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..traced.state import held_objects

_PLAIN = (type(None), bool, int, float, complex, str, bytes, types.FunctionType, types.MethodType, types.ModuleType)


class ModuleState:
    """Copies of a module's buffers, plain tensors and the ``parameters`` named, taken at construction.

    Other parameters are not copied, which would double the memory: `ParameterWatch` says which are written.
    """

    def __init__(self, module: nn.Module, parameters: frozenset[str] = frozenset()) -> None:
        self.module = module
        self._parameters = parameters
        self._kept = self.current()

    def current(self) -> dict[str, torch.Tensor]:
        """The tensors as they are now, copied."""
        return {name: own_copy(tensor) for name, tensor in self._tensors().items()}

    def changed(self) -> bool:
        """Whether a tensor differs from what was kept."""
        now = self._tensors()
        return any(name in now and not same_bits(now[name], kept) for name, kept in self._kept.items())

    def restore(self) -> None:
        """Write the kept values back, in place, where they differ."""
        for name, tensor in self._tensors().items():
            kept = self._kept.get(name)
            if kept is not None and not same_bits(tensor, kept):
                _write_back(tensor, kept)

    def _tensors(self) -> dict[str, torch.Tensor]:
        parameters = {name: tensor for name, tensor in self.module.named_parameters() if name in self._parameters}
        return {**_tensors(self.module), **parameters}


class NoState(ModuleState):
    """For a module that nothing writes to: there is nothing to keep."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def current(self) -> dict[str, torch.Tensor]:
        return {}

    def changed(self) -> bool:
        return False

    def restore(self) -> None:
        pass


class ParameterWatch(TorchDispatchMode):
    """Notices which parameters are written while it is on, and keeps each as it was before its first write."""

    supports_higher_order_operators = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._parameters = {
            tensor.untyped_storage()._cdata: (name, tensor)
            for name, tensor in module.named_parameters()
            if tensor.layout == torch.strided and not tensor.is_meta
        }
        self._kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    @property
    def written(self) -> list[str]:
        return list(self._kept)

    def restore(self) -> None:
        """Put back what was written."""
        for tensor, kept in self._kept.values():
            _write_back(tensor, kept)

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        # A higher-order operator has no schema; what it runs inside comes here by itself.
        if getattr(getattr(func, "_schema", None), "is_mutable", False):
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._keep(args[index] if index < len(args) else given.get(argument.name))
        return func(*args, **given)

    def _keep(self, written: Any) -> None:
        for tensor in written if isinstance(written, (tuple, list)) else [written]:
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                name, parameter = self._parameters.get(tensor.untyped_storage()._cdata, ("", None))
                if parameter is not None and name not in self._kept:
                    self._kept[name] = (parameter, own_copy(parameter))


def _write_back(tensor: torch.Tensor, kept: torch.Tensor) -> None:
    # A tensor made in inference mode is only written there.
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(kept)


_DEEP, _MANY = 8, 100_000
"""How far, and how much, of a persistent argument is looked through for tensors."""


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The module's buffers, the plain tensors in attributes of its parts and in lists and dicts there, and all tensors
    of its persistent arguments. Of other objects the tensors are not looked for: they may be a whole dataset's."""
    found = {name: buffer for name, buffer in module.named_buffers() if not buffer.is_meta}
    seen: set[int] = set()
    for path, part in module.named_modules():
        for name, value in list(vars(part).items()):
            if name not in ("_parameters", "_buffers", "_modules"):
                _collect(f"{path}.{name}", value, found, set(), 2)
    for index, value in held_objects(module).items():
        if isinstance(value, nn.Module):
            found |= {f"persistent.{index}.{name}": tensor for name, tensor in _tensors(value).items()}
        else:
            _collect(f"persistent.{index}", value, found, seen, _DEEP)
    return found


def _collect(path: str, value: Any, found: dict[str, torch.Tensor], seen: set[int], deep: int) -> None:
    if isinstance(value, torch.Tensor):
        if type(value) is torch.Tensor and not value.is_meta and value.layout == torch.strided:
            found[path] = value
        return
    if isinstance(value, (nn.Module, type, *_PLAIN)) or id(value) in seen or deep < 2 or len(seen) > _MANY:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        entries: Iterable[tuple[Any, Any]] = enumerate(value)
    elif isinstance(value, dict):
        entries = list(value.items())
    else:
        own = getattr(value, "__dict__", None) if deep > 2 else None
        entries = list(own.items()) if type(own) is dict else []
    for index, (name, entry) in enumerate(entries):
        # Of other keys the text may be anything, an error included.
        name = name if type(name) is str else index
        _collect(f"{path}.{name}", entry, found, seen, deep - 1)


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that a trial may write to."""
    return tensor.detach().clone()


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors hold the same values; NaN equals NaN."""
    return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())


def in_words(problem: BaseException | None) -> str:
    """An exception's class and the first line of its message."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else 'no message'}"
