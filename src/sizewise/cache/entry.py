"""A program in the store."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any

from ..errors import cache as errors
from .files import Unfit, read, reason
from .layout import Layout
from .manifest import MAX_BYTES, Fact, decode, digest_of


@dataclass
class Entry:
    """A manifest that was read and found good; its files are read and checked when asked for."""

    key: str
    id: str
    """The SHA-256 of the manifest's bytes."""
    manifest: dict[str, Any]
    used: float
    """When it was last used, in seconds since the epoch."""
    layout: Layout = field(repr=False)
    facts: dict[str, Fact] = field(repr=False)
    manifest_bytes: int
    _marked: bool = field(default=False, repr=False)

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return list(self.facts)

    @property
    def size(self) -> int:
        """Bytes, of the manifest and of the files, also of those it shares with other entries."""
        return self.manifest_bytes + sum({fact.sha256: fact.size for fact in self.facts.values()}.values())

    def read(self, name: str) -> bytes:
        """The bytes of a file, the very ones that were published; the entry counts as used from now on.

        Raises SW605 for anything else: what is missing or damaged, or was tidied away a moment ago.
        """
        data = self.check(name)
        if not self._marked:
            self._marked = True
            self.mark_used()
        return data

    def check(self, name: str) -> bytes:
        """`read` that does not count as a use."""
        try:
            return self._read(name)
        except Unfit as problem:
            raise errors.CacheFileDamaged(name=name, entry=self.id, problem=str(problem)) from None
        except OSError as problem:
            raise errors.CacheFileDamaged(name=name, entry=self.id, problem=reason(problem)) from problem

    def _read(self, name: str) -> bytes:
        fact = self.facts.get(name)
        if fact is None:
            raise Unfit("the manifest names no such file")
        data, _ = read(self.layout.blob(fact.sha256), fact.size)
        if len(data) != fact.size:
            raise Unfit(f"it has {len(data)} bytes, not {fact.size}")
        if digest_of(data) != fact.sha256:
            raise Unfit("its SHA-256 is not the manifest's")
        return data

    def mark_used(self) -> None:
        """Make this the entry that was used last; where the folder is read-only, nothing happens."""
        with contextlib.suppress(OSError):
            os.utime(self.layout.manifest(self.key, self.id), follow_symlinks=False)


def load(layout: Layout, key: str, entry_id: str) -> Entry:
    """Read a manifest. Raises Unfit for one that cannot be used, OSError where it cannot be read."""
    data, info = read(layout.manifest(key, entry_id), MAX_BYTES)
    manifest, facts = decode(key, entry_id, data)
    return Entry(key, entry_id, manifest, info.st_mtime_ns / 1e9, layout, facts, len(data))
