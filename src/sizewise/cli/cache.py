"""`sizewise cache`: the compiled programs kept on disk.

The JSON answers:

    path    {"path": str, "exists": bool, "writable": bool, "problem": str | null}
    ls      {"path": str, "bytes": int, "limit": int,
             "entries": [{"id": str, "key": str, "owner": str | null, "built": ..., "torch": ..., "sizes": ...,
                          "files": int, "bytes": int, "used": float}]}
    verify  {"healthy": bool, "path": str, "entries": int, "blobs": int, "bytes": int,
             "problems": [{"path": str, "problem": str, "damaged": bool,
                           "programs": [{"id": str, "owner": str | null, "sizes": ...}]}]}
    prune, clear
            {"path": str, "bytes": int, "removed": {"entries": int, "blobs": int, "temporary": int, "bytes": int}}

``used`` is in seconds since the epoch; ``built``, ``torch`` and ``sizes`` are what the program's manifest says, null
where it cannot be read. ``damaged`` is false for what the system did not let be read. `cache why` says the same ``id``;
people are shown its beginning.
"""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import ANSWER_IS_NO, AsJson, console, show, show_json, table

if TYPE_CHECKING:
    from ..cache import Entry, Problem, Removed, Store

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE | re.ASCII)
_DIGEST = re.compile("[0-9a-f]{64}")
_MOMENT = "%Y-%m-%d %H:%M"
ID_SHOWN = 12
"""Digits of a program's id, in what people read."""


def path(json: AsJson = False) -> None:
    """Print the folder of the cache: below SIZEWISE_CACHE_DIR, or in the user's cache directory.

    Example: sizewise cache path
    """
    from ..cache import cache_root
    from ..cache.place import programs_folder, refusal

    root = cache_root()
    folder, problem = programs_folder(root), refusal(root)
    if json:
        show_json(
            {
                "path": str(folder),
                "exists": folder.is_dir(),
                "writable": problem is None and _writable(folder),
                "problem": None if problem is None else str(problem),
            }
        )
        return
    show(str(folder))
    if problem is not None:
        _note(str(problem))


def _writable(folder: Path) -> bool:
    """Whether the folder can be written, or made."""
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def ls(json: AsJson = False) -> None:
    """List the programs in the cache, the one used last first.

    Example: sizewise cache ls --json
    """
    store = asked_store()
    entries, size = store.entries(), store.size()
    if json:
        rows = [_as_data(entry) for entry in entries]
        show_json({"path": str(store.folder), "bytes": size, "limit": store.limit, "entries": rows})
        return
    if entries:
        columns = ("", "program", "built", "torch", "sizes", "bytes", "last used")
        show(table(columns, [_cells(entry) for entry in entries]))
    show(f"{count(len(entries), 'program')}, {in_words(size)} of {in_words(store.limit)} in {store.folder}")


def _as_data(entry: Entry) -> dict[str, Any]:
    told = entry.manifest
    return {
        "id": entry.id,
        "key": entry.key,
        "owner": None if told.get("owner") is None else str(told["owner"]),
        **{name: told.get(name) for name in ("built", "torch", "sizes")},
        "files": len(entry.names),
        "bytes": entry.size,
        "used": entry.used,
    }


def _cells(entry: Entry) -> tuple[str, ...]:
    told = entry.manifest
    return (
        entry.id[:ID_SHOWN],
        _plain(told.get("owner")),
        _moment(told.get("built")),
        _plain(told.get("torch")),
        _plain(told.get("sizes")),
        in_words(entry.size),
        _moment(entry.used),
    )


