"""Where Dynamo says a graph input came from, read structurally from its ``Source`` objects.

Private API: ``torch._dynamo.source``. Checked on torch 2.13.0. A source of a class this file does
not know is reported as unknown and refused by the caller; there is no guessing from text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Wrappers that say how a value is treated and add no step to the path.
_TRANSPARENT = {
    "NNModuleSource",
    "NotNNModuleSource",
    "UnspecializedNNModuleSource",
    "UnspecializedBuiltinNNModuleSource",
    "FSDPNNModuleSource",
    "OptimizerSource",
}
_ATTRIBUTE = {"AttrSource", "GenericAttrSource", "UnspecializedParamBufferSource"}
_ITEM = {"GetItemSource", "DictGetItemSource", "ListGetItemSource", "DictSubclassGetItemSource"}


@dataclass(frozen=True)
class SourcePath:
    """A root (``local`` or ``global`` name) and the steps from it: (``attr`` | ``item``, key)."""

    root_kind: str
    root: str
    steps: tuple[tuple[str, Any], ...] = ()
    size_axis: int | None = None

    def fetch(self, root_value: Any) -> Any:
        """The object at the path, starting from ``root_value``."""
        value = root_value
        for kind, key in self.steps:
            value = getattr(value, key) if kind == "attr" else value[key]
        return value

    def __str__(self) -> str:
        text = "".join(f".{key}" if kind == "attr" else f"[{key!r}]" for kind, key in self.steps)
        return f"{self.root}{text}" + ("" if self.size_axis is None else f".size({self.size_axis})")


def path_of(source: Any) -> SourcePath | None:
    """The path of a Dynamo source, or None when its class is not known here."""
    steps: list[tuple[str, Any]] = []
    size_axis: int | None = None
    while True:
        name = type(source).__name__
        if name == "LocalSource":
            return SourcePath("local", source.local_name, tuple(reversed(steps)), size_axis)
        if name == "GlobalSource":
            return SourcePath("global", source.global_name, tuple(reversed(steps)), size_axis)
        if name in _ATTRIBUTE:
            # Dynamo writes a dotted member for chained attributes.
            steps.extend(("attr", part) for part in reversed(source.member.split(".")))
        elif name in _ITEM:
            steps.append(("item", source.index))
        elif name == "TensorPropertySource":
            if source.prop.name != "SIZE" or steps:
                return None
            size_axis = source.idx
        elif name not in _TRANSPARENT:
            return None
        source = source.base
