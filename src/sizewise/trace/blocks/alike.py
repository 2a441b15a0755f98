"""Which blocks of a model are alike: the proof that needs no trace.

Two blocks are alike where everything that a forward can read is the same or has the same place: classes, parts,
parameters and buffers by shape, strides, dtype and device (and which of them are one tensor), plain attributes by
value, other objects by identity, and no hooks. Integers may differ: a layer's number is one. What the forward does with
those is found out while tracing.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..twin import REGISTRIES

SMALLEST = 3
"""Fewest blocks that are worth it: the first is traced, and with two the other costs no more than the marks."""

_PLAIN = (str, bytes, float, complex, bool, type(None), torch.dtype, torch.device, torch.layout, enum.Enum)
_HOOKS = tuple(name for name in REGISTRIES if "hook" in name)
_OWN = {*REGISTRIES, "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_state_dict_hooks"} | {
    "_state_dict_pre_hooks",
    "_is_full_backward_hook",
}
"""What a module's ``__dict__`` has that is compared in its own way, or that no forward reads."""


class NotAlike(Exception):
    """Blocks differ, or it cannot be shown that they do not. Internal: the model is then traced in full."""


@dataclass
class Pairs:
    """What in the first block stands for what in another one, by identity."""

    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    modules: dict[int, nn.Module] = field(default_factory=dict)
    back: dict[int, int] = field(default_factory=dict)
    """The same from the other block's side: nothing may stand for two things."""
    storages: dict[int, int] = field(default_factory=dict)
    numbers: set[tuple[str, str]] = field(default_factory=set)
    """(path of a part inside the block, attribute) of integers that differ."""


@dataclass
class Run:
    """Blocks of one container that are alike. ``path``: the container's; the first key is the one to trace."""

    path: str
    keys: list[str]
    pairs: dict[str, Pairs]
    numbers: set[tuple[str, str]]

    def name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def find_runs(module: nn.Module) -> list[Run]:
    """The runs of alike blocks in ``module``, outermost first; blocks inside a run's blocks are not looked at."""
    counts: dict[int, int] = {}
    for part in module.modules():
        for child in part._modules.values():
            counts[id(child)] = counts.get(id(child), 0) + 1
    places = _places_of_tensors(module)
    runs: list[Run] = []
    taken: list[str] = []
    for path, container in module.named_modules():
        # Parts of a block that happen to be equal (four projections of an attention) are no blocks.
        if not isinstance(container, (nn.ModuleList, nn.Sequential)) or any(_is_in(path, name) for name in taken):
            continue
        found = [run for run in _runs_in(container, path, counts, places) if len(run.keys) >= SMALLEST]
        runs += found
        taken += [run.name(key) for run in found for key in run.keys]
    return runs


def _is_in(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}.")


def _places_of_tensors(module: nn.Module) -> dict[int, int]:
    """In how many places of the module each tensor is, by where it begins in memory."""
    found: dict[int, int] = {}
    for part in module.modules():
        for tensor in _tensors_of(part):
            key = _memory(tensor)
            found[key] = found.get(key, 0) + 1
    return found


def _tensors_of(part: nn.Module) -> Iterator[torch.Tensor]:
    """The tensors of one module by itself: registered ones and plain attributes, in lists, tuples and dicts too."""
    waiting: list[Any] = [part._parameters, part._buffers, [v for k, v in vars(part).items() if k not in _OWN]]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif id(value) in seen:
            continue  # a container may hold itself
        seen.add(id(value))
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value


def _memory(tensor: torch.Tensor) -> int:
    plain = tensor.layout == torch.strided and not tensor.is_meta and tensor.numel()
    return tensor.data_ptr() if plain else id(tensor)


def _runs_in(container: nn.Module, path: str, counts: dict[int, int], places: dict[int, int]) -> Iterator[Run]:
    runs: list[Run] = []
    for key, block in container._modules.items():
        # A block with a forward of its own, or in two places, is called as it is.
        if (
            block is None
            or counts[id(block)] > 1
            or "forward" in vars(block)
            or not any(True for _ in block.parameters())
            # A tensor that is in other places too: which of them a trace read cannot be told from its graph.
            or any(places[_memory(tensor)] > 1 for part in block.modules() for tensor in _tensors_of(part))
        ):
            continue
        for run in runs:
            first = container._modules[run.keys[0]]
            try:
                pairs = pair(first, block)
            except Exception:
                continue  # not alike, or an attribute that cannot be compared at all
            run.keys.append(key)
            run.pairs[key] = pairs
            run.numbers |= pairs.numbers
            break
        else:
            runs.append(Run(path, [key], {}, set()))
    yield from runs


def pair(first: nn.Module, other: nn.Module) -> Pairs:
    """What stands for what in two alike blocks.

    Raises:
        NotAlike: with the first difference that was found.
    """
    pairs = Pairs()
    _pair_modules(first, other, "", pairs)
    return pairs


