"""The paths of the store, and what lies there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .files import TEMPORARY
from .manifest import is_digest

MANIFEST = ".json"


@dataclass(frozen=True)
class Layout:
    """The paths below the store's folder."""

    folder: Path

    @property
    def locks(self) -> Path:
        return self.folder / "locks"

    def key_folder(self, key: str) -> Path:
        return self.folder / "entries" / key[:2] / key

    def manifest(self, key: str, entry_id: str) -> Path:
        return self.key_folder(key) / f"{entry_id}{MANIFEST}"

    def blob(self, digest: str) -> Path:
        return self.folder / "blobs" / digest[:2] / digest

    # -- what is there; a folder that is gone or never was holds nothing. OSError for one that cannot be listed.

    def ids(self, key: str) -> list[str]:
        """The ids of the manifests below a key."""
        names = (entry.name for entry in listed(self.key_folder(key)))
        return [name.removesuffix(MANIFEST) for name in names if name.endswith(MANIFEST) and is_digest(name[:-5])]

    def all_keys(self) -> list[str]:
        """Every key that has a folder."""
        folders = (listed(Path(part.path)) for part in listed(self.folder / "entries"))
        return sorted(entry.name for part in folders for entry in part if is_digest(entry.name))

    def blobs(self) -> dict[str, os.stat_result]:
        """Digest -> what the file system says of the blob."""
        found = {}
        for part in listed(self.folder / "blobs"):
            for entry in listed(Path(part.path)):
                if is_digest(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        found[entry.name] = entry.stat(follow_symlinks=False)
        return found

    def files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Every file below the folder, of whatever kind."""
        yield from _walk(self.folder)

    def temporary(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The files that somebody is writing, or was when it died."""
        return ((path, info) for path, info in self.files() if path.name.startswith(TEMPORARY))


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where there is none. Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for entry in listed(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
            continue
        with contextlib.suppress(FileNotFoundError):
            yield Path(entry.path), entry.stat(follow_symlinks=False)
