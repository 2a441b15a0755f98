"""What a trace took for granted about Python values, kept and compared at every call.

Each value is kept as a place, (container, key), so that a call compares a few lists with C loops instead
of walking the module. A place that changed is looked at once more, slowly, before the program is called
stale: an equal constant under a new object is no change.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from ..calls import CONSTANT_TYPES
from ..errors import state as state_errors
from ..errors import trace as errors
from ..traced import GuardRecord, SourcePath, Traced
from ..traced.code import TracedCode, digest
from ..traced.guards import RETURNED
from ..traced.paths import MODULE, argument_path, module_path
from ..traced.registries import REGISTRIES
from .groups import Group, OwnersGroup
from .places import Places
from .portable import is_library
from .table import TREATMENT

_HOOKS_THAT_RUN = ("_forward_hooks", "_forward_pre_hooks")
_KEYS = {"DICT_CONTAINS", "DICT_NOT_CONTAINS", "DICT_KEYS_MATCH", "DICT_VERSION", "MAPPING_KEYS_CHECK"}
_MEMBERS = {"SET_CONTAINS", "SET_NOT_CONTAINS"}
_OWNERS = {"NOT_PRESENT_IN_GENERIC_DICT", "HASATTR"}


class Snapshot:
    """The values a traced program depends on, in the user's own module and in globals.

    Raises:
        UnclassifiedGuard (SW220): a guard whose kind or source is not known, or that cannot be kept.
    """

    def __init__(self, traced: Traced, module: nn.Module, forward: Any = None) -> None:
        """``forward`` is what the module's forward was before it was replaced in place, if it was."""
        self.owner = traced.owner
        self._places = Places()
        self._reader = _Reader(module, traced.scope, forward)
        self._objects: list[tuple[Any, str]] = []
        self._kept: set[tuple[str, str, tuple[Any, ...]]] = set()
        self._classes = {type(part) for part in module.modules()}
        for guard in traced.guards:
            self._add(guard, traced)
        self._keep_functions(module, traced.code)
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
        for group in self._flat():
            for label, value in zip(group.labels, group.known, strict=False):
                if isinstance(value, CONSTANT_TYPES) and not label.startswith("the global __"):
                    found[label] = f"{type(value).__name__} {value!r}"
        return found

    def summary(self) -> list[tuple[str, str]]:
        """Every value by name, in words that mean the same in another process."""
        found: list[tuple[str, str]] = []
        for group in self._flat():
            found += group.summary()
        return sorted(found)

    def _flat(self) -> Iterator[Group]:
        for group in self._groups:
            yield group
            if isinstance(group, OwnersGroup):
                yield from group.inner

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

    def _add(self, guard: GuardRecord, traced: Traced) -> None:
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

    def _keep_functions(self, module: nn.Module, traced: TracedCode) -> None:
        """The functions a trace went through that no guard is on: Dynamo guards a class, not what is in it.

        Of classes that are not a library's all methods are kept, of the others those whose code was traced.
        """
        names = traced.names()
        for leaf in self._classes:
            for cls in leaf.__mro__:
                if cls in (object, nn.Module):
                    continue
                for name, member in vars(cls).items():
                    function = _function_of(member)
                    if function is not None:
                        self._keep_function(leaf, cls, name, function, traced, names)
        if traced.reads_environment:
            self._places.environment()
        if traced.asks_requires_grad:
            self._places.flags(module)
        if traced.reads_dicts:
            # Dynamo puts no guard on what is read through the dict of an object.
            for value, label in self._objects:
                self._places.attributes(value, label)

    def _keep_function(
        self,
        leaf: type,
        cls: type,
        name: str,
        function: types.FunctionType,
        traced: TracedCode,
        names: frozenset[str],
    ) -> None:
        own = not is_library(cls.__module__) and not name.startswith("__")
        code = function.__code__
        # By name first: to digest all code of all classes would take long.
        went_through = code.co_qualname in names and (code.co_qualname, digest(code)) in traced.digests
        if name == "forward" or own or (went_through and not is_library(cls.__module__)):
            self._places.value(leaf, "attr", name, f"{leaf.__name__}.{name}")
        if went_through and not is_library(function.__module__):
            self._places.code(function)

    def _keep(self, guard: GuardRecord, path: SourcePath, with_value: bool) -> None:
        for length in range(1, len(path.steps) + (1 if with_value else 0)):
            steps = path.steps[:length]
            # Many guards share the beginning of their paths.
            if (path.root_kind, path.root, steps) not in self._kept:
                self._keep_step(SourcePath(path.root_kind, path.root, steps))
                self._kept.add((path.root_kind, path.root, steps))
        if not with_value:
            return
        value = self._reader.fetch(path)
        label = _label(path)
        if guard.kind == RETURNED:
            self._places.contents(value, label)
        elif isinstance(value, types.FunctionType) and not is_library(value.__module__):
            self._places.code(value)
        elif guard.kind == "TYPE_MATCH" and type(value).__module__ != "builtins":
            self._classes.add(type(value))
            self._objects.append((value, label))
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
        owner = _label(path.parent())
        if kind == "attr" and isinstance(parent, nn.Module) and key in _HOOKS_THAT_RUN and getattr(parent, key):
            self._places.entries(getattr(parent, key), f"the hooks of {owner}")
        if kind in ("dict", "type", "call"):
            return  # follows from the parent, which is kept
        if kind in ("key", "key_item"):
            self._places.keys(parent, owner)
            if kind == "key_item":
                self._places.value(parent, "item", list(parent)[key], _label(path))
            return
        if len(path.steps) >= 4 and path.steps[-2][0] == "dict" and path.steps[-4] == ("attr", "__mro__"):
            # Read from the n-th class of an object: no class before it may get the attribute.
            first = self._reader.fetch(SourcePath(path.root_kind, path.root, path.steps[:-4]))
            self._places.unshadowed(first.__mro__[: path.steps[-3][1]], key)
        label = f"{owner}.{key}" if kind == "attr" and key in REGISTRIES else _label(path)
        self._places.value(parent, kind, key, label, owner)


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


def _function_of(member: Any) -> types.FunctionType | None:
    """The plain function behind a member of a class."""
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    return member if isinstance(member, types.FunctionType) else None


def _label(path: SourcePath) -> str:
    """A path in the user's words: ``encoder.layer.0.dropout.p``, or ``module.NAME`` for a global."""
    if path.root_kind == "local":
        return module_path(path.steps) or "the module"
    root = path.root.removeprefix("__import_").replace("_dot_", ".")
    text = str(SourcePath(path.root_kind, root, path.steps))
    return f"the global {text}"
