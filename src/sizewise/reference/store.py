"""The index of errors: one SQLite file in the user's cache.

A *record* is what an error says (its class and template); a *site* is a line that raises it. A record has as many
sites as the sources have places that say the same. Nothing is kept that is not read off the sources.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALGORITHM = 1
"""Raised when the scan finds other records in the same sources; an index of another algorithm is built again."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS distributions (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, algorithm INTEGER NOT NULL,
    root TEXT NOT NULL, scope TEXT NOT NULL, sha TEXT, indexed_at TEXT NOT NULL, UNIQUE (name, algorithm)
);
CREATE TABLE IF NOT EXISTS records (
    id TEXT PRIMARY KEY, distribution INTEGER NOT NULL REFERENCES distributions (number) ON DELETE CASCADE,
    kind TEXT NOT NULL, error_class TEXT, template TEXT NOT NULL, pattern TEXT NOT NULL, slug TEXT NOT NULL,
    literals INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS sites (
    record TEXT NOT NULL REFERENCES records (id) ON DELETE CASCADE, path TEXT NOT NULL, line INTEGER NOT NULL,
    qualname TEXT NOT NULL, condition TEXT NOT NULL, extra TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS sites_by_record ON sites (record);
CREATE INDEX IF NOT EXISTS sites_by_place ON sites (path, qualname);
CREATE INDEX IF NOT EXISTS records_by_class ON records (error_class);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (template, record UNINDEXED, tokenize = 'unicode61');
"""


@dataclass(frozen=True)
class Distribution:
    """An installed package whose sources were read. ``root`` is the folder its paths are relative to."""

    name: str
    version: str
    root: str
    scope: str
    """Which of its modules, as text; "" for all."""
    sha: str | None
    """The commit it was built from, where it says so."""
    indexed_at: str


@dataclass(frozen=True)
class Site:
    """A line that raises. ``condition`` is the source of the innermost ``if``, or of the assert, around it."""

    path: str
    line: int
    qualname: str
    condition: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A record as the scan found it. ``kind``: raise, assert, log, warn, check or graph-break."""

    id: str
    kind: str
    error_class: str | None
    template: str
    pattern: str
    slug: str
    literals: int
    """Characters of the template that are no hole and no space."""
    sites: tuple[Site, ...]
    distribution: Distribution


class Store:
    """An open index. Readers do not lock each other out; a writer replaces a distribution in one transaction."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._db = sqlite3.connect(path, timeout=30)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing

    def replace(self, distribution: Distribution, records: Iterable[Stored]) -> int:
        """Put ``records`` in the place of what is known of this distribution, of any version; how many there are."""
        with self._db:
            self._forget(distribution.name)
            cursor = self._db.execute(
                "INSERT INTO distributions (name, version, algorithm, root, scope, sha, indexed_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    distribution.name,
                    distribution.version,
                    ALGORITHM,
                    distribution.root,
                    distribution.scope,
                    distribution.sha,
                    distribution.indexed_at,
                ),
            )
            return self._insert(int(cursor.lastrowid or 0), records)

    def _insert(self, number: int, records: Iterable[Stored]) -> int:
        count = 0
        for record in records:
            count += 1
            self._db.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.id,
                    number,
                    record.kind,
                    record.error_class,
                    record.template,
                    record.pattern,
                    record.slug,
                    record.literals,
                ),
            )
            self._db.execute("INSERT INTO words VALUES (?, ?)", (record.template, record.id))
            self._db.executemany(
                "INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?)",
                [(record.id, s.path, s.line, s.qualname, s.condition, json.dumps(s.extra)) for s in record.sites],
            )
        return count

    def _forget(self, name: str) -> None:
        self._db.execute(
            "DELETE FROM words WHERE record IN (SELECT id FROM records JOIN distributions ON number = distribution "
            "WHERE name = ?)",
            (name,),
        )
        self._db.execute("DELETE FROM distributions WHERE name = ?", (name,))

    # -- reading

    def distributions(self) -> list[Distribution]:
        """What is indexed by this algorithm."""
        rows = self._db.execute(
            "SELECT name, version, root, scope, sha, indexed_at FROM distributions WHERE algorithm = ?", (ALGORITHM,)
        )
        return [Distribution(*row) for row in rows]

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """The records with these ids, in this order; unknown ones are left out."""
        found = {record.id: record for record in self._select(f"r.id IN ({','.join('?' * len(ids))})", ids)}
        return [found[name] for name in ids if name in found]

    def all(self) -> Iterator[Stored]:
        """Every record, one at a time."""
        yield from self._select("1", ())

    def search(self, words: Sequence[str], limit: int = 200) -> list[Stored]:
        """The records whose templates share words with ``words``, best first (BM25)."""
        query = " OR ".join('"' + word.replace('"', "") + '"' for word in dict.fromkeys(words) if word)
        if not query:
            return []
        rows = self._db.execute(
            "SELECT record FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query, limit)
        ).fetchall()
        return self.get([row[0] for row in rows])

    def at(self, path_end: str, qualname: str, limit: int = 50) -> list[Stored]:
        """The records raised in a function: the path ends in ``path_end``, the qualified name in ``qualname``."""
        where = "r.id IN (SELECT record FROM sites WHERE path LIKE ? AND (qualname = ? OR qualname LIKE ?))"
        return list(self._select(where, ("%" + path_end, qualname, "%." + qualname)))[:limit]

    def _select(self, where: str, values: Sequence[Any]) -> Iterator[Stored]:
        rows = self._db.execute(
            "SELECT r.id, r.kind, r.error_class, r.template, r.pattern, r.slug, r.literals, "
            "d.name, d.version, d.root, d.scope, d.sha, d.indexed_at "
            f"FROM records r JOIN distributions d ON d.number = r.distribution WHERE d.algorithm = {ALGORITHM} "
            f"AND {where}",
            tuple(values),
        )
        for row in rows:
            sites = self._db.execute(
                "SELECT path, line, qualname, condition, extra FROM sites WHERE record = ? ORDER BY path, line",
                (row[0],),
            )
            parsed = tuple(Site(path, line, where, why, json.loads(extra)) for path, line, where, why, extra in sites)
            name, kind, error_class, template, pattern, slug, literals, *origin = row
            found = Distribution(*origin)
            yield Stored(name, kind, error_class, template, pattern, slug, literals, parsed, found)
