"""Places: where a value was read, as (container, key), each kept once and joined into groups."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ..calls import CONSTANT_TYPES
from ..traced.registries import REGISTRIES
from .groups import (
    AbsentGroup,
    ChildrenGroup,
    EnvironmentGroup,
    ExactGroup,
    Group,
    HooksGroup,
    IdentityGroup,
    KeysGroup,
    OwnersGroup,
    attribute_group,
    flags_group,
    item_group,
    length_group,
)

Place = tuple[Any, Any, str]
"""Container, key, and what a message calls it."""


class Places:
    """Collects places, each once, and makes groups of them."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, Any], Place] = {}
        self._attributes: dict[tuple[int, str], Place] = {}
        self._lengths: dict[int, tuple[Any, str]] = {}
        self._hooks: dict[int, tuple[Any, str]] = {}
        self._keys: dict[int, tuple[Any, str]] = {}
        self._absent: dict[tuple[int, str], Place] = {}
        self._owners: dict[int, tuple[Any, str]] = {}
        self._environment = False
        self._flags: list[Place] = []

    def value(self, parent: Any, kind: str, key: Any, label: str, owner: str = "") -> None:
        """What ``parent`` has at ``key``; ``owner`` is what a message calls ``parent``."""
        if kind == "item":
            if not isinstance(parent, tuple):
                self._items.setdefault((id(parent), key), (parent, key, label))
            return
        own = _own_container(parent, key)
        holder = None if own is not None else _defining_class(parent, key)
        if own is not None:
            self._items.setdefault((id(own), key), (own, key, label))
            if own is getattr(parent, "__dict__", None):
                self._own(parent, owner)
        elif holder is not None:
            # By the class: its __dict__ is another view at every access.
            self._items.setdefault((id(holder), key), (holder.__dict__, key, label))
            self.unshadowed(itertools.takewhile(lambda cls: cls is not holder, _classes(parent)), key)
        else:
            getattr(parent, key)  # raises now, with its place, and not when all are read
            self._attributes.setdefault((id(parent), key), (parent, key, label))

    def unshadowed(self, classes: Iterable[type], name: str) -> None:
        """A class attribute is what the first class has that has it: none of these may get one."""
        for cls in classes:
            self._absent.setdefault((id(cls), name), (cls.__dict__, name, f"the class {cls.__name__}"))

    def length(self, value: Any, label: str) -> None:
        if isinstance(value, (set, frozenset)):
            self.keys(value, label)  # who asks for its length may go through it
        elif not isinstance(value, (tuple, str)):
            self._lengths.setdefault(id(value), (value, label))

    def entries(self, value: Any, label: str) -> None:
        """All entries of a dict: their number, their keys and their values."""
        self.length(value, label)
        for key in value:
            self.value(value, "item", key, label)

    def contents(self, value: Any, label: str) -> None:
        """Everything in a container that is returned, and in the containers in it."""
        if isinstance(value, (list, tuple)):
            self.length(value, label)
            items = list(enumerate(value))
        elif isinstance(value, dict):
            self.keys(value, label)
            items = list(value.items())
        elif isinstance(value, (set, frozenset)):
            return self.keys(value, label)
        else:
            return None
        for key, item in items:
            self.value(value, "item", key, f"{label}[{key!r}]")
            self.contents(item, f"{label}[{key!r}]")
        return None

    def attributes(self, value: Any, label: str) -> None:
        """Which attributes an object has of its own, and those that are plain values."""
        if type(getattr(value, "__dict__", None)) is not dict:
            return
        self.keys(vars(value), f"the attributes of {label}")
        for name, item in vars(value).items():
            if isinstance(item, CONSTANT_TYPES):
                self.value(value, "attr", name, f"{label}.{name}", label)

    def flags(self, module: nn.Module) -> None:
        """Which parameters require grad."""
        for name, part in module.named_modules():
            for key in part._parameters:
                self._flags.append((part._parameters, key, f"{name}.{key}" if name else key))

    def hooks(self, value: Any, label: str) -> None:
        self._hooks.setdefault(id(value), (value, label))

    def keys(self, value: Any, label: str) -> None:
        self._keys.setdefault(id(value), (value, label))

    def owner(self, value: Any, attribute: str, label: str) -> None:
        """``value`` has no ``attribute`` of its own, and is of its class."""
        if attribute and attribute not in vars(value):
            self._absent.setdefault((id(vars(value)), attribute), (vars(value), attribute, label))
        self._own(value, label)

    def code(self, function: types.FunctionType) -> None:
        """The code of a function, which interactive reloaders replace in place."""
        self._attributes.setdefault((id(function), "__code__"), (function, "__code__", function.__qualname__))

    def member_code(self, cls: type, index: int, name: str) -> None:
        """The code of a method that ``cls`` has from the ``index``-th of its classes."""
        function = function_of(vars(cls.__mro__[index])[name])
        if function is not None:
            self.code(function)

    def hidden_by_none(self, cls: type, index: int, name: str) -> None:
        """``name`` was read from the ``index``-th of the classes: none before it may get it."""
        self.unshadowed(cls.__mro__[:index], name)

    def entry(self, value: Any, index: int, label: str) -> None:
        """The entry of a dict that is at a place in its order."""
        self.value(value, "item", list(value)[index], label)

    def environment(self) -> None:
        """``os.environ`` was read."""
        self._environment = True

    def _own(self, value: Any, label: str) -> None:
        # The dict of a Python module changes with every global that is set; its places stand for themselves.
        if not isinstance(value, types.ModuleType) and type(vars(value)) is dict:
            self._owners.setdefault(id(value), (value, label))

    def groups(self) -> list[Group]:
        owned = {id(vars(value)) for value, _ in self._owners.values()}
        inner = [place for place in self._items.values() if id(place[0]) in owned]
        outer = [place for place in self._items.values() if id(place[0]) not in owned]
        children, others = _children(outer)
        groups: list[Group] = [ChildrenGroup(children)] if children else []
        groups += _item_groups(others)
        if self._attributes:
            groups.append(attribute_group(list(self._attributes.values())))
        if self._lengths:
            groups.append(length_group(list(self._lengths.values())))
        if self._hooks:
            groups.append(HooksGroup(list(self._hooks.values())))
        if self._keys:
            groups.append(KeysGroup(list(self._keys.values())))
        inside, outside = _parted(self._absent.values(), owned)
        if outside:
            groups.append(AbsentGroup(outside))
        if self._owners:
            absent = [AbsentGroup(inside)] if inside else []
            groups.append(OwnersGroup(list(self._owners.values()), [*absent, *_item_groups(inner)]))
        if self._flags:
            groups.append(flags_group(self._flags))
        if self._environment:
            groups.append(EnvironmentGroup())
        return groups


