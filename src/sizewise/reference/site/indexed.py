"""Errors of the index as entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ...errors.record import Record
from ..records import record_of
from ..store import Store, Stored
from .entry import Entry
from .own import NAME
from .written import written

_FIELDS = frozenset(field.name for field in fields(Record))


def stored_records(index: Path) -> Iterator[Stored]:
    """Every record of an index, one at a time; none where there is no index. Sizewise's own are not taken twice."""
    if not index.is_file():
        return
    with Store(index) as store:
        yield from (stored for stored in store.all() if stored.distribution.name != NAME and stored.sites)


def entry_of(stored: Stored) -> Entry:
    """A record of the index with what was written about it."""
    said: Mapping[str, Any] = written(stored)
    path = stored.sites[0].path
    return Entry(
        record=replace(record_of(stored), **{name: value for name, value in said.items() if name in _FIELDS}),
        package=stored.distribution.name,
        version=stored.distribution.version,
        sites=stored.sites,
        groups=groups_of(path),
        aliases=tuple(said.get("aliases", ())),
        related=tuple(said.get("related", ())),
        setup=str(said.get("setup", "")),
    )


def groups_of(path: str) -> tuple[str, ...]:
    """The file and the folder of an error."""
    return (path, path.rpartition("/")[0] or path)
