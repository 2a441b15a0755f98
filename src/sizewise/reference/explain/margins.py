"""What stands in front of every line of a traceback, whatever it is: told from where its own marks stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_SHAPES = 6
"""Different margins that are looked for in a text."""
MARGIN = 160
"""Characters of a margin at most."""
_ANCHOR = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\)|File \"[^\"]{1,300}\", line \d")
_NOTEBOOK = re.compile(r"\w{1,80}\s{2,}$")
_GROUP = re.compile(r"[ |+-]*$")
_TIME = re.compile(r"\d{1,2}:\d\d")
_LEVELS = re.compile(r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL", re.IGNORECASE)
_VARIES = re.compile(r"\d+|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL", re.IGNORECASE)


@dataclass(frozen=True)
class Margin:
    """A margin's shape: the same text, but for numbers and levels. ``blank``: what is left of it on an empty line."""

    shape: re.Pattern[str]
    blank: re.Pattern[str]


def without_margins(texts: Sequence[str]) -> list[tuple[str, str]]:
    """(whose line it is, as far as the margin tells, and the line without it) for each line."""
    margins = _found(texts)
    lines = [_taken(text, margins) for text in texts] if margins else [("", text) for text in texts]
    said = _told_apart([margin for margin, _ in lines])
    rest = _dedented([text for _, text in lines])
    return list(zip(said, rest, strict=True))


def _found(texts: Sequence[str]) -> list[Margin]:
    found: dict[str, Margin] = {}
    for number, text in enumerate(texts):
        if len(found) == MOST_SHAPES:
            break
        if (margin := _margin_of(text)) is None:
            continue
        shape = "".join(_shape_of(margin))
        if shape in found:
            continue
        one = Margin(re.compile(shape), re.compile("".join(_shape_of(margin.rstrip())) + r"\s*$"))
        if _goes_on(texts[number + 1 : number + 4], one.shape):
            found[shape] = one
    return list(found.values())


def _margin_of(text: str) -> str | None:
    """What stands before a mark of a traceback, None for nothing and for what is read elsewhere."""
    if "Traceback (" not in text and 'File "' not in text:
        return None
    anchor = _ANCHOR.search(text)
    if anchor is None:
        return None
    margin = text[: anchor.start()]
    if anchor[0].startswith("File"):
        if not margin.endswith("  "):
            return None
        margin = margin[:-2]
    if not margin.strip() or len(margin) > MARGIN or _GROUP.match(margin) or _NOTEBOOK.fullmatch(margin):
        return None
    return margin


def _shape_of(margin: str) -> list[str]:
    parts: list[str] = []
    position = 0
    for found in _VARIES.finditer(margin):
        parts.append(re.escape(margin[position : found.start()]))
        parts.append(r"\d+" if found[0].isdigit() else f"(?i:{_LEVELS.pattern})")
        position = found.end()
    return [*parts, re.escape(margin[position:])]


def _goes_on(after: Sequence[str], shape: re.Pattern[str]) -> bool:
    """Whether one of the next lines has the margin, and behind it what stands in a traceback."""
    for text in after:
        found = shape.match(text)
        if found and re.match(r"\s*File \"|\s{2,}\S|\s*[|+]|\w[\w.]*(?:Error|Exception|Warning)", text[found.end() :]):
            return True
    return False


def _taken(text: str, margins: Sequence[Margin]) -> tuple[str, str]:
    for one in margins:
        if found := one.shape.match(text):
            return found[0], text[found.end() :]
        if one.blank.match(text):
            return "", ""
    return "", text


def _told_apart(margins: Sequence[str]) -> list[str]:
    """The margins where they tell processes apart; "" where they are times, or numbers of lines."""
    kinds = {margin for margin in margins if margin}
    lines = sum(map(bool, margins))
    if len(kinds) < 2 or 3 * len(kinds) > lines or any(map(_TIME.search, kinds)):
        return [""] * len(margins)
    return [margin.strip() for margin in margins]


def _dedented(texts: list[str]) -> list[str]:
    """Without the spaces in front of a whole traceback; they end where a line has fewer."""
    spaces = ""
    lines: list[str] = []
    for text in texts:
        if not spaces and text[:1].isspace() and "Traceback (" in text and (found := _ANCHOR.search(text)):
            before = text[: found.start()]
            spaces = before if before.isspace() else ""
        if spaces and text.startswith(spaces):
            text = text[len(spaces) :]
        elif spaces and text.strip():
            spaces = ""
        lines.append(text)
    return lines
