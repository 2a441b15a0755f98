"""Search over the errors. ``assets/site.js`` follows the same rule in the browser.

A query is cut at spaces. Errors that hold every part of it come first: in code, id, class or message, or as the name
of the package; where there are none, those that hold most of the parts, at least half. Among equals: the one whose
code or id was asked for, then messages that start with the query, then those that hold it as it is, then Sizewise's
own.
"""

from __future__ import annotations

from collections.abc import Sequence

from .face import Face


def find(faces: Sequence[Face], query: str) -> list[Face]:
    """The errors that a query finds, best first; all of them for a query of spaces."""
    parts = list(dict.fromkeys(query.lower().split()))
    if not parts:
        return list(faces)
    phrase = " ".join(query.lower().split())
    counted = [(_held(face, parts), number) for number, face in enumerate(faces)]
    most = max((count for count, _ in counted), default=0)
    if 2 * most < len(parts) or not most:
        return []
    found = [number for count, number in counted if count == most]
    return [faces[number] for number in sorted(found, key=lambda number: (*_rank(faces[number], phrase), number))]


def _held(face: Face, parts: Sequence[str]) -> int:
    text = text_of(face)
    return sum(part in text or part == face.package for part in parts)


def text_of(face: Face) -> str:
    """What of an error is searched."""
    message = " ".join(face.message.split())
    return f"{face.code or ''} {face.id} {face.error_class or ''} {message}".lower()


def _rank(face: Face, phrase: str) -> tuple[bool, bool, bool]:
    message = " ".join(face.message.lower().split())
    named = phrase in ((face.code or "").lower(), face.id)
    return (not named, not message.startswith(phrase), phrase not in text_of(face))
