"""Where Dynamo says a value came from, read structurally from its ``Source`` objects.

Private API: ``torch._dynamo.source``. Checked on torch 2.13.0. A source of a class this file does
not know has no path; the caller refuses it. Nothing is guessed from text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..traced.paths import SourcePath

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
