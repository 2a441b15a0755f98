"""Every error that the site has: Sizewise's own in memory, those of the index read when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..store import Store, Stored
from .aliases import published_as, published_of
from .entry import Entry
from .face import face_of_entry, face_of_stored
from .indexed import entry_of, stored_records
from .own import own_entries
from .related import Kinship, Relative
from .written import written

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")
CHUNK = 200


class Catalogue:
    """The errors of one moment. Does not change once made, so that threads may share it."""

    def __init__(self, index: Path | None, own: Sequence[Entry] | None = None) -> None:
        """``index``: the file of the index; None for Sizewise's own errors only. ``own``: those, if known already.

        Raises sqlite3.Error where the index cannot be read, as all that reads it.
        """
        self._index = index
        # Before the records: an index that changes meanwhile is then seen as changed.
        self.version = version_of(index)
        self._own = {entry.record.id: entry for entry in (own_entries() if own is None else own)}
        self._names: dict[str, str] = {}
        faces = [face_of_entry(entry) for entry in self._own.values()]
        for entry in self._own.values():
            self._name(entry.record.id, entry.aliases)
        published: dict[str, str] = {}
        for stored in stored_records(index) if index else ():
            faces.append(face_of_stored(stored))
            self._name(stored.id, written(stored).get("aliases", ()))
            if one := published_of(stored):
                published.setdefault(one.code, stored.id)
        self._publish(published)
        self.faces = tuple(faces)
        self._kinship = Kinship(self.faces)
        self._aliases: dict[str, list[str]] = {}
        for name, target in self._names.items():
            self._aliases.setdefault(target, []).append(name)

    def _name(self, target: str, names: Iterable[str]) -> None:
        for name in names:
            # Names become files, so they are plain words.
            if _NAME.fullmatch(name):
                self._names.setdefault(name, target)

    def _publish(self, indexed: dict[str, str]) -> None:
        """Give the names published elsewhere to the indexed error, else to Sizewise's own."""
        for entry in self._own.values():
            if one := published_as(entry.record.errorCode or ""):
                target = indexed.get(one.code, entry.record.id)
                self._names.update(dict.fromkeys(one.names, target))

    def __len__(self) -> int:
        return len(self.faces)

    def packages(self) -> dict[str, int]:
        """Package -> how many errors."""
        counted: dict[str, int] = {}
        for face in self.faces:
            counted[face.package] = counted.get(face.package, 0) + 1
        return counted

    def own(self) -> list[Entry]:
        """Sizewise's own errors, in the order of their codes."""
        return list(self._own.values())

    def entries(self) -> Iterator[Entry]:
        """Every error, one at a time; the indexed ones are read as they are asked for."""
        yield from self._own.values()
        indexed = [face.id for face in self.faces if face.id not in self._own]
        # A few at a time: a reader in the middle of a list keeps writers of the index waiting.
        for start in range(0, len(indexed), CHUNK):
            yield from map(entry_of, self._stored(indexed[start : start + CHUNK]))

    def entry(self, name: str) -> Entry | None:
        """The error with this id, code or other name, or None."""
        known = (self._names[form] for form in (name, name.upper(), name.lower()) if form in self._names)
        target = name.lower() if self._kinship.knows(name.lower()) else next(known, "")
        if target in self._own:
            return self._own[target]
        stored = self._stored([target]) if self._kinship.knows(target) else []
        return entry_of(stored[0]) if stored else None

    def _stored(self, targets: Sequence[str]) -> list[Stored]:
        if self._index is None or not self._index.is_file():
            return []
        with Store(self._index) as store:
            return [stored for stored in store.get(targets) if stored.sites]

    def aliases(self, target: str) -> list[str]:
        """The other names of the error with this id."""
        return self._aliases.get(target, [])

    def related(self, entry: Entry) -> list[Relative]:
        """At most five; see `related`."""
        named = [self._names.get(name, name) for name in entry.related]
        return self._kinship.related(entry.record.id, named)


def version_of(index: Path | None) -> tuple[tuple[str, str, str], ...]:
    """What an index holds: name, version and time of each package. Empty where there is none."""
    if index is None or not index.is_file():
        return ()
    with Store(index) as store:
        return tuple(sorted((one.name, one.version, one.indexed_at) for one in store.distributions()))
