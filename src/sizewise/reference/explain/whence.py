"""Whose file a frame names: that of an installed package, Python's own, one that was made, or the reader's."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from ..store import Site, Stored
from .told import Frame, Told

_GENERIC = frozenset({"__init__.py", "__main__.py"})
"""Names that files of every package have: they tell nothing without their folders."""
_MADE = re.compile(r"<(?!stdin>|string>|module>|ipython-input|frozen )|.*(?:torchinductor_|torch_compile_debug)")
_CHECKS = frozenset({"_check", "_check_with", "_check_value", "_check_index", "_check_type", "_check_is_size",
                     "_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with"})  # fmt: skip
"""Functions of torch that raise what another package's code has told them."""


def tail_in(frame: Frame, top: str, root: str) -> tuple[str, ...]:
    """The path from the package's folder ``top`` on, or () where the file is not below it.

    Outside of an environment (a checkout, a folder of one's own that has a package's name) what stands below the
    folder has to be in the installed package, whose folders are in ``root``.
    """
    return _tail_in(frame.path, top, root)


# Asked for every site of every record that is weighed.
@lru_cache(maxsize=512)
def _tail_in(path: str, top: str, root: str) -> tuple[str, ...]:
    frame = Frame(path, 0, "")
    if installed := frame.installed:
        return installed if installed[0].removesuffix(".py") == top else ()
    parts = frame.parts
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == top:
            return parts[at:] if _is_there(root, top, parts[at + 1]) else ()
    return ()


@lru_cache(maxsize=256)
def _is_there(root: str, top: str, name: str) -> bool:
    folder = os.path.join(root, top)
    if not os.path.isdir(folder):
        return True  # the package is gone: nothing says that it never had this
    stem = name.removesuffix(".py")
    return any(os.path.exists(os.path.join(folder, one)) for one in (stem, f"{stem}.py"))


def top_of(site: Site) -> str:
    """The top folder of a site, or the module where it is in none."""
    return site.path.partition("/")[0].removesuffix(".py")


def belongs(frame: Frame, stored: Stored) -> bool:
    """Whether a frame is in the record's package."""
    root = stored.distribution.root
    return any(tail_in(frame, top, root) for top in {top_of(site) for site in stored.sites})


def same_file(frame: Frame, site: Site, root: str) -> bool:
    """Whether a frame's file is the site's, or has its name and may have moved inside the package."""
    tail = tail_in(frame, top_of(site), root)
    name = site.path.rpartition("/")[2]
    return bool(tail) and tail[-1] == name and (name not in _GENERIC or "/".join(tail) == site.path)


def alike(frame: Frame, site: Site) -> int:
    """How many parts of the paths agree, from the end."""
    number = 0
    for said, held in zip(reversed(frame.parts), reversed(site.path.split("/")), strict=False):
        if said != held:
            break
        number += 1
    return number


def raised_in(told: Told, stored: Stored) -> Frame | None:
    """The frame that raised, None where the text does not say. For a check, the frame that asked for it."""
    if not told.adjacent or not told.frames:
        return None
    frames = told.frames
    if stored.kind == "check":
        while len(frames) > 1 and frames[-1].parts[-2:] == ("torch", "__init__.py") and frames[-1].function in _CHECKS:
            frames = frames[:-1]
    return frames[-1]


def made(frame: Frame) -> bool:
    """Whether the frame is in code that a compiler made: nobody's file."""
    return bool(_MADE.match(frame.path))


def elsewhere(told: Told, stored: Stored) -> bool:
    """Whether the text says that a file outside of the record's package raised the error."""
    frame = raised_in(told, stored) if told.kind == "exception" else None
    return frame is not None and not made(frame) and not belongs(frame, stored)
