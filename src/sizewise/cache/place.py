"""Where the store is, and whether it can be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..config import env
from ..errors import cache as errors
from .files import distrust, reason

SCHEMA = 1
"""The number of the layout and of the manifests. Another number is another folder: versions do not meet."""

FOLDERS = ("entries", "blobs", "locks")


def cache_root() -> Path:
    """The folder for all that Sizewise keeps: SIZEWISE_CACHE_DIR, else the user's cache directory."""
    folder = env.cache_dir()
    if not folder:
        # Only where it is needed: warm starts count milliseconds.
        import platformdirs

        folder = platformdirs.user_cache_dir("sizewise", appauthor=False)
    return Path(os.path.realpath(folder))


def programs_folder(root: Path) -> Path:
    """The folder of the store below a root."""
    return root / f"programs-{SCHEMA}"


def refusal(root: Path) -> errors.CacheFolderRefused | None:
    """Why a root is not used, or None; a root that does not exist yet is fine.

    Folders above the root are not looked at: whoever can exchange it cannot give a file the user's ownership,
    which is checked for every file that is read.
    """
    folder = programs_folder(root)
    for place in (root, folder, *(folder / name for name in FOLDERS)):
        try:
            info = os.stat(place)
        except FileNotFoundError:
            continue
        except OSError as problem:
            todo = "make it readable"
            return _refused(root, place, f"cannot be looked at: {reason(problem)}", todo)
        if not stat.S_ISDIR(info.st_mode):
            return _refused(root, place, "is no folder", "remove it")
        if wrong := distrust(info):
            todo = f"take it over (chown {os.geteuid()})" if "belongs" in wrong else f"run chmod go-w {place}"
            return _refused(root, place, wrong, todo)
    return None


def _refused(root: Path, place: Path, problem: str, todo: str) -> errors.CacheFolderRefused:
    where = "it" if place == root else f"{place.relative_to(root)} in it"
    return errors.CacheFolderRefused(folder=root, place=where, problem=problem, todo=todo)
