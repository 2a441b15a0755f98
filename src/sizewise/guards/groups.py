"""Groups of values that are compared with one C loop each.

Each group has a quick `intact`, asked at every call, and a slow `find_change`, asked when it says no.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import getitem, is_
from typing import Any

from ..calls import CONSTANT_TYPES

_MISSING = object()
_SMALL = 32
"""Entries up to which the keys of a dict are compared at every call."""


class Group:
    """Values that are compared in one go: ``read()`` gives them now, ``known`` as they were."""

    def __init__(
        self, labels: Sequence[str], readers: Sequence[Callable[[], Any]], read: Callable[[], list[Any]]
    ) -> None:
        self.labels = labels
        self.readers = readers
        self.read = read
        self.known = read()

    def __len__(self) -> int:
        return len(self.labels)

    def intact(self) -> bool:
        raise NotImplementedError

    def find_change(self) -> str | None:
        """The first real change in words, or None; equal constants are accepted as they are now."""
        for index, (label, reader) in enumerate(zip(self.labels, self.readers, strict=True)):
            try:
                value = reader()
            except Exception:
                value = _MISSING
            known = self.known[index]
            if value is known:
                continue
            if value is _MISSING:
                return f"{label} is gone"
            if not _same_constant(value, known):
                return f"{label} was {_short(known)} and is {_short(value)}"
            self.known[index] = value
        return None


class IdentityGroup(Group):
    """Values for which equal means the same: most objects, None, strings, lengths."""

    def intact(self) -> bool:
        try:
            return self.read() == self.known
        except Exception:
            return False


class ChildrenGroup(IdentityGroup):
    """All submodules of some modules, read a module at a time."""

    def __init__(self, places: Sequence[tuple[Any, Any, str]]) -> None:
        registries = list({id(container): container for container, _, _ in places}.values())
        label_of = {(id(container), key): label for container, key, label in places}
        in_order = [(registry, key, label_of[id(registry), key]) for registry in registries for key in registry]
        readers = [lambda c=c, k=k: c[k] for c, k, _ in in_order]
        super().__init__(
            [label for _, _, label in in_order],
            readers,
            lambda: list(itertools.chain.from_iterable(map(dict.values, registries))),
        )


class ExactGroup(Group):
    """Numbers, and objects whose class compares by value: nothing but identity counts."""

    def intact(self) -> bool:
        try:
            return all(map(is_, self.read(), self.known))
        except Exception:
            return False


def _same_constant(value: Any, known: Any) -> bool:
    if type(value) is not type(known) or not isinstance(value, (*CONSTANT_TYPES, tuple)):
        return False
    return repr(value) == repr(known)


def item_group(places: Sequence[tuple[Any, Any, str]], kind: Callable[..., Group]) -> Group:
    containers, keys, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda c=c, k=k: c[k] for c, k in zip(containers, keys, strict=True)]
    return kind(labels, readers, lambda: list(map(getitem, containers, keys)))


def attribute_group(places: Sequence[tuple[Any, str, str]]) -> Group:
    owners, names, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda o=o, n=n: getattr(o, n) for o, n in zip(owners, names, strict=True)]
    return ExactGroup(labels, readers, lambda: list(map(getattr, owners, names)))


def length_group(places: Sequence[tuple[Any, str]]) -> Group:
    values, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda v=v: len(v) for v in values]
    return IdentityGroup([f"the number of {label}" for label in labels], readers, lambda: list(map(len, values)))


class AbsentGroup(Group):
    """Attributes that must not appear: as long as the owners have as many attributes as before, none has.

    An attribute that is removed where another appears would hide it; removing one that was read is noticed
    by the place that holds it.
    """

    def __init__(self, places: Sequence[tuple[dict[str, Any], str, set[str]]]) -> None:
        self._owners = [owner for owner, _, _ in places]
        self._names = [names for _, _, names in places]
        labels = [label for _, label, _ in places]
        super().__init__(labels, [], lambda: [sum(map(len, self._owners))])
        self._total = self.known[0]

    def intact(self) -> bool:
        return sum(map(len, self._owners)) == self._total

    def find_change(self) -> str | None:
        for owner, label, names in zip(self._owners, self.labels, self._names, strict=True):
            for name in names:
                if name in owner:
                    return f"{label} has got an attribute {name!r} of its own"
        self._total = sum(map(len, self._owners))
        return None


class HooksGroup(Group):
    """Dicts of hooks that were empty: none may have an entry."""

    def __init__(self, places: Sequence[tuple[Any, str]]) -> None:
        self._dicts = [hooks for hooks, _ in places]
        super().__init__([label for _, label in places], [], list)

    def intact(self) -> bool:
        return not any(self._dicts)

    def find_change(self) -> str | None:
        found = [label for hooks, label in zip(self._dicts, self.labels, strict=True) if hooks]
        return f"a hook was added to {', '.join(found)}" if found else None


class KeysGroup(Group):
    """Keys of dicts and members of sets; of large ones (classes, registries) their number, and they when it differs.

    Values under the keys a trace read are kept as places of their own.
    """

    def __init__(self, places: Sequence[tuple[Any, str]]) -> None:
        self._values = [value for value, _ in places]
        self._entries = [list(value) for value in self._values]
        small = [value for value in self._values if len(value) <= _SMALL]
        large = [value for value in self._values if len(value) > _SMALL]
        labels = [label for _, label in places]
        super().__init__(labels, [], lambda: [list(map(list, small)), list(map(len, large))])

    def intact(self) -> bool:
        return self.read() == self.known

    def find_change(self) -> str | None:
        for value, label, entries in zip(self._values, self.labels, self._entries, strict=True):
            if list(value) != entries:
                return f"the keys of {label} were {_short(entries)} and are {_short(list(value))}"
        return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