def function_of(member: Any) -> types.FunctionType | None:
    """The plain function behind a member of a class."""
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    return member if isinstance(member, types.FunctionType) else None


def _parted(places: Iterable[Place], owned: set[int]) -> tuple[list[Place], list[Place]]:
    """The places in owned dicts, and the others."""
    parts: tuple[list[Place], list[Place]] = ([], [])
    for place in places:
        parts[id(place[0]) not in owned].append(place)
    return parts


def _item_groups(places: list[Place]) -> list[Group]:
    by_identity = [place for place in places if _equal_means_same(place[0][place[1]])]
    exact = [place for place in places if not _equal_means_same(place[0][place[1]])]
    return [item_group(part, kind) for part, kind in ((by_identity, IdentityGroup), (exact, ExactGroup)) if part]


def _children(items: list[Place]) -> tuple[list[Place], list[Place]]:
    """Places of submodules whose siblings are all kept as well, and the other places."""
    kept: dict[int, set[Any]] = {}
    for container, key, _ in items:
        kept.setdefault(id(container), set()).add(key)
    children: list[Place] = []
    others: list[Place] = []
    for place in items:
        container = place[0]
        whole = type(container) is dict and container.keys() == kept[id(container)]
        modules = whole and all(isinstance(value, nn.Module) for value in container.values())
        (children if modules else others).append(place)
    return children, others


def _own_container(parent: Any, name: str) -> Any:
    """The instance's dict or module registry that an attribute is in, or None."""
    own = getattr(parent, "__dict__", None)
    if isinstance(parent, type) or not isinstance(own, Mapping):
        return None
    if name in own:
        return own
    registries = [own.get(registry, {}) for registry in REGISTRIES] if isinstance(parent, nn.Module) else []
    return next((registry for registry in registries if name in registry), None)


def _defining_class(parent: Any, name: str) -> type | None:
    """The class that an attribute comes from; None where a descriptor computes it."""
    for cls in _classes(parent):
        if name in cls.__dict__:
            value = cls.__dict__[name]
            # What is bound anew at every access is kept as the class holds it.
            wrapped = isinstance(value, (classmethod, staticmethod))
            is_plain = not hasattr(type(value), "__get__") or callable(value) or wrapped
            return cls if is_plain else None
    return None


def _classes(parent: Any) -> Iterable[type]:
    return parent.__mro__ if isinstance(parent, type) else type(parent).__mro__


def _equal_means_same(value: Any) -> bool:
    """Whether nothing but the same thing equals ``value``. Not so for numbers: 1 == 1.0 == True."""
    if value is None or type(value) in (str, types.FunctionType, types.BuiltinFunctionType, types.ModuleType):
        return True
    return type(value).__eq__ in (object.__eq__, type.__eq__) and not isinstance(value, CONSTANT_TYPES)
