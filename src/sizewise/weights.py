"""The module's tensors a program reads: bound by where they live, fetched at every call.

A program takes parameters as inputs, so loading in place needs nothing. A parameter that was replaced,
or whose data was, is noticed at the next call: it is used when it has the layout the program was
built for, and refused by name when it has not.

All of it is one question to the C++ extension. What it cannot tell, and what it says has changed, is compared here.

Private API: ``torch._C._dynamo.guards.TensorGuards``, which compares class, dtype, device, shape and strides of
many tensors in one call. Checked on torch 2.13.0. Without it the same is compared in Python, slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import nn

from .errors import state as errors
from .errors import trace as trace_errors
from .native import MISSING, Places, watch
from .traced import GraphInput, SourcePath
from .traced.paths import module_path

Check = Callable[..., bool]


def _layout(tensor: Any) -> tuple[Any, ...]:
    # Without gradients a Parameter is a tensor; torch.func.functional_call puts tensors in their places.
    kind = torch.Tensor if type(tensor) is nn.Parameter else type(tensor)
    bits = "negative" * tensor.is_neg() + "conjugate" * tensor.is_conj()
    # A sparse tensor has no strides.
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided else str(tensor.layout)
    return kind, tuple(tensor.shape), strides, tensor.dtype, tensor.device, bits


class WeightBinding:
    """Fetches the tensors of ``module`` that ``inputs`` name, in that order.

    Raises:
        UnboundInput (SW218): a tensor that lives in no dict or list of the module.
    """

    def __init__(self, module: nn.Module, inputs: Sequence[GraphInput], owner: str, writes: bool = False) -> None:
        """``writes``: whether the program writes to them; which of them share memory then has to stay."""
        self.owner = owner
        self.paths = [item.path for item in inputs]
        places = [_place(module, item, owner) for item in inputs]
        self._containers = [container for container, _ in places]
        self._keys = [key for _, key in places]
        self._hiding = [place for item in inputs if (place := _hiding_place(module, item)) is not None]
        tensors: list[Any] = list(map(getitem, self._containers, self._keys))
        self._layouts = [_layout(tensor) for tensor in tensors]
        self._writes = writes
        self._repeated = _repeats(tensors)
        self.memory = [memory_of(tensor) for tensor in tensors]
        self._shared = _overlaps(self.memory) if writes else frozenset()
        self._known = self._checks(tensors)

    def __len__(self) -> int:
        return len(self._keys)

    def layouts(self) -> list[tuple[Any, ...]]:
        """(class, shape, strides, dtype, device) of each tensor as it was bound, and which tensor before it it is."""
        return [(*layout, first) for layout, first in zip(self._layouts, self._repeated, strict=True)]

    def _checks(self, tensors: list[Any]) -> tuple[list[Any], Check, Check | None]:
        """``tensors`` with what says that nothing of them changed: their layouts, and all there is to say."""
        items: list[tuple[Any, Any, Any]] = list(zip(self._containers, self._keys, tensors, strict=True))
        items += [(own, name, MISSING) for own, name in self._hiding]
        places = Places(items=items, tensors=tensors)
        return tensors, _same_layouts(tensors, self._layouts), watch(places) if tensors else None

    def fetch(self) -> list[Any]:
        """The tensors as they are now.

        Where there is the C++ extension, it is the same list for as long as nothing of them but their values changes.

        Raises:
            Stale (SW503): a tensor has another shape, stride, dtype, device or class than at warm-up.
        """
        known, same_layouts, unchanged = self._known
        if unchanged is not None and unchanged():
            return known
        try:
            tensors: list[Any] = list(map(getitem, self._containers, self._keys))
            # List equality takes identical items as equal without asking them; a replaced tensor
            # either differs, or raises because its comparison is no single bool. What an assignment
            # to `.data` changes of the identical tensor, the second check sees.
            hidden = any(name in own for own, name in self._hiding)
            if unchanged is None and not hidden and tensors == known and same_layouts(*tensors):
                return tensors
        except Exception:
            tensors = self._fetch_slowly()
        self._accept(tensors)
        return tensors

    def _fetch_slowly(self) -> list[Any]:
        found = []
        for container, key, path in zip(self._containers, self._keys, self.paths, strict=True):
            try:
                found.append(container[key])
            except (KeyError, IndexError):
                raise errors.Stale(owner=self.owner, what=f"{path} was removed") from None
        return found

    def _accept(self, tensors: list[Any]) -> None:
        for own, name in self._hiding:
            if name in own:
                what = f"an attribute {name!r} in a module's __dict__, not there at warm-up, hides its tensor {name!r}"
                raise errors.Stale(owner=self.owner, what=what)
        # Of tensors of other layouts torch's own guards end the process.
        plain = all(isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided for tensor in tensors)
        # Before they are looked at: what changes meanwhile shows in these checks.
        known = self._checks(tensors) if plain else self._known
        for path, tensor, layout in zip(self.paths, tensors, self._layouts, strict=True):
            if not isinstance(tensor, torch.Tensor) or _layout(tensor) != layout:
                raise errors.Stale(owner=self.owner, what=_change(path, layout, tensor))
        if _repeats(tensors) != self._repeated:
            raise errors.Stale(owner=self.owner, what="tensors are tied to one another otherwise than at warm-up")
        memory = [memory_of(tensor) for tensor in tensors]
        if self._writes and _overlaps(memory) != self._shared:
            raise errors.Stale(owner=self.owner, what="tensors that it writes share memory otherwise than at warm-up")
        self.memory = memory
        self._known = known


def _change(path: str, layout: tuple[Any, ...], tensor: Any) -> str:
    """What differs between a tensor and the layout it had."""
    if not isinstance(tensor, torch.Tensor):
        return f"{path} was a tensor at warm-up and is a {type(tensor).__name__} now"
    names = ("class", "shape", "strides", "dtype", "device", "bit")
    pairs = zip(names, layout, _layout(tensor), strict=True)
    differing = [(name, was, seen) for name, was, seen in pairs if was != seen]
    was = ", ".join(f"{name} {first}" for name, first, _ in differing)
    seen = ", ".join(f"{name} {second}" for name, _, second in differing)
    return f"{path} had {was} at warm-up and has {seen} now"


def _repeats(tensors: list[Any]) -> list[int]:
    """For each tensor the place where it, the same object, comes first."""
    first: dict[int, int] = {}
    return [first.setdefault(id(tensor), index) for index, tensor in enumerate(tensors)]


Memory = tuple[int, int]
"""First address and the address behind the last, of a whole storage."""


def memory_of(tensor: torch.Tensor) -> Memory:
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def overlap(first: Memory, second: Memory) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def _overlaps(memory: list[Memory]) -> frozenset[tuple[int, int]]:
    """The pairs that share memory."""
    order = sorted(range(len(memory)), key=memory.__getitem__)
    pairs = set()
    for place, index in enumerate(order):
        for other in order[place + 1 :]:
            if memory[other][0] >= memory[index][1]:
                break
            pairs.add((min(index, other), max(index, other)))
    return frozenset(pairs)


def _same_layouts(tensors: list[Any], layouts: list[tuple[Any, ...]]) -> Check:
    """A function that says whether tensors, given as arguments, have these layouts."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    kind = getattr(guards, "TensorGuards", None)
    if kind is not None and tensors:
        # Gradients are off in every call, so they are off where the check is made.
        with torch.no_grad():
            check: Check = kind(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check
    return lambda *seen: [_layout(tensor) for tensor in seen] == layouts


def _place(module: nn.Module, item: GraphInput, owner: str) -> tuple[Any, Any]:
    """The dict or list that holds a tensor, and its key there."""
    value: Any = SourcePath("local", "", item.steps[:-1]).fetch(module)
    kind, key = item.steps[-1]
    if kind == "attr":
        holder = vars(value) if hasattr(value, "__dict__") else {}
        for registry in ("_parameters", "_buffers"):
            if key in holder.get(registry, {}):
                return holder[registry], key
        value = holder
    found = value[key] if _has(value, key) else None
    if not isinstance(found, torch.Tensor):
        raise trace_errors.UnboundInput(owner=owner, source=f"self.{module_path(item.steps)}")
    return value, key


def _hiding_place(module: nn.Module, item: GraphInput) -> tuple[dict[str, Any], str] | None:
    """The dict of a module's attributes, and the name of its tensor, which is not to be there: it would come first."""
    registries = ("_parameters", "_buffers")
    *above, (_, key) = item.steps
    if above and above[-1][1] in registries:  # read from the registry itself, as Dynamo's sources are
        above.pop()
    value: Any = SourcePath("local", "", tuple(above)).fetch(module)
    own = vars(value) if isinstance(value, nn.Module) else {}
    is_registered = any(key in own.get(registry, {}) for registry in registries)
    return (own, key) if is_registered and key not in own else None


def _has(container: Any, key: Any) -> bool:
    if isinstance(container, (list, tuple)):
        return isinstance(key, int) and key < len(container)
    # The attributes of a class come as a read-only mapping.
    return isinstance(container, Mapping) and key in container


def named_tensor(module: nn.Module, name: str) -> GraphInput:
    """A parameter or buffer by its dotted name, as an input that is returned but not computed with."""
    *owners, last = name.split(".")
    steps: list[tuple[str, Any]] = []
    value = module
    for part in owners:
        steps += [("attr", "_modules"), ("item", part)]
        value = value._modules[part]
    registry = "_parameters" if last in value._parameters else "_buffers"
    steps += [("attr", registry), ("item", last)]
    return GraphInput("parameter" if registry == "_parameters" else "buffer", name, name, tuple(steps))
