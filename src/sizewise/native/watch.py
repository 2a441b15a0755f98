"""Places whose values are compared together, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import layout
from .library import current

MISSING = object()
"""Stands for no value at a place."""


@dataclass
class Places:
    """What has to stay as it is for a watch to be intact."""

    objects: list[tuple[Any, type, Any]] = field(default_factory=list)
    """(object, its class, the dict that holds its attributes)."""
    items: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """(container, key, value): the same object, or `MISSING` for none."""
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)
    """(object, name, value): the same object, however the attribute is found."""
    whole: list[Any] = field(default_factory=list)
    """Containers among those of ``items`` that have nothing else in them; dicts in the order of their ``items``."""
    empty: list[Any] = field(default_factory=list)
    """Dicts that have nothing in them."""
    questions: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = field(default_factory=list)
    """(function, its arguments, what it has to give)."""
    tensors: list[torch.Tensor] = field(default_factory=list)
    """Everything about them but their values: class, address, shape, strides, dtype, device, bits."""

    def add(self, other: Places) -> None:
        self.objects += other.objects
        self.items += other.items
        self.attributes += other.attributes
        self.whole += other.whole
        self.empty += other.empty
        self.questions += other.questions
        self.tensors += other.tensors


def watch(places: Places) -> Callable[[], bool] | None:
    """A function that says whether all of it is so; None where there is no extension, or it cannot tell.

    Tensors have to be as they are now. Of a dict that did not change at all nothing is looked up, so that hundreds of
    values take a microsecond or two.
    """
    extension = current()
    known = layout.found(extension) if extension is not None else None
    if extension is None or known is None or any(tensor.dim() > layout.AXES for tensor in places.tensors):
        return None
    groups = (
        *_groups(places.items, places.whole),
        *((owner, -2, ((key, value),)) for owner, key, value in places.attributes),
    )
    parts = (places.objects, groups, places.empty, places.questions, places.tensors)
    given = map(tuple, parts)
    try:
        made = extension.Watch(*given, MISSING, known.offset, known.size, known.data_pointer)
    except ValueError:
        return None  # a tensor without memory of the usual kind: sparse, fake
    intact: Callable[[], bool] = made.intact
    return intact


def _groups(items: Iterable[tuple[Any, Any, Any]], whole: Sequence[Any]) -> tuple[Any, ...]:
    lengths = {id(container): len(container) for container in whole}
    groups: dict[int, tuple[Any, int, list[tuple[Any, Any]]]] = {}
    for container, key, value in items:
        group = groups.setdefault(id(container), (container, lengths.get(id(container), -1), []))
        group[2].append((key, value))
    return tuple((container, length, tuple(places)) for container, length, places in groups.values())
