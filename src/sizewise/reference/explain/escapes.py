"""Texts as they were before a logger, a page or a mail wrote them down: JSON strings, entities, other spaces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_JSON = 3000
"""Lines that are read as JSON."""
DEEP = 3
"""As often a text may have been written into another one."""
_ENTITY = re.compile(r"&(?:quot|apos|lt|gt|amp|nbsp|#0?3[49]|#[xX](?:22|27));")
_SPACE = re.compile("[\xa0\u2007\u202f\u3000]")
_NOTHING = re.compile("[\u200b\ufeff]")
_QUOTES = {0x201C: '"', 0x201D: '"', 0x201E: '"'}
_MARK = "Traceback (most recent call last)"
_KEYS = ("log", "message", "msg", "MESSAGE", "event", "text", "textPayload", "body", "error")
"""Where loggers that write JSON have the line itself."""
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PYTHON = re.compile(r"'((?:[^'\\]|\\.)*)'")
_ESCAPE = re.compile(r"\\(r\\n|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)")
_PLAIN = {"n": "\n", "t": "\t", "r\\n": "\n", "r": "\n"}


def unescaped(text: str) -> str:
    """The text with what it says, not how it was written down."""
    if not text.isascii():
        text = _SPACE.sub(" ", _NOTHING.sub("", text))
        if "File \u201c" in text or "File \u201e" in text:
            text = text.translate(_QUOTES)
    if "&" in text and _ENTITY.search(text):
        import html

        text = html.unescape(text)
    if 'File ""' in text:
        text = text.replace('""', '"')  # a field of a table
    for _ in range(DEEP):
        if '{"' not in text and not (_MARK in text and "\\n" in text):
            break
        text, before = "\n".join(_lines(text)), text
        if text == before:
            break
    return text


def _lines(text: str) -> Iterator[str]:
    left = MOST_JSON
    for line in text.splitlines():
        if left and line.lstrip()[:2] in ('{"', "{ ") and line.rstrip()[-1:] == "}":
            left -= 1
            said = _of_json(line)
            yield line if said is None else said
        elif "\\n" in line and _MARK in line:
            yield _of_literal(line)
        else:
            yield line


def _of_json(line: str) -> str | None:
    try:
        held = json.loads(line)
    except (ValueError, RecursionError):
        return _of_literal(line) if _MARK in line else None
    texts = list(_texts(held, ""))
    if found := [text for _, text in texts if _MARK in text]:
        return max(found, key=len)
    by_key = dict(reversed(texts))
    said = next((by_key[key] for key in _KEYS if key in by_key), None)
    return None if said is None else said.removesuffix("\n")


def _texts(held: Any, key: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """(key, text) of every text in what JSON holds."""
    if isinstance(held, str):
        yield key, held
    elif isinstance(held, dict) and depth < 8:
        for name, value in held.items():
            yield from _texts(value, name, depth + 1)
    elif isinstance(held, list) and depth < 8:
        for value in held:
            yield from _texts(value, key, depth + 1)


def _of_literal(line: str) -> str:
    """The text of the quoted string that holds a traceback; the whole line where none does."""
    for pattern in (_STRING, _PYTHON):
        if found := next((one for one in pattern.finditer(line) if _MARK in one[1]), None):
            return _decoded(found[1])
    return _decoded(line)


def _decoded(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) > 1 and what[0] in "ux":
        return chr(int(what[1:], 16))
    return _PLAIN.get(what, what)
