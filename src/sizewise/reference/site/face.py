"""What search and related errors need of an error, small enough to keep for every one of them."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...errors.record import holes_emptied
from ..records import severity_of
from ..store import Site, Stored
from ..titles import says_words, title_of
from .entry import Entry
from .indexed import groups_of

_WORD = re.compile(r"[a-z][a-z0-9_]{2,}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_KINDS: tuple[type, ...] = (str, bytes, list, tuple, dict, set)
_SAYS_NOTHING = (
    frozenset(dir(builtins))
    | {
        "self",
        "cls",
        "torch",
        "and",
        "or",
        "not",
        "is",
        "in",
        "if",
        "else",
        "for",
        "lambda",
        "exists",
        "is_file",
        "is_dir",
    }
    | {name for kind in _KINDS for name in dir(kind)}
)
_SMALL_WORDS = frozenset(
    {"the", "and", "for", "with", "that", "this", "are", "was", "has", "have", "not", "but", "its", "from", "must"}
)


@dataclass(frozen=True, slots=True)
class Face:
    """One error as lists show it. ``names`` stand in the conditions of its sites, ``places`` are path and function."""

    id: str
    slug: str
    message: str
    code: str | None
    error_class: str | None
    severity: str
    package: str
    groups: tuple[str, ...]
    names: frozenset[str]
    places: frozenset[tuple[str, str]]
    words: frozenset[str]
    function: str = ""
    """The function of its first site."""

    @property
    def title(self) -> str:
        return title_of(self.message, self.error_class, self.function)

    @property
    def template(self) -> str:
        """The message without what its holes say: equal for errors that say the same; "" for one that says no word."""
        return holes_emptied(self.message) if says_words(self.message) else ""


def face_of_entry(entry: Entry) -> Face:
    record = entry.record
    return Face(
        id=record.id,
        slug=record.slug,
        message=record.errorMessage,
        code=record.errorCode,
        error_class=record.errorClass,
        severity=record.severity,
        package=entry.package,
        groups=entry.groups,
        names=_names(entry.sites),
        places=_places(entry.sites),
        words=words_of(record.errorMessage),
        function=entry.sites[0].qualname if entry.sites else "",
    )


def face_of_stored(stored: Stored) -> Face:
    message = message_of(stored)
    return Face(
        id=stored.id,
        slug=stored.slug,
        message=message,
        code=None,
        error_class=stored.error_class,
        severity=severity_of(stored, stored.sites[0]),
        package=stored.distribution.name,
        groups=groups_of(stored.sites[0].path),
        names=_names(stored.sites),
        places=_places(stored.sites),
        words=words_of(message),
        function=stored.sites[0].qualname,
    )


def message_of(stored: Stored) -> str:
    """What stands for the message in the record: an assert without one has none."""
    return stored.template or stored.error_class or stored.kind


def words_of(message: str) -> frozenset[str]:
    """The words of a message outside its holes, short and common ones left out."""
    return frozenset(_WORD.findall(holes_emptied(message).lower())) - _SMALL_WORDS


def names_in(condition: str) -> frozenset[str]:
    """The identifiers of a condition, attributes among them.

    Without builtins, the methods of built-in types, and names of one or two letters, which say nothing of it.
    """
    try:
        found = set(_identifiers(ast.parse(condition.strip(), mode="eval")))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        found = set(_IDENTIFIER.findall(_QUOTED.sub("", condition)))
    return frozenset(name for name in found - _SAYS_NOTHING if len(name) > 2)


def _identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _names(sites: Iterable[Site]) -> frozenset[str]:
    return frozenset().union(*(names_in(site.condition) for site in sites if site.condition))


def _places(sites: Iterable[Site]) -> frozenset[tuple[str, str]]:
    # The body of a module is no function.
    return frozenset((site.path, site.qualname) for site in sites if site.qualname not in ("", "<module>"))
