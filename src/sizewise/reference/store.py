"""The index of errors: one SQLite file in the user's cache.

A *record* is what an error says (its class and template); a *site* is a line that raises it. A record has as many
sites as the sources have places that say the same. Nothing is kept that is not read off the sources.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from ..errors import command as errors
from ..errors.base import SizewiseError
from ..errors.record import holes_emptied

ALGORITHM = 3
"""Raised when the scan finds other records in the same sources; an index of another algorithm is built again."""
APPLICATION = 0x535A5753
"""SQLite's application id of the file ("SZWS"), so that no other program's file is taken for an index."""
SCHEMA = 2

_TABLES = """
CREATE TABLE distributions (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version TEXT NOT NULL, algorithm INTEGER NOT NULL,
    root TEXT NOT NULL, scope TEXT NOT NULL, sha TEXT, indexed_at TEXT NOT NULL
);
CREATE TABLE records (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    distribution INTEGER NOT NULL REFERENCES distributions (number),
    kind TEXT NOT NULL, error_class TEXT, template TEXT NOT NULL, pattern TEXT NOT NULL, slug TEXT NOT NULL,
    literals INTEGER NOT NULL
);
CREATE TABLE sites (
    record INTEGER NOT NULL REFERENCES records (number), path TEXT NOT NULL, line INTEGER NOT NULL,
    qualname TEXT NOT NULL, name TEXT NOT NULL, condition TEXT NOT NULL, extra TEXT NOT NULL
);
CREATE INDEX sites_by_record ON sites (record);
CREATE INDEX sites_by_name ON sites (name);
CREATE INDEX records_by_distribution ON records (distribution);
CREATE VIRTUAL TABLE words USING fts5 (template, tokenize = 'unicode61');
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, 'row');
"""
_DROP = "".join(
    f"DROP TABLE IF EXISTS {name};" for name in ("vocabulary", "words", "sites", "records", "distributions")
)
_RECORD = (
    "SELECT r.number, r.id, r.kind, r.error_class, r.template, r.pattern, r.slug, r.literals, r.distribution "
    "FROM records r JOIN distributions d ON d.number = r.distribution "
    f"WHERE d.algorithm = {ALGORITHM} "
)
_SITE = "SELECT record, path, line, qualname, condition, extra FROM sites "
_CHUNK = 400
"""Rows asked for at a time: below the number of values that every SQLite takes in one statement."""
_TERMS, _HITS = 40, 3000
"""A search looks at the rarest words only: at most so many, found in so many templates together."""


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
    """``Class.method``; ``<module>`` for the top of a module, as tracebacks have it."""
    condition: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """A record as the scan found it. ``kind``: raise, assert, log, warn, check, graph-break, or
    handed-on (a text that Python hands to C++, which raises it)."""

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


class NotAnIndex(sqlite3.DatabaseError):
    """The file is a database of something else."""


@contextmanager
def readable(path: Path | None) -> Iterator[None]:
    """Around what reads or writes an index. Raises IndexUnreadable (SW711) for whatever SQLite says about it."""
    try:
        yield
    except sqlite3.Error as problem:
        if isinstance(problem, sqlite3.OperationalError) and "locked" in str(problem):
            todo = "another process writes it: try again when that has ended"
        elif path is not None and _is_ours(path):
            todo = "run `sizewise errors index`, which makes it anew"
        else:
            todo = "delete the file if nothing else needs it, then run `sizewise errors index`"
        raise errors.IndexUnreadable(path=path, problem=problem, todo=todo) from problem


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Around what writes an index. Raises CannotWrite (SW704) where the file cannot be written or is locked, and
    IndexUnreadable (SW711) where it is damaged or of something else.
    """
    with readable(path):
        try:
            yield
        except sqlite3.OperationalError as problem:
            seen = "it is a folder" if path.is_dir() else str(problem)
            seen += "; another process writes it" if "locked" in seen else ""
            raise errors.CannotWrite(path=path, problem=seen) from problem
        except OSError as problem:
            if isinstance(problem, SizewiseError):
                raise
            raise errors.CannotWrite(path=path, problem=problem.strerror or problem) from problem


def discard_damaged(path: Path) -> bool:
    """Delete an index that SQLite finds damaged; whether it did. A file that is no index of ours is left alone."""
    if not _is_ours(path):
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            if database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                return False
    except sqlite3.OperationalError:
        return False  # locked, or not to be opened: not damaged for all that is known
    except sqlite3.DatabaseError:
        pass
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)
    return True


