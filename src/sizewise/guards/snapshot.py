"""What a trace took for granted about Python values, kept and compared at every call.

Each value is kept as a place, (container, key), so that a call compares a few lists with C loops instead
of walking the module. A place that changed is looked at once more, slowly, before the program is called
stale: an equal constant under a new object is no change.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ..calls import CONSTANT_TYPES
from ..errors import state as state_errors
from ..errors import trace as errors
from ..trace.dynamo import MODULE, GuardRecord, argument_path
from ..trace.graph import TracedGraph, module_path
from ..trace.sources import SourcePath
from .groups import (
    AbsentGroup,
    ChildrenGroup,
    ExactGroup,
    Group,
    HooksGroup,
    IdentityGroup,
    KeysGroup,
    attribute_group,
    item_group,
    length_group,
)
from .table import TREATMENT

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS_THAT_RUN = ("_forward_hooks", "_forward_pre_hooks")
_KEYS = {"DICT_CONTAINS", "DICT_NOT_CONTAINS", "DICT_KEYS_MATCH", "DICT_VERSION", "MAPPING_KEYS_CHECK"}
_MEMBERS = {"SET_CONTAINS", "SET_NOT_CONTAINS"}
_OWNERS = {"NOT_PRESENT_IN_GENERIC_DICT", "HASATTR"}


class Snapshot:
    """The values a traced program depends on, in the user's own module and in globals.

    Raises:
        UnclassifiedGuard (SW220): a guard whose kind or source is not known, or that cannot be kept.
    """

    def __init__(self, traced: TracedGraph, module: nn.Module, forward: Any = None) -> None:
        """``forward`` is what the module's forward was before it was replaced in place, if it was."""
        self.owner = traced.owner
        self._places = _Places()
        self._reader = _Reader(module, traced.scope, forward)
        for guard in traced.guards:
            self._add(guard, traced)
        self._keep_methods(module)
        for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
            self._places.hooks(getattr(nn.modules.module, name), "every module")
        self._groups = self._places.groups()
        # Bound once: this is asked at every call.
        self._questions = [group.intact for group in self._groups]

    def __len__(self) -> int:
        """How many values are compared at every call."""
        return sum(len(group) for group in self._groups)

    def constants(self) -> dict[str, str]:
        """The plain Python values among them, by name, as text: what goes into a program's key."""
        found: dict[str, str] = {}
        for group in self._groups:
            for label, value in zip(group.labels, group.known, strict=False):
                if isinstance(value, CONSTANT_TYPES) and not label.startswith("the global __"):
                    found[label] = f"{type(value).__name__} {value!r}"
        return found

    def check(self) -> None:
        """Compare every value.

        Raises:
            Stale (SW503): one has changed; its name is in the error.
        """
        for intact in self._questions:
            if not intact():
                return self._look_closer()
        return None

    def _look_closer(self) -> None:
        for group in self._groups:
            if not group.intact():
                change = group.find_change()
                if change is not None:
                    raise state_errors.Stale(owner=self.owner, what=change)

    def _add(self, guard: GuardRecord, traced: TracedGraph) -> None:
        treatment, why = TREATMENT.get(guard.kind, ("refused", "this kind of guard is not known"))
        if treatment == "refused":
            raise errors.UnclassifiedGuard(owner=self.owner, guard=guard.in_words, why=why)
        if guard.path is None:
            if treatment == "snapshot":
                why = f"its source is a {guard.source}"
                raise errors.UnclassifiedGuard(owner=self.owner, guard=guard.in_words, why=why)
            return
        if guard.path.root_kind == "local" and guard.path.root != MODULE:
            if argument_path(guard.path.root, traced.call) is None:
                raise errors.UnclassifiedGuard(owner=self.owner, guard=guard.in_words, why="it is on a local value")
            return  # arguments are compared by the entry check
        if treatment in ("snapshot", "entry", "implied"):
            try:
                self._keep(guard, guard.path, with_value=treatment == "snapshot")
                if guard.other is not None:
                    self._keep(guard, guard.other, with_value=True)
            except (AttributeError, KeyError, IndexError, TypeError) as problem:
                why = f"its value cannot be read again ({type(problem).__name__}: {problem})"
                raise errors.UnclassifiedGuard(owner=self.owner, guard=guard.in_words, why=why) from problem

    def _keep_methods(self, module: nn.Module) -> None:
        """The functions of the modules' classes: Dynamo guards the class, not what is in it.

        Of torch's and transformers' classes only ``forward`` is kept; nobody replaces the rest, and there is much.
        """
        methods = (types.FunctionType, classmethod, staticmethod)
        for leaf in {type(part) for part in module.modules()}:
            for cls in leaf.__mro__:
                if cls in (object, nn.Module):
                    continue
                package = cls.__module__.partition(".")[0]
                for name, member in vars(cls).items():
                    own = package not in ("torch", "transformers") and isinstance(member, methods)
                    if name == "forward" or (own and not name.startswith("__")):
                        self._places.value(leaf, "attr", name, f"{leaf.__name__}.{name}")

    def _keep(self, guard: GuardRecord, path: SourcePath, with_value: bool) -> None:
        for length in range(1, len(path.steps) + (1 if with_value else 0)):
            self._keep_step(SourcePath(path.root_kind, path.root, path.steps[:length]))
        if not with_value:
            return
        value = self._reader.fetch(path)
        label = _label(path)
        if guard.kind in _OWNERS:
            if hasattr(value, "__dict__"):
                self._places.owner(value, guard.attribute, label)
        elif guard.kind == "EMPTY_NN_MODULE_HOOKS_DICT":
            if path.steps[-1][1] in _HOOKS_THAT_RUN:
                self._places.hooks(value, _label(path.parent()))
        elif guard.kind in _KEYS or guard.kind in _MEMBERS:
            self._places.keys(value, label)
        elif guard.kind == "SEQUENCE_LENGTH" and hasattr(value, "__len__"):
            self._places.length(value, label)

    def _keep_step(self, path: SourcePath) -> None:
        """Keep the place of the last step of ``path``."""
        kind, key = path.steps[-1]
        parent = self._reader.fetch(path.parent())
        if kind == "attr" and isinstance(parent, nn.Module) and (key in _REGISTRIES or "_hooks" in key):
            # The dict itself is what the module is; its entries are kept, or counted where there are none.
            if key in _HOOKS_THAT_RUN and getattr(parent, key):
                self._places.entries(getattr(parent, key), f"the hooks of {_label(path.parent()) or 'the module'}")
            return
        if kind in ("dict", "type", "call"):
            return  # follows from the parent, which is kept
        if kind in ("key", "key_item"):
            self._places.keys(parent, _label(path.parent()))
            return
        if len(path.steps) >= 4 and path.steps[-2][0] == "dict" and path.steps[-4] == ("attr", "__mro__"):
            # Read from the n-th class of an object: no class before it may get the attribute.
            first = self._reader.fetch(SourcePath(path.root_kind, path.root, path.steps[:-4]))
            self._places.unshadowed(first.__mro__[: path.steps[-3][1]], key)
        self._places.value(parent, kind, key, _label(path))


