"""Source text as a tree, where an expression in it is too deep for the parser as well."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise

_TOP = re.compile(r"^(?:@.*\n)*(?:async\s+def|def|class)\b", re.MULTILINE)
_METHOD = re.compile(r"^(?P<indent>[ \t]+)(?:@.*\n[ \t]+)*(?:async\s+def|def)\b", re.MULTILINE)
_JOINED = 8
"""A piece that is no program is read together with so many behind it: its head may have stood in a text."""
_TOO_DEEP = (RecursionError, MemoryError)


def parsed(text: str) -> tuple[ast.Module, int]:
    """The tree of a module, and how many functions or classes it is without because they are too deep for Python.

    Raises SyntaxError, ValueError (a null byte), RecursionError or MemoryError where nothing can be read.
    """
    try:
        return ast.parse(text), 0
    except _TOO_DEEP as problem:
        tree, left_out = _in_pieces(text)
        if not tree.body:
            raise problem
        return tree, left_out


def _in_pieces(text: str) -> tuple[ast.Module, int]:
    body: list[ast.stmt] = []
    left_out = 0
    pieces = list(_pieces(text, _TOP))
    while pieces:
        found, used, missed = _first(pieces)
        if found is not None:
            ast.increment_lineno(found, text.count("\n", 0, pieces[0][0]))
            body += found.body
        left_out += missed
        del pieces[:used]
    return ast.Module(body, []), left_out


def _pieces(text: str, head: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """(place, text) of what begins at each head, and of what is before the first."""
    starts = [0, *(match.start() for match in head.finditer(text)), len(text)]
    return ((start, text[start:end]) for start, end in pairwise(starts) if start < end)


def _first(pieces: list[tuple[int, str]]) -> tuple[ast.Module | None, int, int]:
    """The tree of the first pieces, of how many, and how many functions are missing from it."""
    for count in range(1, min(_JOINED, len(pieces)) + 1):
        text = "".join(piece for _, piece in pieces[:count])
        try:
            return ast.parse(text), count, 0
        except SyntaxError:
            continue
        except _TOO_DEEP:
            tree, missed = _without_deep_methods(text)
            return tree, count, missed
    return None, 1, 1


def _without_deep_methods(text: str) -> tuple[ast.Module | None, int]:
    parts: list[str] = []
    missed = 0
    for _, part in _pieces(text, _METHOD):
        head = _METHOD.match(part)
        if head is not None and _is_too_deep(textwrap.dedent(part)):
            part = f"{head['indent']}pass" + "\n" * part.count("\n")
            missed += 1
        parts.append(part)
    try:
        return ast.parse("".join(parts)), missed
    except (SyntaxError, *_TOO_DEEP):
        return None, max(1, missed)


def _is_too_deep(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    except _TOO_DEEP:
        return True
    return False