def _plain(value: Any) -> str:
    """A manifest's value in a cell; whatever it is."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return "" if value is None else str(value)


def _moment(value: Any) -> str:
    """Seconds since the epoch, or a moment as a manifest has it, as local time; other values as they are."""
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value).astimezone().strftime(_MOMENT)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _plain(value)
        return time.strftime(_MOMENT, time.localtime(value))
    except (ValueError, OverflowError, OSError):
        return _plain(value)


def verify(json: AsJson = False) -> None:
    """Read every program in the cache; say which are damaged, and what to do.

    Damage does no harm: a damaged program is not used, and built again by the
    next process that needs it. Exit code 1: something is damaged.

    Example: sizewise cache verify
    """
    store = asked_store()
    found = store.verify()
    if json:
        show_json({"healthy": not found.problems, "path": str(store.folder), **asdict(found)})
    else:
        if found.problems:
            columns = ("", "program", "sizes", "what is wrong", "in the cache")
            show(table(columns, [row for each in found.problems for row in _problem_rows(store, each)]))
        read = f"{count(found.entries, 'program')} and {count(found.blobs, 'file')}, {in_words(found.bytes)}, read"
        show(f"{read}: {count(len(found.problems), 'problem')}.")
        for line in _remedies(found.problems):
            show(line)
    if found.problems:
        raise typer.Exit(ANSWER_IS_NO)


def _problem_rows(store: Store, each: Problem) -> list[tuple[str, ...]]:
    # Whole names would fill two lines each; --json has them.
    path = _DIGEST.sub(lambda found: f"{found[0][:ID_SHOWN]}...", str(each.path.relative_to(store.folder)))
    about = (each.problem, path)
    rows: list[tuple[str, ...]] = [
        (one.id[:ID_SHOWN], _plain(one.owner) or "unknown", _plain(one.sizes), *about) for one in each.programs
    ]
    return rows or [("", "none", "", *about)]


def _remedies(problems: list[Problem]) -> list[str]:
    """What to do about all of them."""
    lines = []
    if any(each.damaged for each in problems):
        lines.append(
            "Nothing has to be done: what is damaged is never used, and the next process that needs the program builds "
            "it again. To remove it now: sizewise cache prune. Where it comes back, look at the disk."
        )
    if not all(each.damaged for each in problems):
        lines.append("What the system does not let be read stays: look at its owner, its mode and the disk.")
    return lines


def prune(
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="SIZE", help="The size to come down to: 500MB, 2GiB, 0. The limit by default."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Remove what is damaged, then make room: the programs that were used longest ago go first.

    Files that no program names are removed when they are older than an hour.

    Example: sizewise cache prune --to 500MB
    """
    limit = None if to is None else parse_size(to)
    store = asked_store()
    _show_removed(store, store.prune(limit), json)


def clear(json: AsJson = False) -> None:
    """Remove every program from the cache.

    Example: sizewise cache clear
    """
    store = asked_store()
    _show_removed(store, store.clear(), json)


def _show_removed(store: Store, removed: Removed, json: bool) -> None:
    size = store.size()
    if json:
        show_json({"path": str(store.folder), "bytes": size, "removed": asdict(removed)})
        return
    files = count(removed.blobs + removed.temporary, "file")
    show(f"Removed {count(removed.entries, 'program')} and {files}, {in_words(removed.bytes)}.")
    show(f"{in_words(size)} are left in {store.folder}")


def asked_store() -> Store:
    """Raises SW604: to whoever asks about the cache, an answer about nothing would be wrong."""
    from ..cache import Store, cache_root
    from ..cache.place import refusal

    root = cache_root()
    problem = refusal(root)
    if problem is not None:
        raise problem
    return Store(root)


def parse_size(text: str) -> int:
    """Bytes of "500MB" (decimal), "2GiB" (binary) or a plain number. Raises typer.BadParameter."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size: write 500MB, 2GiB or 0", param_hint="--to")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def in_words(size: int) -> str:
    """Bytes for people: 12.3 MiB."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def in_a_line(entry: Entry) -> str:
    """A program as the listing shows it: its id, whose it is, its sizes, when it was built."""
    told = entry.manifest
    parts = (f"{entry.id[:ID_SHOWN]} {_plain(told.get('owner'))}", _plain(told.get("sizes")))
    built = f"built {_moment(told['built'])}" if told.get("built") is not None else ""
    return ", ".join(part.strip() for part in (*parts, built) if part.strip())


def count(number: int, what: str) -> str:
    """1 program, 2 programs."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _note(text: str) -> None:
    console(sys.stderr).print(f"Note: {text}", soft_wrap=True, markup=False)
