"""What a replay gives back: the run's own result built again, with copies of the tensors that the tape overwrites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...traced import Output
from ...traced.outputs import find_class
from .recorder import BEFORE, NotRecordable, Recording


class ResultWriter:
    """The result's expression: `write` gives its text, ``scope`` what it names, ``kept`` the tape's tensors in it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._names: dict[int, str] = {}
        self._storages: set[int] = set()
        self.scope: dict[str, Any] = {}
        self.kept: dict[str, torch.Tensor] = {}

    def write(self, template: Output, value: Any) -> str:
        """Raises NotRecordable: a result is, or shares memory with, an argument or another result."""
        if not template.children and template.kind in ("graph", "input", "tensor", "constant"):
            return self._leaf(value)
        parts = [
            self.write(child, part) for child, part in zip(template.children, _parts(template, value), strict=True)
        ]
        return self._container(template, parts)

    def _container(self, template: Output, parts: list[str]) -> str:
        items = ", ".join(parts)
        if template.kind == "tuple":
            return f"({items}{',' if len(parts) == 1 else ''})"
        if template.kind == "list":
            return f"[{items}]"
        if template.kind == "dict":
            pairs = ", ".join(f"{key!r}: {part}" for key, part in zip(template.keys, parts, strict=True))
            return f"{{{pairs}}}" if template.cls == "builtins:dict" else f"{self._class(template)}({{{pairs}}})"
        cls = self._class(template)
        if template.kind == "namedtuple":
            return f"{cls}({items})"
        if template.kind == "structseq":
            return f"{cls}(({items},))"
        return f"{cls}({', '.join(f'{key}={part}' for key, part in zip(template.keys, parts, strict=True))})"

    def _class(self, template: Output) -> str:
        return self._bind(find_class(template.cls))

    def _bind(self, value: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def _leaf(self, value: Any) -> str:
        if type(value) in (int, bool, str) or value is None:
            return repr(value)
        if not isinstance(value, torch.Tensor):
            return self._bind(value)
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = self._tensor(value)
        return known

    def _tensor(self, tensor: torch.Tensor) -> str:
        cdata = tensor.untyped_storage()._cdata
        buffer = self._recording.buffers.get(cdata)
        if buffer is None:
            if cdata not in self._recording.known:
                raise NotRecordable("a result lies in memory that is neither the tape's nor the module's")
            return self._bind(tensor)
        if buffer.first == BEFORE:
            raise NotRecordable("a result shares memory with an argument")
        if cdata in self._storages:
            raise NotRecordable("results share memory with one another")
        self._storages.add(cdata)
        name = f"r{len(self.kept)}"
        self.kept[name] = tensor
        return name


def _parts(template: Output, value: Any) -> list[Any]:
    read: Mapping[str, Callable[[], list[Any]]] = {
        "dict": lambda: [value[key] for key in template.keys],
        "fields": lambda: [getattr(value, key) for key in template.keys],
    }
    return read.get(template.kind, lambda: list(value))()
