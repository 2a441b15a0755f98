"""Groups of values that are compared with one C loop each.

Each group has a quick `intact`, asked at every call, and a slow `find_change`, asked when it says no.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import contains, getitem, is_
from typing import Any

from ..calls import CONSTANT_TYPES
from ..native import MISSING, Places
from .portable import portable

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
        self.at: Sequence[tuple[Any, Any]] | None = None
        """Where the values are, as (container, key), for groups of such."""

    def __len__(self) -> int:
        return len(self.labels)

    def summary(self) -> list[tuple[str, str]]:
        """(label, value) in words that mean the same in another process."""
        return [(label, portable(value)) for label, value in zip(self.labels, self.known, strict=True)]

    def quick(self) -> Places | None:
        """The same question in a form that is answered in C++ together with others; None where it has none."""
        if self.at is None:
            return None
        return Places(items=[(*place, value) for place, value in zip(self.at, self.known, strict=True)])

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
                return _in_words(label, known, value)
            self.known[index] = value
        return None


class IdentityGroup(Group):
    """Values for which equal means the same: most objects, None, strings, lengths."""

    def intact(self) -> bool:
        try:
            now = self.read()
            if now != self.known:
                return False
        except Exception:
            return False
        # An equal text may be another object, and the next watch is for that one.
        self.known = now
        return True


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
        self._registries = registries
        self.at = [(registry, key) for registry, key, _ in in_order]

    def quick(self) -> Places | None:
        places = super().quick()
        if places is not None:
            places.whole += self._registries
        return places


class ExactGroup(Group):
    """Numbers, and objects whose class compares by value: nothing but identity counts."""

    def intact(self) -> bool:
        try:
            return all(map(is_, self.read(), self.known))
        except Exception:
            return False


class AttributesGroup(ExactGroup):
    """Values that are attributes: ``at`` has names in place of keys."""

    def quick(self) -> Places | None:
        places = super().quick()
        return Places(attributes=places.items) if places is not None else None


def _same_constant(value: Any, known: Any) -> bool:
    if type(value) is not type(known) or not isinstance(value, (*CONSTANT_TYPES, tuple)):
        return False
    return repr(value) == repr(known)


def item_group(places: Sequence[tuple[Any, Any, str]], kind: Callable[..., Group]) -> Group:
    containers, keys, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda c=c, k=k: c[k] for c, k in zip(containers, keys, strict=True)]
    group = kind(labels, readers, lambda: list(map(getitem, containers, keys)))
    group.at = list(zip(containers, keys, strict=True))
    return group


def attribute_group(places: Sequence[tuple[Any, str, str]]) -> Group:
    owners, names, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda o=o, n=n: getattr(o, n) for o, n in zip(owners, names, strict=True)]
    group = AttributesGroup(labels, readers, lambda: list(map(getattr, owners, names)))
    group.at = list(zip(owners, names, strict=True))
    return group


def flags_group(places: Sequence[tuple[Any, str, str]]) -> Group:
    """Whether parameters require grad; an absent one (None) does not."""
    containers, keys, labels = (list(column) for column in zip(*places, strict=True))

    def flag(container: Any, key: str) -> bool:
        return container[key] is not None and container[key].requires_grad

    readers = [lambda c=c, k=k: flag(c, k) for c, k in zip(containers, keys, strict=True)]
    names = [f"{label}.requires_grad" for label in labels]
    return ExactGroup(names, readers, lambda: list(map(flag, containers, keys)))


def length_group(places: Sequence[tuple[Any, str]]) -> Group:
    values, labels = (list(column) for column in zip(*places, strict=True))
    readers = [lambda v=v: len(v) for v in values]
    return IdentityGroup([f"the number of {label}" for label in labels], readers, lambda: list(map(len, values)))


class AbsentGroup(Group):
    """Names that classes must not get: one there would hide what the trace read from a class behind."""

    def __init__(self, places: Sequence[tuple[Mapping[str, Any], str, str]]) -> None:
        self._owners = [owner for owner, _, _ in places]
        self._names = [name for _, name, _ in places]
        super().__init__([label for _, _, label in places], [], list)

    def summary(self) -> list[tuple[str, str]]:
        places = zip(self._owners, self._names, self.labels, strict=True)
        return [(f"{label}.{name}", "there" if name in owner else "absent") for owner, name, label in places]

    def quick(self) -> Places | None:
        # Of a class each would be an exception made and dropped.
        if not all(type(owner) is dict for owner in self._owners):
            return None
        return Places(items=[(owner, name, MISSING) for owner, name in zip(self._owners, self._names, strict=True)])

    def intact(self) -> bool:
        return not any(map(contains, self._owners, self._names))

    def find_change(self) -> str | None:
        for owner, name, label in zip(self._owners, self._names, self.labels, strict=True):
            if name in owner:
                return f"{label} has got an attribute {name!r} of its own"
        return None


class OwnersGroup(Group):
    """Objects whose attributes were read: their classes and the dicts of their attributes.

    ``inner`` are groups of what is in those dicts.
    """

    def __init__(self, owners: Sequence[tuple[Any, str]], inner: Sequence[Group]) -> None:
        self._objects = [value for value, _ in owners]
        self._dicts = [vars(value) for value, _ in owners]
        self.inner = inner
        super().__init__([label for _, label in owners], [], lambda: list(map(type, self._objects)))

    def __len__(self) -> int:
        return len(self.labels) + sum(map(len, self.inner))

    def summary(self) -> list[tuple[str, str]]:
        """Of the objects alone; ``inner`` has its own."""
        return [(f"the class of {label or 'the module'}", portable(value)) for label, value in self._pairs()]

    def _pairs(self) -> Iterable[tuple[str, type]]:
        return zip(self.labels, self.known, strict=True)

    def quick(self) -> Places | None:
        places = Places(objects=list(zip(self._objects, self.known, self._dicts, strict=True)))
        for group in self.inner:
            found = group.quick()
            if found is None:
                return None
            places.add(found)
        return places

    def intact(self) -> bool:
        return self.read() == self.known and self._same_dicts() and all(group.intact() for group in self.inner)

    def _same_dicts(self) -> bool:
        return all(vars(value) is known for value, known in zip(self._objects, self._dicts, strict=True))

    def find_change(self) -> str | None:
        for value, known, label in zip(self._objects, self.known, self.labels, strict=True):
            if type(value) is not known:
                return f"{label or 'the module'} was a {known.__name__} and is a {type(value).__name__}"
        for value, known, label in zip(self._objects, self._dicts, self.labels, strict=True):
            if vars(value) is not known:
                return f"the attributes of {label or 'the module'} were replaced"
        return next(filter(None, (group.find_change() for group in self.inner)), None)


class EnvironmentGroup(Group):
    """The process's environment variables, for a forward that reads ``os.environ``: a trace does not say which."""

    def __init__(self) -> None:
        super().__init__(["os.environ"], [], lambda: [dict(os.environ)])

    def summary(self) -> list[tuple[str, str]]:
        return [("os.environ", repr(sorted(self.known[0].items())))]

    def intact(self) -> bool:
        return self.read() == self.known

    def find_change(self) -> str | None:
        before, now = self.known[0], dict(os.environ)
        changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if not changed:
            return None
        name = changed[0]
        return f"its forward reads os.environ, where {name} was {before.get(name)!r} and is {now.get(name)!r}"


