"""Which records of an index could be what was told: by the words of the message, and by the place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..store import Store, Stored
from .told import Frame, Told

MOST_WORDS = 24
BY_WORDS = 60
FRAMES = 4
"""As many frames are looked at, from the last: a check that raises for another function stands at the end."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,60}")
_COMMON = frozenset(
    {
        "the",
        "and",
        "for",
        "not",
        "but",
        "got",
        "are",
        "was",
        "with",
        "this",
        "that",
        "from",
        "has",
        "have",
        "had",
        "its",
        "you",
        "your",
        "can",
        "may",
        "must",
        "should",
        "will",
        "when",
        "if",
        "then",
        "than",
        "does",
        "did",
        "use",
        "used",
        "using",
        "been",
        "being",
        "only",
        "into",
        "out",
        "all",
        "any",
        "one",
        "none",
        "some",
        "such",
        "which",
        "there",
        "here",
        "now",
        "yet",
        "set",
        "see",
        "try",
        "please",
        "error",
        "value",
        "values",
        "type",
        "expected",
        "given",
        "found",
        "self",
        "python",
        "file",
        "line",
        "true",
        "false",
    }
)


def candidates(told: Told, store: Store) -> list[Stored]:
    """At most about a hundred records, each once; the likeliest by words first."""
    found: dict[str, Stored] = {}
    for stored in store.search(search_words(told), BY_WORDS):
        found.setdefault(stored.id, stored)
    for stored in _by_place(told, store):
        found.setdefault(stored.id, stored)
    return list(found.values())


def search_words(told: Told) -> list[str]:
    """The words that tell messages apart, longest first."""
    text = told.message[:3000] or (told.last.source if told.last else "")
    names = dict.fromkeys(name for name in _NAME.findall(text) if name.lower() not in _COMMON)
    return sorted(names, key=len, reverse=True)[:MOST_WORDS]


def _by_place(told: Told, store: Store) -> Iterator[Stored]:
    last = told.last
    if last is not None and re.match(r"raise [A-Z]", last.source) and len(last.function) > 5:
        # Functions move between files more often than they are renamed.
        yield from store.at(".py", function_of(last), 10)
    for frame in told.frames[-FRAMES:]:
        if frame.function and frame.parts:
            yield from store.at("/" + frame.parts[-1], function_of(frame), 20)


def function_of(frame: Frame) -> str:
    """The function's own name; Python 3.11 and later may write the qualified one."""
    return frame.function.rpartition(".")[2]
