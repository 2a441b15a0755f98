"""What a text says of its own about the error that is answered: the message, the reader's line, the other errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .evidence import variants
from .paste import MOST_TOLD
from .told import Frame, Paste, Told
from .wording import flat, letters, pieces_of

HEADLINE = 100
"""Characters of an error's headline."""
OTHERS = 8
"""As many other errors of a text are listed."""
HOLES, VALUE = 6, 100
"""As many holes are shown with what filled them, each with so many characters."""
HOLE_NAME = 50
_HOLE = re.compile(r"\{([^{}]*)\}")
_LINK = re.compile(r"https://[^\s)\"'>]{4,300}")
_CONVERSION = re.compile(r"![rsa]$")
_RELATIONS = {"cause": "the cause of the one after it", "context": "the one after it came while this was handled"}


@dataclass(frozen=True)
class Seen:
    """What stands in the text. ``number`` of ``total``: which of its errors is the answered one, from 1."""

    error_class: str | None
    message: str
    frame: Frame | None
    """The innermost line outside of installed packages; None where the text has none."""
    filled: tuple[tuple[str, str], ...]
    """What stands in a template's hole -> what the message has there, where there is no doubt about it."""
    links: tuple[str, ...]
    number: int
    total: int
    others: tuple[str, ...]
    """The other errors' headlines, in the order of the text; the last ones of many."""
    cut: bool
    """Whether there may be more errors than were read."""
    cause: str = ""
    """The headline of the answered error, where it is the cause of another one, or was handled before that."""

    def to_json(self) -> dict[str, Any]:
        frame = self.frame
        return {
            "errorClass": self.error_class,
            "message": self.message,
            "frame": frame
            and {
                "filePath": frame.path,
                "lineNumber": frame.line,
                "qualname": frame.function or None,
                "source": frame.source or None,
            },
            "filled": [{"hole": hole, "text": text} for hole, text in self.filled],
            "links": list(self.links),
            "number": self.number,
            "errors": self.total,
            "others": list(self.others),
        }


def seen_of(paste: Paste, told: Told | None, template: str = "") -> Seen | None:
    """``told``: the error that is answered; ``template``: that of its record. None where no error was told."""
    if told is None:
        return None
    errors = errors_of(paste)
    at = next((number for number, one in enumerate(errors) if _key(one) == _key(told)), -1)
    others = [one for number, one in enumerate(errors) if number != at] if at >= 0 else []
    return Seen(
        error_class=told.error_class,
        message=told.message,
        frame=_frame(paste, told),
        filled=tuple(_filled_of(template, told)) if template else (),
        links=tuple(dict.fromkeys(link.rstrip(".,;") for link in _LINK.findall(told.message))),
        number=at + 1,
        total=len(errors) if at >= 0 else 1,
        others=tuple(headline(one) for one in others[-OTHERS:]),
        cut=len(paste.told) >= MOST_TOLD,
        cause=_plain(told) if told.relation in _RELATIONS else "",
    )


def errors_of(paste: Paste) -> list[Told]:
    """The errors of a text, each once: without what only carries another error or is named in one's message."""
    found: dict[tuple[str | None, str], Told] = {}
    for one in paste.told:
        if one.kind == "exception" and one.relation not in ("inside", "wrapper"):
            found.setdefault(_key(one), one)
    return list(found.values())


def _key(told: Told) -> tuple[str | None, str]:
    return told.error_class, flat(told.message)


def headline(told: Told) -> str:
    """Class and first line of an error, and how it belongs to the one after it."""
    relation = _RELATIONS.get(told.relation)
    return f"{_plain(told)} ({relation})" if relation else _plain(told)


def _plain(told: Told) -> str:
    first = told.message.strip().split("\n")[0]
    return shortened(f"{told.error_class or told.level or 'error'}: {first}".removesuffix(": "), HEADLINE)


def shortened(text: str, length: int) -> str:
    """At most ``length`` characters of a text, cut behind a word."""
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    start = cut.rpartition(" ")[0]
    return f"{start if len(start) > length // 2 else cut}…"


# -- the reader's own line


def _frame(paste: Paste, told: Told) -> Frame | None:
    own = _innermost(told)
    if own is not None or told not in paste.told:
        return own
    # An error that was carried from a worker has the worker's frames; the wrapper before it has the caller's.
    at = paste.told.index(told)
    before = paste.told[at - 1] if at else None
    return _innermost(before) if before is not None and before.relation == "wrapper" else None


def _innermost(told: Told) -> Frame | None:
    frames = (*told.frames, *told.user)
    return next((frame for frame in reversed(frames) if frame.own), None)


# -- what filled the holes


def _filled_of(template: str, told: Told) -> list[tuple[str, str]]:
    # The shortest first: what follows the first line may be of something else.
    for said in reversed(variants(told)):
        # Where an open end stops is not known in a message of several lines.
        if found := list(filled(template, said.text, "\n" not in told.message.strip())):
            return found
    return []


def filled(template: str, text: str, to_the_end: bool = True) -> Iterator[tuple[str, str]]:
    """(what stands in the hole, what the message has there) for the first holes about which there is no doubt.

    A hole's borders are beyond doubt where the literal text beside it, read from the left and from the right, is
    found at the same place. ``text`` is on one line; ``to_the_end``: whether a hole at the end ends where it does.
    """
    pieces = pieces_of(template)
    names = _HOLE.findall(template.replace("{{", "\0\0").replace("}}", "\1\1"))
    spans = _spans(pieces, text)
    if len(names) != len(pieces) - 1 or spans is None:
        return
    if not pieces[-1] and not to_the_end:
        spans[-1] = None
    shown = 0
    for name, before, after in zip(names, spans, spans[1:], strict=False):
        if before is None or after is None or shown == HOLES or not 0 < len(name) <= HOLE_NAME or name == "...":
            continue
        value = text[before.stop : after.start].strip()
        if value:
            shown += 1
            yield _CONVERSION.sub("", name), shortened(value, VALUE)


def _spans(pieces: Sequence[str], text: str) -> list[range | None] | None:
    """Where each literal piece stands, None where there is doubt; None instead of a list where they do not fit."""
    first = _from_left(pieces, text)
    last = _from_left([piece[::-1] for piece in reversed(pieces)], text[::-1])
    if first is None or last is None:
        return None
    found: list[range | None] = []
    for number, piece in enumerate(pieces):
        start, other = first[number], len(text) - last[len(pieces) - 1 - number] - len(piece)
        at_end = (number == 0 and start == 0) or (number == len(pieces) - 1 and other + len(piece) == len(text))
        if at_end and (piece or len(pieces) > 1):
            start = other = 0 if number == 0 else len(text) - len(piece)
        sure = start == other and (letters(piece) > 0 or bool(piece.strip()) or at_end)
        found.append(range(start, start + len(piece)) if sure else None)
    return found


def _from_left(pieces: Sequence[str], text: str) -> list[int] | None:
    position, found = 0, []
    for piece in pieces:
        at = text.find(piece, position)
        if at < 0:
            return None
        found.append(at)
        position = at + len(piece)
    return found