def _pair_modules(first: nn.Module, other: nn.Module, path: str, pairs: Pairs) -> None:
    if type(first) is not type(other):
        raise NotAlike(f"{path}: {type(first).__name__} and {type(other).__name__}")
    known = pairs.modules.get(id(first))
    if known is not None:
        _need(known is other, path, "shared parts")
        return
    pairs.modules[id(first)] = other
    _need(pairs.back.setdefault(id(other), id(first)) == id(first), path, "shared parts")
    ours, theirs = vars(first), vars(other)
    _need(ours.keys() == theirs.keys(), path, "attributes")
    custom = _reads_attributes_itself(first)
    for name in _HOOKS:
        _need(not ours.get(name) and not theirs.get(name), path, "hooks")
    for name in ("_parameters", "_buffers"):
        _need(list(ours[name]) == list(theirs[name]), path, name)
        for key, tensor in ours[name].items():
            _pair_values(tensor, theirs[name][key], f"{path}.{key}", pairs)
    for name in ours.keys() - _OWN:
        value, second = ours[name], theirs[name]
        if type(value) is int and type(second) is int:
            if value != second:
                # Only a plain read of the attribute is seen to be one of a number.
                _need(not custom, path, f"{name}, read by code of the class's own,")
                pairs.numbers.add((path, name))
        else:
            _pair_values(value, second, f"{path}.{name}", pairs)
    _need(list(first._modules) == list(other._modules), path, "parts")
    for key, part in first._modules.items():
        second = other._modules[key]
        _need((part is None) == (second is None), path, key)
        if part is not None and second is not None:
            _pair_modules(part, second, f"{path}.{key}" if path else key, pairs)


def _pair_values(value: Any, second: Any, path: str, pairs: Pairs) -> None:
    if isinstance(value, nn.Module):
        raise NotAlike(f"{path}: a module that is no part")
    if type(value) is not type(second):
        raise NotAlike(f"{path}: {type(value).__name__} and {type(second).__name__}")
    if isinstance(value, torch.Tensor):
        _pair_tensors(value, second, path, pairs)
    elif isinstance(value, (list, tuple)):
        _pair_attributes(value, second, path, pairs)
        _need(len(value) == len(second), path, "lengths")
        for index, item in enumerate(value):
            _pair_values(item, second[index], f"{path}[{index}]", pairs)
    elif isinstance(value, dict):
        _pair_attributes(value, second, path, pairs)
        _need(list(value) == list(second), path, "keys")
        for key, item in value.items():
            _pair_values(item, second[key], f"{path}[{key!r}]", pairs)
    elif isinstance(value, _PLAIN) or type(value) is int or isinstance(value, torch.Size):
        _need(repr(value) == repr(second), path, f"{value!r} and {second!r}")
    elif value is not second:
        _pair_objects(value, second, path, pairs)


def _held_by(value: Any) -> dict[str, Any]:
    """A dataclass's fields, which slots may hold, and its other attributes."""
    fields = {item.name: getattr(value, item.name, None) for item in dataclasses.fields(value)}
    return {**fields, **getattr(value, "__dict__", {})}


def _pair_attributes(value: Any, second: Any, path: str, pairs: Pairs) -> None:
    """What a tensor, or a container of a class of its own, has beside its contents."""
    ours, theirs = getattr(value, "__dict__", None), getattr(second, "__dict__", None)
    _need(bool(ours) == bool(theirs), path, "attributes of values")
    if ours and theirs:
        _pair_values(dict(ours), dict(theirs), f"{path}.__dict__", pairs)


def _reads_attributes_itself(module: nn.Module) -> bool:
    """Whether a class of the module's, beside nn.Module, has a say in how attributes are read."""
    own = [vars(cls) for cls in type(module).__mro__ if cls not in (nn.Module, object)]
    return any("__getattr__" in names or "__getattribute__" in names for names in own)


def _pair_objects(value: Any, second: Any, path: str, pairs: Pairs) -> None:
    """Two objects: bound methods of parts that stand for each other, partials and dataclasses by what they hold."""
    if isinstance(value, types.MethodType):
        owner = pairs.modules.get(id(value.__self__))
        _need(value.__func__ is second.__func__ and owner is second.__self__, path, "methods")
    elif isinstance(value, functools.partial):
        _need(value.func is second.func, path, "functions")
        _pair_values([value.args, value.keywords], [second.args, second.keywords], path, pairs)
    elif dataclasses.is_dataclass(value):
        _pair_values(_held_by(value), _held_by(second), path, pairs)
    elif isinstance(value, (set, frozenset)):
        _need(value == second, path, "members")
    else:
        raise NotAlike(f"{path}: two objects of class {type(value).__name__}")


def _pair_tensors(first: torch.Tensor, other: torch.Tensor, path: str, pairs: Pairs) -> None:
    known = pairs.tensors.get(id(first))
    _need(known is None or known is other, path, "shared tensors")
    pairs.tensors[id(first)] = other
    _need(pairs.back.setdefault(id(other), id(first)) == id(first), path, "shared tensors")
    for name in ("dtype", "device", "layout", "requires_grad", "shape"):
        _need(getattr(first, name) == getattr(other, name), path, f"{name} of tensors")
    _pair_attributes(first, other, path, pairs)
    if first.layout == torch.strided:
        _need(first.stride() == other.stride(), path, "strides")
        _need(first.storage_offset() == other.storage_offset(), path, "offsets")
        ours, theirs = first.untyped_storage()._cdata, other.untyped_storage()._cdata
        _need(pairs.storages.setdefault(ours, theirs) == theirs, path, "shared memory")
        _need(pairs.back.setdefault(theirs, ours) == ours, path, "shared memory")


def _need(holds: bool, path: str, what: str) -> None:
    if not holds:
        raise NotAlike(f"{path or 'the block'}: {what} differ")
