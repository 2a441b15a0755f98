"""Torch's registry of graph breaks: the file ``graph_break_registry.json`` beside the sources, read without import.

Private API: the file's place and form, as torch 2.11 to 2.13 have them. Where it is missing or has another form
nothing is known.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..store import Store
from . import Advice

PLACE = "torch/_dynamo/graph_break_registry.json"
ID = re.compile(r"[Gg][Bb]-?(\d{4})")
_LINKED = re.compile(r"/gb/gb(\d{4})\.html")
LINK = "https://meta-pytorch.github.io/compile-graph-break-site/gb/{}.html"


def id_of(name: str) -> str:
    """The id that a name is, as the registry writes it; "" for any other name."""
    found = ID.fullmatch(name)
    return f"GB{found[1]}" if found else ""


def id_in(message: str) -> str:
    """The id that torch's link in a message names; "" where there is none."""
    found = _LINKED.search(message)
    return f"GB{found[1]}" if found else ""


def graph_break(key: str, store: Store | None) -> Advice | None:
    """What the registry of the indexed torch, or else of the installed one, says of an id; None if nothing."""
    for root, version in _roots(store) if key else ():
        path = root / PLACE
        if path.is_file():
            return _advice(key, version, _newest(path, key))
    return None


def _roots(store: Store | None) -> Iterator[tuple[Path, str]]:
    """Folders that may hold torch, and its version where that is known."""
    for one in store.distributions() if store is not None else ():
        if one.name == "torch":
            yield Path(one.root), one.version
    yield from ((Path(folder), "") for folder in sys.path if folder)


def _newest(path: Path, key: str) -> dict[str, Any]:
    """The first wording of an id that is text: torch puts the newest first, and some are pieces of source."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        wordings = [dict(one) for one in known[key]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return next((one for one in wordings if _is_text(one.get("Explanation"))), {**wordings[0]} if wordings else {})


def _is_text(said: object) -> bool:
    return isinstance(said, str) and " " in said.strip() and said.strip()[0] not in "\"'_"


def _advice(key: str, version: str, entry: dict[str, Any]) -> Advice | None:
    title, said, hints = entry.get("Gb_type"), entry.get("Explanation"), entry.get("Hints")
    if not isinstance(title, str) or not isinstance(said, str):
        return None
    return Advice(
        title=title,
        package="torch's registry of graph breaks",
        read_in=version,
        origin="torch._dynamo, where it cannot trace on",
        documentation=_plain(said) if _is_text(said) else "",
        solutions=tuple(_plain(hint) for hint in hints if _is_text(hint)) if isinstance(hints, list) else (),
        why=f"graph break: {key}",
        link=LINK.format(key.lower()),
    )


def _plain(text: str) -> str:
    return " ".join(text.split())
