"""Messages that Python and numpy have as well: a message alone does not say which package's it is."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from .wording import letters

Others = Literal["python", "numpy"]
MESSAGES = Path(__file__).resolve().parent / "messages"
OF_A_TEMPLATE = 0.6
"""Share of a record's own letters that the other's template has at least: a shorter one fits by chance."""
_HOLE = "{}"


def twin(text: str, own: int = 0) -> Others | None:
    """Whose message, too, this is; None for neither's.

    ``text``: on one line. ``own``: letters and digits that the package's template has of its own.
    """
    text = text.rstrip(". ")
    for name in ("python", "numpy"):
        for longest, pieces in _templates(name):
            if longest in text and _fits(pieces, text) and sum(map(letters, pieces)) >= OF_A_TEMPLATE * own:
                return name
    return None


# Read where a message stands alone: most texts have frames.
@lru_cache(maxsize=2)
def _templates(name: Others) -> list[tuple[str, list[str]]]:
    lines = (MESSAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[1:]
    pieces = (line.rstrip(". ").split(_HOLE) for line in lines)
    return [(max(one, key=len), one) for one in pieces]


def _fits(pieces: list[str], text: str) -> bool:
    """Whether the pieces are in the text in order, and fill it from end to end."""
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    position = 0
    for piece in pieces:
        at = text.find(piece, position)
        if at < 0:
            return False
        position = at + len(piece)
    return len(pieces) > 1 or text == pieces[0]