class HooksGroup(Group):
    """Dicts of hooks that were empty: none may have an entry."""

    def __init__(self, places: Sequence[tuple[Any, str]]) -> None:
        self._dicts = [hooks for hooks, _ in places]
        super().__init__([label for _, label in places], [], list)

    def summary(self) -> list[tuple[str, str]]:
        pairs = zip(self._dicts, self.labels, strict=True)
        return [(f"the hooks of {label or 'the module'}", f"{len(hooks)}") for hooks, label in pairs]

    def quick(self) -> Places | None:
        return Places(empty=self._dicts) if all(isinstance(hooks, dict) for hooks in self._dicts) else None

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

    def summary(self) -> list[tuple[str, str]]:
        pairs = zip(self._values, self._entries, self.labels, strict=True)
        return [(f"the keys of {label}", _keys_in_words(value, entries)) for value, entries, label in pairs]

    def intact(self) -> bool:
        return self.read() == self.known

    def find_change(self) -> str | None:
        for value, label, entries in zip(self._values, self.labels, self._entries, strict=True):
            if list(value) != entries:
                return f"the keys of {label} were {_short(entries)} and are {_short(list(value))}"
        return None


def _keys_in_words(value: Any, entries: list[Any]) -> str:
    if len(entries) > _SMALL:
        return "many"  # a registry, which grows by what else a process imports
    words = list(map(portable, entries))
    return ", ".join(sorted(words) if isinstance(value, (set, frozenset)) else words)


def _in_words(label: str, known: Any, value: Any) -> str:
    """A change, without the text of objects whose text may be pages long."""
    first, second = _name(known), _name(value)
    if first == second:
        return f"{label} was replaced by another {type(value).__name__}"
    return f"{label} was {first} and is {second}"


def _name(value: Any) -> str:
    if isinstance(value, (*CONSTANT_TYPES, tuple)):
        return _short(value)
    return str(getattr(value, "__qualname__", None) or f"a {type(value).__name__}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
