"""Making room, and looking for damage. All of it may run beside readers and writers in other processes.

A manifest goes before its blobs, so what is half removed reads as if it were not there. A reader that loses a blob
gets SW605 and builds; a writer that counts on a blob that is removed right then writes it again at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import lock
from .entry import Entry, load
from .files import Unfit, read, reason, remove
from .layout import Layout
from .manifest import MAX_BYTES, digest_of

GRACE = 3600.0
"""Seconds that a writer is given: younger files that nothing names may be on their way into an entry."""


@dataclass
class Removed:
    """What tidying took away."""

    entries: int = 0
    blobs: int = 0
    temporary: int = 0
    """Files that somebody began to write and never finished."""
    bytes: int = 0

    def file(self, path: Path, size: int) -> bool:
        """Remove a file; whether it was there. Raises OSError."""
        try:
            remove(path)
        except FileNotFoundError:
            return False
        self.bytes += size
        return True


@dataclass(frozen=True)
class Program:
    """One that is not used; ``owner`` and ``sizes`` as its manifest says them, None where that cannot be read."""

    id: str
    owner: Any = None
    sizes: Any = None


@dataclass(frozen=True)
class Problem:
    """Something in the store that is not used, and why."""

    path: Path
    problem: str
    programs: list[Program]
    """Those that need it."""
    damaged: bool = True
    """False where the system does not let it be read, which may be over the next time."""


@dataclass
class Checkup:
    """What `check` read."""

    entries: int = 0
    blobs: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)


def manifests(layout: Layout) -> Iterator[tuple[str, str]]:
    """(key, id) of every manifest. Raises OSError."""
    return ((key, entry_id) for key in layout.all_keys() for entry_id in layout.ids(key))


def load_all(layout: Layout, names: Iterable[tuple[str, str]]) -> tuple[list[Entry], list[Problem]]:
    """The entries that can be used, and the manifests that cannot. Raises nothing."""
    good, bad = [], []
    for key, entry_id in names:
        path = layout.manifest(key, entry_id)
        try:
            good.append(load(layout, key, entry_id))
        except FileNotFoundError:
            continue
        except Unfit as problem:
            bad.append(Problem(path, str(problem), [_as_far_as_it_can_be_read(path, entry_id)]))
        except OSError as problem:
            bad.append(Problem(path, reason(problem), [Program(entry_id)], damaged=False))
    return good, bad


def _as_far_as_it_can_be_read(path: Path, entry_id: str) -> Program:
    """To show and nothing else: it is damaged."""
    with contextlib.suppress(OSError, Unfit, ValueError, RecursionError):
        told = json.loads(read(path, MAX_BYTES)[0])
        if isinstance(told, dict):
            return Program(entry_id, told.get("owner"), told.get("sizes"))
    return Program(entry_id)


def remove_damaged(layout: Layout) -> Removed:
    """Remove what is damaged, and the manifests of the programs that need it. Raises OSError."""
    removed = Removed()
    damaged = [problem for problem in check(layout).problems if problem.damaged]
    useless = {program.id for problem in damaged for program in problem.programs}
    for key, entry_id in manifests(layout):
        if entry_id in useless:
            removed.entries += _if_older(removed, layout.manifest(key, entry_id), float("inf"))
    for problem in damaged:
        # A manifest is gone by now. A file may have been mended a moment ago: who misses it then builds again.
        removed.blobs += _if_older(removed, problem.path, float("inf"))
    return removed


def prune(
    layout: Layout, limit: int, *, grace: float = GRACE, keep: str = "", removed: Removed | None = None
) -> Removed:
    """Remove the entries used longest ago until the rest has at most ``limit`` bytes, and all that is of no use.

    ``keep`` is the id of an entry that stays; ``removed`` is counted on. Raises OSError.
    """
    began, removed = time.time(), removed or Removed()
    entries, bad = load_all(layout, manifests(layout))
    for problem in bad:
        if problem.damaged:
            _if_older(removed, problem.path, began - grace)
    blobs = layout.blobs()
    orphans = _entries_beyond(layout, limit, entries, blobs, keep, removed)
    # Read again: writers were at work meanwhile.
    entries, bad = load_all(layout, manifests(layout))
    named = {digest for entry in entries for digest in _digests(entry)}
    if all(problem.damaged for problem in bad):
        # Else a manifest is there that did not let itself be read this time, and names some of them.
        for digest in blobs.keys() - named:
            age = began if digest in orphans else began - grace
            removed.blobs += _if_older(removed, layout.blob(digest), age)
    for path, _ in layout.temporary():
        removed.temporary += _if_older(removed, path, began - grace)
    _empty_folders(layout)
    lock.sweep(layout.locks, began - grace)
    return removed


def _entries_beyond(
    layout: Layout, limit: int, entries: list[Entry], blobs: dict[str, os.stat_result], keep: str, removed: Removed
) -> set[str]:
    """Remove entries; the digests of the blobs that none of the others names."""
    users = Counter(digest for entry in entries for digest in _digests(entry))
    total = sum(entry.manifest_bytes for entry in entries)
    total += sum(info.st_size for digest, info in blobs.items() if digest in users)
    orphans: set[str] = set()
    for entry in sorted(entries, key=lambda entry: (entry.used, entry.id)):
        if total <= limit:
            break
        if entry.id == keep or not _remove_entry(layout, entry, removed):
            continue
        total -= entry.manifest_bytes
        users.subtract(_digests(entry))
        alone = {digest for digest in _digests(entry) if not users[digest]}
        total -= sum(blobs[digest].st_size for digest in alone if digest in blobs)
        orphans |= alone
    return orphans


def _digests(entry: Entry) -> set[str]:
    return {fact.sha256 for fact in entry.facts.values()}


def _remove_entry(layout: Layout, entry: Entry, removed: Removed) -> bool:
    path = layout.manifest(entry.key, entry.id)
    try:
        used = os.stat(path, follow_symlinks=False).st_mtime_ns / 1e9
    except FileNotFoundError:
        return True
    if used > entry.used:
        # Somebody took it into use a moment ago.
        return False
    removed.entries += removed.file(path, entry.manifest_bytes)
    return True


def _if_older(removed: Removed, path: Path, than: float) -> bool:
    """Remove a file that was last written or counted on before a time."""
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return info.st_mtime < than and removed.file(path, info.st_size)


def _empty_folders(layout: Layout) -> None:
    for key in layout.all_keys():
        # Not empty, or not ours: it stays.
        with contextlib.suppress(OSError):
            os.rmdir(layout.key_folder(key))


def clear(layout: Layout) -> Removed:
    """Remove everything but the locks that are held. Raises OSError."""
    removed = Removed()
    for key, entry_id in manifests(layout):
        path = layout.manifest(key, entry_id)
        with contextlib.suppress(FileNotFoundError):
            size = os.stat(path, follow_symlinks=False).st_size
            removed.entries += removed.file(path, size)
    for digest, info in layout.blobs().items():
        removed.blobs += removed.file(layout.blob(digest), info.st_size)
    for path, info in layout.temporary():
        removed.temporary += removed.file(path, info.st_size)
    _empty_folders(layout)
    lock.sweep(layout.locks, float("inf"))
    return removed


def check(layout: Layout) -> Checkup:
    """Read every manifest and every blob, and say what is wrong. Raises OSError where folders cannot be listed."""
    entries, bad = load_all(layout, manifests(layout))
    found = Checkup(entries=len(entries) + len(bad), problems=bad)
    found.bytes += sum(entry.manifest_bytes for entry in entries)
    users: dict[str, list[Entry]] = {}
    for entry in entries:
        for digest in _digests(entry):
            users.setdefault(digest, []).append(entry)
    sizes: dict[str, int] = {}
    for digest, info in sorted(layout.blobs().items()):
        wrong, damaged = _blob_problem(layout, digest, info.st_size)
        found.blobs += 1
        found.bytes += info.st_size
        sizes[digest] = info.st_size
        if wrong:
            programs = [_program(entry) for entry in users.get(digest, [])]
            words = f"{_names(digest, users.get(digest, []))}{wrong}"
            found.problems.append(Problem(layout.blob(digest), words, programs, damaged))
            del sizes[digest]
            users.pop(digest, None)
    for digest, those in users.items():
        for entry in those:
            if wrong := _not_as_told(entry, digest, sizes):
                found.problems.append(Problem(layout.manifest(entry.key, entry.id), wrong, [_program(entry)]))
    return found


def _program(entry: Entry) -> Program:
    return Program(entry.id, entry.manifest.get("owner"), entry.manifest.get("sizes"))


def _names(digest: str, entries: list[Entry]) -> str:
    """What the programs call a file, to begin a sentence about it with."""
    names = dict.fromkeys(name for entry in entries for name, fact in entry.facts.items() if fact.sha256 == digest)
    return f"its file {' or '.join(map(repr, names))}: " if names else ""


def _not_as_told(entry: Entry, digest: str, sizes: dict[str, int]) -> str:
    """What is wrong with a good file of an entry: that it is not there, or that the manifest says another size."""
    for name, fact in entry.facts.items():
        if fact.sha256 == digest and sizes.get(digest) != fact.size:
            seen = "is missing" if digest not in sizes else f"has {sizes[digest]} bytes, not {fact.size}"
            return f"its file {name!r} {seen}"
    return ""


def _blob_problem(layout: Layout, digest: str, size: int) -> tuple[str, bool]:
    """What is wrong with a blob, or '', and whether it is damage."""
    try:
        data, _ = read(layout.blob(digest), size)
    except FileNotFoundError:
        return "", False
    except Unfit as problem:
        return str(problem), True
    except OSError as problem:
        return reason(problem), False
    return ("", False) if digest_of(data) == digest else ("its SHA-256 is not its name", True)