def _is_ours(path: Path) -> bool:
    """Whether the header, which a damaged file may still have, is that of an index: SQLite's mark and our own."""
    try:
        with path.open("rb") as stream:
            header = stream.read(72)
    except OSError:
        return False
    return header[:16] == b"SQLite format 3\0" and header[68:72] == APPLICATION.to_bytes(4, "big")


class Store:
    """An open index; ``":memory:"`` for one that is kept nowhere.

    Readers and a writer wait for each other for at most ``timeout`` seconds; a writer replaces a distribution in one
    transaction. A file that cannot be written is opened for reading. Raises sqlite3.Error where the file is damaged,
    locked, or no index (`NotAnIndex`); such a file is left as it is.
    """

    def __init__(self, path: Path | str, timeout: float = 30) -> None:
        self.path = Path(path)
        self._known: dict[int, Distribution] = {}
        self._db = self._open(str(path), timeout)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: str, timeout: float) -> sqlite3.Connection:
        if path == ":memory:":
            return sqlite3.connect(path)
        if self.path.exists() and not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)):
            return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=timeout)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return sqlite3.connect(path, timeout=timeout)

    def _prepare(self) -> None:
        application = self._pragma("application_id")
        if application == APPLICATION and self._pragma("user_version") == SCHEMA:
            return
        if application != APPLICATION and self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise NotAnIndex(f"{self.path} is a database of something else")
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if self._pragma("user_version") == SCHEMA:
                return  # another process has just done it
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}"
            for statement in f"{_DROP} {_TABLES} {marks}".split(";"):
                self._db.execute(statement)

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- writing

    def check_writable(self) -> None:
        """Raises sqlite3.OperationalError where nothing could be written now; changes nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")  # a lock alone is granted on a read-only file, too
        self._db.execute("ROLLBACK")

    def check_whole(self) -> None:
        """Raises sqlite3.DatabaseError where the file is damaged. Reads all of it."""
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)

    def replace(self, distribution: Distribution, records: Iterable[Stored]) -> int:
        """Put ``records`` in the place of what is known of this distribution, of any version; how many there are."""
        self._known.clear()
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._forget(distribution.name)
            number = self._db.execute(
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
            ).lastrowid
            return self._insert(number or 0, iter(records))

    def _insert(self, distribution: int, records: Iterator[Stored]) -> int:
        first = self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM records").fetchone()[0]
        number = int(first)
        while chunk := list(islice(records, _CHUNK)):
            numbered = list(enumerate(chunk, number))
            number += len(chunk)
            self._db.executemany(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (n, r.id, distribution, r.kind, r.error_class, r.template, r.pattern, r.slug, r.literals)
                    for n, r in numbered
                ],
            )
            # Without what stands in the holes: nobody's message has the names of variables.
            words = [(n, holes_emptied(r.template)) for n, r in numbered]
            self._db.executemany("INSERT INTO words (rowid, template) VALUES (?, ?)", words)
            self._db.executemany(
                "INSERT INTO sites VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (n, s.path, s.line, s.qualname, _last(s.qualname), s.condition, json.dumps(dict(s.extra)))
                    for n, r in numbered
                    for s in r.sites
                ],
            )
        return number - int(first)

    def _forget(self, name: str) -> None:
        of_it = "(SELECT r.number FROM records r JOIN distributions d ON d.number = r.distribution WHERE d.name = ?)"
        self._db.execute(f"DELETE FROM words WHERE rowid IN {of_it}", (name,))
        self._db.execute(f"DELETE FROM sites WHERE record IN {of_it}", (name,))
        self._db.execute(f"DELETE FROM records WHERE number IN {of_it}", (name,))
        self._db.execute("DELETE FROM distributions WHERE name = ?", (name,))

    # -- reading

    def distributions(self) -> list[Distribution]:
        """What is indexed by this algorithm."""
        return list(self._distributions().values())

    def _distributions(self) -> dict[int, Distribution]:
        if not self._known:
            rows = self._db.execute(
                "SELECT number, name, version, root, scope, sha, indexed_at FROM distributions WHERE algorithm = ?",
                (ALGORITHM,),
            )
            self._known = {row[0]: Distribution(*row[1:]) for row in rows}
        return self._known

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """The records with these ids, in this order; unknown ones are left out."""
        found = {record.id: record for record in self._chosen("id", list(dict.fromkeys(ids)))}
        return [found[name] for name in ids if name in found]

    def all(self) -> Iterator[Stored]:
        """Every record, one at a time."""
        sites = self._db.execute(f"{_SITE} ORDER BY record, rowid")
        by_record = groupby(sites, key=lambda row: int(row[0]))
        number, rows = next(by_record, (None, iter(())))
        for row in self._db.execute(f"{_RECORD} ORDER BY r.number"):
            while number is not None and number < row[0]:
                number, rows = next(by_record, (None, iter(())))
            yield self._stored(row, [_site(one) for one in rows] if number == row[0] else [])

    def search(self, words: Sequence[str], limit: int = 200) -> list[Stored]:
        """The records whose templates share words with ``words``, best first (BM25).

        Of many words the rarest are looked for: common ones are in thousands of templates and tell none apart.
        """
        query = " OR ".join(f'"{word}"' for word in self._rarest(words))
        if not query:
            return []
        rows = self._db.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query, limit)
        ).fetchall()
        order = [row[0] for row in rows]
        return [record for _, record in self._numbered(order)]

    def _rarest(self, words: Sequence[str]) -> list[str]:
        terms = list(dict.fromkeys(term for word in words for term in re.findall(r"[^\W_]+", word.lower())))
        counted: list[tuple[int, str]] = []
        for start in range(0, len(terms), _CHUNK):
            chunk = terms[start : start + _CHUNK]
            rows = self._db.execute(
                f"SELECT doc, term FROM vocabulary WHERE term IN ({_marks(chunk)})", chunk
            ).fetchall()
            counted += rows
        kept: list[str] = []
        hits = 0
        for count, term in sorted(counted)[:_TERMS]:
            hits += count
            if kept and hits > _HITS:
                break
            kept.append(term)
        return kept

    def at(self, path_end: str, qualname: str, limit: int = 50) -> list[Stored]:
        """The records raised in a function: the path ends in ``path_end``, the qualified name in ``qualname``."""
        values: list[str | int]
        where, values = "name = ? AND (qualname = ? OR substr(qualname, ?) = ?)", [_last(qualname), qualname]
        values += [-len(qualname) - 1, f".{qualname}"]
        if path_end:
            where, values = f"{where} AND substr(path, ?) = ?", [*values, -len(path_end), path_end]
        rows = self._db.execute(
            f"SELECT DISTINCT record FROM sites WHERE {where} ORDER BY record LIMIT ?", [*values, limit]
        ).fetchall()
        return [record for _, record in self._numbered([row[0] for row in rows])]

    def with_extra(self, key: str, value: str, limit: int = 50) -> list[Stored]:
        """The records of which a site has this text in its ``extra``."""
        rows = self._db.execute(
            "SELECT DISTINCT record FROM sites WHERE extra LIKE ? ORDER BY record LIMIT ?",
            (f"%{json.dumps(key)}: {json.dumps(value)}%", limit),
        ).fetchall()
        return [record for _, record in self._numbered([row[0] for row in rows])]

    def _numbered(self, numbers: Sequence[int]) -> list[tuple[int, Stored]]:
        found = dict(self._rows("number", numbers))
        return [(number, found[number]) for number in numbers if number in found]

    def _chosen(self, column: str, values: Sequence[Any]) -> list[Stored]:
        return [record for _, record in self._rows(column, values)]

    def _rows(self, column: str, values: Sequence[Any]) -> Iterator[tuple[int, Stored]]:
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            rows = self._db.execute(f"{_RECORD} AND r.{column} IN ({_marks(chunk)})", chunk).fetchall()
            numbers = [row[0] for row in rows]
            sites: dict[int, list[Site]] = {}
            where = f"WHERE record IN ({_marks(numbers)}) ORDER BY rowid"
            for one in self._db.execute(_SITE + where, numbers):
                sites.setdefault(one[0], []).append(_site(one))
            yield from ((row[0], self._stored(row, sites.get(row[0], []))) for row in rows)

    def _stored(self, row: Sequence[Any], sites: Iterable[Site]) -> Stored:
        _, name, kind, error_class, template, pattern, slug, literals, distribution = row
        origin = self._distributions()[distribution]
        return Stored(name, kind, error_class, template, pattern, slug, literals, tuple(sites), origin)


def _site(row: Sequence[Any]) -> Site:
    _, path, line, qualname, condition, extra = row
    return Site(path, line, qualname, condition, json.loads(extra) if extra != "{}" else {})


def _last(qualname: str) -> str:
    return qualname.rpartition(".")[2]


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
