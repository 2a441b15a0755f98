"""The output template: what the forward returned, with graph outputs in place of its tensors.

Containers are known by import path, so a template can be written down and read back without pickle.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .sizes import SizeFunction


@dataclass(frozen=True)
class Output:
    """A node of the template.

    ``kind``: ``graph`` (graph output ``index``, a tensor of ``shape`` or the number ``value``), ``input`` (argument
    ``path``), ``tensor`` (parameter or buffer at ``path``), ``constant`` (``value``), ``held`` (the persistent argument
    ``path``), or a container: ``tuple``,
    ``list``, ``dict`` (any dict class), ``namedtuple``, ``structseq``, ``fields`` (a dataclass, transformers'
    ModelOutput included).
    """

    kind: str
    index: int = -1
    path: str = ""
    value: Any = None
    cls: str = ""
    keys: tuple[Any, ...] = ()
    children: tuple[Output, ...] = ()
    shape: tuple[int | SizeFunction, ...] | None = None


def find_class(name: str) -> type:
    """The class at ``module:qualname``."""
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def container_source(template: Output, parts: Sequence[str], bind: Callable[[type], str]) -> str:
    """The expression that makes a container of ``parts``; ``bind`` gives the name that a class has there."""
    items = ", ".join(parts)
    if template.kind == "tuple":
        return f"({items}{',' if len(parts) == 1 else ''})"
    if template.kind == "list":
        return f"[{items}]"
    if template.kind == "dict":
        pairs = ", ".join(f"{key!r}: {part}" for key, part in zip(template.keys, parts, strict=True))
        return f"{{{pairs}}}" if template.cls == "builtins:dict" else f"{bind(find_class(template.cls))}({{{pairs}}})"
    cls = bind(find_class(template.cls))
    if template.kind == "namedtuple":
        return f"{cls}({items})"
    if template.kind == "structseq":
        return f"{cls}(({items},))"
    return f"{cls}({', '.join(f'{key}={part}' for key, part in zip(template.keys, parts, strict=True))})"


def parts_of(template: Output, value: Any) -> list[Any]:
    """The parts of a container that was made by ``template``, in the order of its children."""
    if template.kind == "dict":
        return [value[key] for key in template.keys]
    if template.kind == "fields":
        return [getattr(value, key) for key in template.keys]
    return list(value)


def leaves(template: Output, value: Any) -> list[tuple[Output, Any]]:
    """Each leaf of a template with what stands there in ``value``."""
    if template.kind in LEAVES:
        return [(template, value)]
    found = []
    for child, part in zip(template.children, parts_of(template, value), strict=True):
        found += leaves(child, part)
    return found


LEAVES = ("graph", "input", "tensor", "constant", "held")
