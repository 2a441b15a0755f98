"""From a trace's guards to the places that are kept: which values, of what, by which paths."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from torch import nn

from ..errors import trace as errors
from ..traced import GuardRecord, SourcePath, Traced
from ..traced.code import TracedCode, digest
from ..traced.guards import RETURNED
from ..traced.paths import MODULE, argument_path, module_path
from ..traced.registries import REGISTRIES
from .places import function_of
from .plan import PlacesPlan
from .portable import is_library
from .table import TREATMENT

_HOOKS_THAT_RUN = ("_forward_hooks", "_forward_pre_hooks")
_KEYS = {"DICT_CONTAINS", "DICT_NOT_CONTAINS", "DICT_KEYS_MATCH", "DICT_VERSION", "MAPPING_KEYS_CHECK"}
_MEMBERS = {"SET_CONTAINS", "SET_NOT_CONTAINS"}
_OWNERS = {"NOT_PRESENT_IN_GENERIC_DICT", "HASATTR"}


def plan_places(traced: Traced, module: nn.Module, forward: Any = None) -> PlacesPlan:
    """What a snapshot keeps for ``traced``; ``forward`` is what the module's was before it was replaced in place.

    Raises:
        UnclassifiedGuard (SW220): a guard whose kind or source is not known, or that cannot be kept.
    """
    return _Planner(traced, module, forward).plan()


class _Planner:
    def __init__(self, traced: Traced, module: nn.Module, forward: Any) -> None:
        self._owner = traced.owner
        self._traced, self._module = traced, module
        self._plan = PlacesPlan()
        self._reader = _Reader(module, traced.scope, forward)
        self._objects: list[tuple[SourcePath, str]] = []
        self._kept: set[tuple[str, str, tuple[Any, ...]]] = set()
        self._classes: dict[type, SourcePath] = {}
        for name, part in module.named_modules():
            steps = [step for key in name.split(".") if key for step in (("attr", "_modules"), ("item", key))]
            self._classes.setdefault(type(part), SourcePath("local", MODULE, (*steps, ("type", ""))))

    def plan(self) -> PlacesPlan:
        for guard in self._traced.guards:
            self._add(guard, self._traced)
        self._keep_functions(self._traced.code)
        return self._plan

    def _add(self, guard: GuardRecord, traced: Traced) -> None:
        treatment, why = TREATMENT.get(guard.kind, ("refused", "this kind of guard is not known"))
        if treatment == "refused":
            raise errors.UnclassifiedGuard(owner=self._owner, guard=guard.in_words, why=why)
        if guard.path is None:
            if treatment == "snapshot":
                why = f"its source is a {guard.source}"
                raise errors.UnclassifiedGuard(owner=self._owner, guard=guard.in_words, why=why)
            return
        if guard.path.root_kind == "local" and guard.path.root != MODULE:
            if argument_path(guard.path.root, traced.call) is None:
                raise errors.UnclassifiedGuard(owner=self._owner, guard=guard.in_words, why="it is on a local value")
            return  # arguments are compared by the entry check
        if treatment in ("snapshot", "entry", "implied"):
            try:
                self._keep(guard, guard.path, with_value=treatment == "snapshot")
                if guard.other is not None:
                    self._keep(guard, guard.other, with_value=True)
            except (AttributeError, KeyError, IndexError, TypeError) as problem:
                why = f"its value cannot be read again ({type(problem).__name__}: {problem})"
                raise errors.UnclassifiedGuard(owner=self._owner, guard=guard.in_words, why=why) from problem

    def _keep_functions(self, traced: TracedCode) -> None:
        """The functions a trace went through that no guard is on: Dynamo guards a class, not what is in it.

        Of classes that are not a library's all methods are kept, of the others those whose code was traced.
        """
        names = traced.names()
        for leaf, path in self._classes.items():
            for index, cls in enumerate(leaf.__mro__):
                if cls in (object, nn.Module):
                    continue
                for name, member in vars(cls).items():
                    function = function_of(member)
                    if function is not None:
                        self._keep_function(path, leaf, index, name, function, traced, names)
        if traced.reads_environment:
            self._plan.add("environment", None)
        if traced.asks_requires_grad:
            self._plan.add("flags", SourcePath("local", MODULE))
        if traced.reads_dicts:
            # Dynamo puts no guard on what is read through the dict of an object.
            for path, label in self._objects:
                self._plan.add("attributes", path, label)

    def _keep_function(
        self,
        path: SourcePath,
        leaf: type,
        index: int,
        name: str,
        function: types.FunctionType,
        traced: TracedCode,
        names: frozenset[str],
    ) -> None:
        """Keep a method of the class ``leaf`` at ``path``, which it has from the ``index``-th of its classes."""
        library = is_library(leaf.__mro__[index].__module__)
        code = function.__code__
        # By name first: to digest all code of all classes would take long.
        went_through = code.co_qualname in names and (code.co_qualname, digest(code)) in traced.digests
        if name == "forward" or (not library and (went_through or not name.startswith("__"))):
            self._plan.add("value", path, "attr", name, f"{leaf.__name__}.{name}", "")
        if went_through and not is_library(function.__module__):
            self._plan.add("member_code", path, index, name)

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
            self._plan.add("contents", path, label)
        elif isinstance(value, types.FunctionType) and not is_library(value.__module__):
            self._plan.add("code", path)
        elif guard.kind == "TYPE_MATCH" and type(value).__module__ != "builtins":
            self._classes.setdefault(type(value), path.step("type", ""))
            self._objects.append((path, label))
        if guard.kind in _OWNERS:
            if hasattr(value, "__dict__"):
                self._plan.add("owner", path, guard.attribute, label)
        elif guard.kind == "EMPTY_NN_MODULE_HOOKS_DICT":
            if path.steps[-1][1] in _HOOKS_THAT_RUN:
                self._plan.add("hooks", path, _label(path.parent()))
        elif _is_in_library(path):
            return  # its registries grow with every model that is made; what was read of them is kept by itself
        elif guard.kind in _KEYS or guard.kind in _MEMBERS:
            self._plan.add("keys", path, label)
        elif guard.kind == "SEQUENCE_LENGTH" and hasattr(value, "__len__"):
            self._plan.add("length", path, label)

    def _keep_step(self, path: SourcePath) -> None:
        """Keep the place of the last step of ``path``."""
        kind, key = path.steps[-1]
        parent = self._reader.fetch(path.parent())
        owner = _label(path.parent())
        if kind == "attr" and isinstance(parent, nn.Module) and key in _HOOKS_THAT_RUN and getattr(parent, key):
            self._plan.add("entries", path, f"the hooks of {owner}")
        if kind in ("dict", "type", "call"):
            return  # follows from the parent, which is kept
        if kind in ("key", "key_item"):
            if not _is_in_library(path):
                self._plan.add("keys", path.parent(), owner)
            if kind == "key_item":
                self._plan.add("entry", path.parent(), key, _label(path))
            return
        if len(path.steps) >= 4 and path.steps[-2][0] == "dict" and path.steps[-4] == ("attr", "__mro__"):
            # Read from the n-th class of an object: no class before it may get the attribute.
            first = SourcePath(path.root_kind, path.root, path.steps[:-4])
            self._plan.add("hidden_by_none", first, path.steps[-3][1], key)
        label = f"{owner}.{key}" if kind == "attr" and key in REGISTRIES else _label(path)
        self._plan.add("value", path.parent(), kind, key, label, owner)


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


def _is_in_library(path: SourcePath) -> bool:
    """Whether a path begins at a global of a library."""
    root = path.root.removeprefix("__import_").replace("_dot_", ".")
    return path.root_kind in ("global", "module") and is_library(root)


def _label(path: SourcePath) -> str:
    """A path in the user's words: ``encoder.layer.0.dropout.p``, or ``module.NAME`` for a global."""
    if path.root_kind == "local":
        return module_path(path.steps) or "the module"
    root = path.root.removeprefix("__import_").replace("_dot_", ".")
    text = str(SourcePath(path.root_kind, root, path.steps))
    return f"the global {text}"
