"""Titles of errors in lists: at most 60 characters, cut behind a word and never inside a hole."""

from __future__ import annotations

import re

from ..errors.record import TITLE_LENGTH, holes_emptied

HOLE = 30
"""A hole with more characters than this is shown as ``{…}``."""
LEAST = 20
"""A title has at least so many characters in front of where it is cut, if it can."""
_HOLE = re.compile(r"\{[^{}]*\}")
_WORDS = re.compile(r"[^\W\d_]{2}")


def title_of(message: str, error_class: str | None = None, function: str = "") -> str:
    """A message's template as a title; that of one without any words is its class and function."""
    if not says_words(message) and (error_class or function):
        names = ((error_class or "").rpartition(".")[2], function)
        return _cut(" in ".join(name for name in names if name))
    text = _masked(" ".join(message.split()))
    return _cut(_HOLE.sub(lambda hole: hole[0] if len(hole[0]) <= HOLE else "{…}", text))


def says_words(message: str) -> bool:
    """Whether a template says any word outside of its holes."""
    return bool(_WORDS.search(_HOLE.sub(" ", holes_emptied(message).replace("{}", " "))))


_MASKS = (("{{", "\0"), ("}}", "\1"))
"""Literal braces are one character each while a text is cut, so that none is taken for a hole's."""


def _masked(text: str) -> str:
    for braces, mask in _MASKS:
        text = text.replace(braces, mask)
    return text


def _unmasked(text: str) -> str:
    for braces, mask in _MASKS:
        text = text.replace(mask, braces)
    return text


def _cut(text: str) -> str:
    if len(_unmasked(text)) <= TITLE_LENGTH:
        return _unmasked(text)
    room = TITLE_LENGTH - 1 - sum(text[:TITLE_LENGTH].count(mask) for _, mask in _MASKS)
    spaces = [at for at in range(room, LEAST, -1) if text[at] == " "]
    holes = [range(hole.start() + 1, hole.end()) for hole in _HOLE.finditer(text)]
    # Behind a word; in one long word where there is room, but in front of a hole rather than in it.
    last = next((hole.start - 1 for hole in holes if room in hole), room)
    at = next((at for at in spaces if not any(at in hole for hole in holes)), last)
    return f"{_unmasked(text[:at]).rstrip(' ,;:.(')}…"
