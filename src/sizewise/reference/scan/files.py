"""Source files as text."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from pathlib import Path

LARGEST = 2_000_000
"""Bytes. What is larger was written by a program and takes minutes to read."""
LONGEST_LINE = 100_000
"""Bytes. Python's parser takes a time that grows with the square of a line's f-strings."""
MOST_MARKS = 200_000
"""Characters that are no letters, digits or spaces: a tree has at most about two nodes, 2 kB, for each of them."""
_MARKS = bytes(set(range(33, 127)) - set(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) + b"\n"
_SLOW_CODECS = ("punycode", "idna")
"""Text encodings whose time grows with the square of the text; no source is written in them."""


class Unreadable(Exception):
    """A file that is skipped. ``reason`` is counted: "unreadable", "not a file", "too large" or "encoding"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read(path: Path) -> str:
    """A source file's text in the encoding that it declares, with ``\\n`` for line ends. Raises `Unreadable`."""
    content = read_bytes(path, LARGEST)
    if len(content) > LONGEST_LINE and _too_much(content):
        raise Unreadable("too large")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if codecs.lookup(encoding).name in _SLOW_CODECS:
            raise Unreadable("encoding")
        text = content.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError):
        raise Unreadable("encoding") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, most: int) -> bytes:
    """A regular file's content. Raises `Unreadable` where it is none, cannot be read or has more than ``most`` bytes.

    A pipe or a device is never waited for, wherever a link leads.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable("unreadable" if path.is_dir() else "not a file")
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise Unreadable("not a file")  # it was replaced just now
            content = stream.read(most + 1)
    except (OSError, ValueError):
        raise Unreadable("unreadable") from None
    if len(content) > most:
        raise Unreadable("too large")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _too_much(content: bytes) -> bool:
    if len(content) - len(content.translate(None, _MARKS)) > MOST_MARKS:
        return True
    return max(map(len, content.split(b"\n"))) > LONGEST_LINE