class _Reader:
    """Fetches paths, each prefix once."""

    def __init__(self, module: nn.Module, scope: Mapping[str, Any], forward: Any) -> None:
        self._module = module
        self._scope = scope
        self._known: dict[tuple[str, str, tuple[Any, ...]], Any] = {}
        if forward is not None:
            self._known["local", MODULE, (("attr", "forward"),)] = forward

    def fetch(self, path: SourcePath) -> Any:
        key = (path.root_kind, path.root, path.steps)
        if key not in self._known:
            if path.steps:
                last = SourcePath("local", path.root, path.steps[-1:])
                self._known[key] = last.fetch(self.fetch(path.parent()))
            else:
                self._known[key] = self._root(path)
        return self._known[key]

    def _root(self, path: SourcePath) -> Any:
        if path.root_kind == "local":
            return self._module
        if path.root_kind == "module":
            import sys

            return sys.modules[path.root]
        return self._scope[path.root]


class _Places:
    """Collects places, each once, and makes groups of them."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, Any], tuple[Any, Any, str]] = {}
        self._attributes: dict[tuple[int, str], tuple[Any, str, str]] = {}
        self._lengths: dict[int, tuple[Any, str]] = {}
        self._hooks: dict[int, tuple[Any, str]] = {}
        self._keys: dict[int, tuple[Any, str]] = {}
        self._absent: dict[int, tuple[Any, str, set[str]]] = {}

    def value(self, parent: Any, kind: str, key: Any, label: str) -> None:
        if kind == "item":
            if not isinstance(parent, tuple):
                self._items.setdefault((id(parent), key), (parent, key, label))
            return
        own = _own_container(parent, key)
        holder = None if own is not None else _defining_class(parent, key)
        if own is not None:
            self._items.setdefault((id(own), key), (own, key, label))
        elif holder is not None:
            # By the class: its __dict__ is another view at every access.
            self._items.setdefault((id(holder), key), (holder.__dict__, key, label))
            self.unshadowed(itertools.takewhile(lambda cls: cls is not holder, _classes(parent)), key)
        else:
            self._attributes.setdefault((id(parent), key), (parent, key, label))

    def unshadowed(self, classes: Iterable[type], name: str) -> None:
        """A class attribute is what the first class has that has it: none of these may get one."""
        for cls in classes:
            entry = self._absent.setdefault(id(cls), (cls.__dict__, f"the class {cls.__name__}", set()))
            entry[2].add(name)

    def length(self, value: Any, label: str) -> None:
        if not isinstance(value, (tuple, str)):
            self._lengths.setdefault(id(value), (value, label))

    def entries(self, value: Any, label: str) -> None:
        """All entries of a dict: their number, their keys and their values."""
        self.length(value, label)
        for key in value:
            self.value(value, "item", key, label)

    def hooks(self, value: Any, label: str) -> None:
        self._hooks.setdefault(id(value), (value, label))

    def keys(self, value: Any, label: str) -> None:
        self._keys.setdefault(id(value), (value, label))

    def owner(self, value: Any, attribute: str, label: str) -> None:
        entry = self._absent.setdefault(id(value), (value.__dict__, label, set()))
        if attribute and attribute not in value.__dict__:
            entry[2].add(attribute)

    def groups(self) -> list[Group]:
        groups: list[Group] = []
        children, others = self._children()
        if children:
            groups.append(ChildrenGroup(children))
        by_identity = [place for place in others if _equal_means_same(place[0][place[1]])]
        exact = [place for place in others if not _equal_means_same(place[0][place[1]])]
        for places, kind in ((by_identity, IdentityGroup), (exact, ExactGroup)):
            if places:
                groups.append(item_group(places, kind))
        if self._attributes:
            groups.append(attribute_group(list(self._attributes.values())))
        if self._lengths:
            groups.append(length_group(list(self._lengths.values())))
        if self._hooks:
            groups.append(HooksGroup(list(self._hooks.values())))
        if self._absent:
            groups.append(AbsentGroup(list(self._absent.values())))
        if self._keys:
            groups.append(KeysGroup(list(self._keys.values())))
        return groups

    def _children(self) -> tuple[list[tuple[Any, Any, str]], list[tuple[Any, Any, str]]]:
        """Places of submodules whose siblings are all kept as well, and the other places."""
        kept: dict[int, set[Any]] = {}
        for container, key, _ in self._items.values():
            kept.setdefault(id(container), set()).add(key)
        children: list[tuple[Any, Any, str]] = []
        others: list[tuple[Any, Any, str]] = []
        for place in self._items.values():
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
    registries = [own.get(registry, {}) for registry in _REGISTRIES] if isinstance(parent, nn.Module) else []
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


def _label(path: SourcePath) -> str:
    """A path in the user's words: ``encoder.layer.0.dropout.p``, or ``module.NAME`` for a global."""
    if path.root_kind == "local":
        return module_path(path.steps) or "the module"
    root = path.root.removeprefix("__import_").replace("_dot_", ".")
    text = str(SourcePath(path.root_kind, root, path.steps))
    return f"the global {text}"
