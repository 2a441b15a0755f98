"""Where Dynamo says a value came from, read structurally from its ``Source`` objects.

Private API: ``torch._dynamo.source``. Checked on torch 2.13.0. A source of a class this file does
not know has no path; the caller refuses it. Nothing is guessed from text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MODULE = "__sizewise_module__"
"""The name of the module in the traced function."""
ARGUMENT = "__sizewise_argument_"
"""What an argument's name in it starts with; its number follows."""

# Wrappers that say how a value is treated and add no step to the path.
_TRANSPARENT = {
    "NNModuleSource",
    "UnspecializedNNModuleSource",
    "UnspecializedBuiltinNNModuleSource",
    "FSDPNNModuleSource",
    "OptimizerSource",
    "SkipGuardSource",
}
_ATTRIBUTE = {
    "AttrSource",
    "GenericAttrSource",
    "ParamBufferSource",
    "UnspecializedParamBufferSource",
    "CellContentsSource",
    "GradSource",
}
_ITEM = {"GetItemSource", "DictGetItemSource", "ListGetItemSource", "DictSubclassGetItemSource"}
_FIXED = {
    "TypeSource": ("type", ""),
    "TypeDictSource": ("dict", ""),
    "TypeMROSource": ("attr", "__mro__"),
    "CodeSource": ("attr", "__code__"),
    "ClosureSource": ("attr", "__closure__"),
    "WeakRefCallSource": ("call", ""),
    "CallFunctionNoArgsSource": ("call", ""),
    "NamedTupleFieldsSource": ("attr", "_fields"),
    "DataclassFieldsSource": ("attr", "__dataclass_fields__"),
}

_READ: dict[str, Callable[[Any, Any], Any]] = {
    "attr": getattr,
    "item": lambda value, key: value[key],
    "key": lambda value, key: list(value)[key],
    "key_item": lambda value, key: list(value.values())[key],
    "type": lambda value, _: type(value),
    "dict": lambda value, _: value.__dict__,
    "call": lambda value, _: value(),
}
_TEXT = {
    "attr": ".{0}",
    "item": "[{0!r}]",
    "key": " (key {0})",
    "key_item": " (item {0})",
    "type": " (its class)",
    "dict": ".__dict__",
    "call": "()",
}


@dataclass(frozen=True)
class SourcePath:
    """A root and the steps from it.

    ``root_kind``: ``local`` or ``global`` (a name), or ``module`` (an imported module's name). A step is
    (``attr`` | ``item`` | ``key`` | ``key_item`` | ``type`` | ``dict`` | ``call``, argument); ``key`` and
    ``key_item`` count the entries of a dict.
    """

    root_kind: str
    root: str
    steps: tuple[tuple[str, Any], ...] = ()
    size_axis: int | None = None

    def fetch(self, root_value: Any) -> Any:
        """The object at the path, starting from ``root_value``."""
        value = root_value
        for kind, key in self.steps:
            value = _READ[kind](value, key)
        return value

    def parent(self) -> SourcePath:
        return SourcePath(self.root_kind, self.root, self.steps[:-1])

    def __str__(self) -> str:
        text = "".join(_TEXT[kind].format(key) for kind, key in self.steps)
        return f"{self.root}{text}" + ("" if self.size_axis is None else f".size({self.size_axis})")


def path_of(source: Any) -> SourcePath | None:
    """The path of a Dynamo source, or None when a class in it is not known here."""
    steps: list[tuple[str, Any]] = []
    size_axis: int | None = None
    while True:
        name = type(source).__name__
        root = _root(source, name)
        if root is not None:
            return SourcePath(*root, tuple(reversed(steps)), size_axis)
        if name == "TensorPropertySource":
            if source.prop.name != "SIZE" or steps:
                return None
            size_axis = source.idx
        elif name not in _TRANSPARENT:
            found = list(_steps(source, name))
            if not found:
                return None
            steps.extend(reversed(found))
        source = source.base


def _root(source: Any, name: str) -> tuple[str, str] | None:
    if name == "LocalSource":
        return "local", source.local_name
    if name in ("GlobalSource", "GlobalWeakRefSource"):
        return "global", source.global_name
    if name == "ImportSource":
        return "module", source.module_name
    return None


def _steps(source: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The steps one source adds to its base's path, first to last; none for an unknown class."""
    if name in _ATTRIBUTE:
        # Dynamo writes a dotted member for chained attributes.
        yield from (("attr", part) for part in source.member.split("."))
    elif name in _ITEM:
        if isinstance(source.index, (str, int)) and not getattr(source, "index_is_slice", False):
            yield "item", source.index
        elif type(source.index).__name__ == "ConstDictKeySource":
            yield "key_item", source.index.index
        elif not getattr(source, "index_is_slice", False):
            yield "item", source.index
    elif name == "ConstDictKeySource":
        yield "key", source.index
    elif name == "DefaultsSource":
        yield "attr", source.field
        yield "item", source.idx_key
    elif name in _FIXED:
        yield _FIXED[name]
