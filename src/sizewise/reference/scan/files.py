"""Source files as text."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

LARGEST = 4_000_000
"""Bytes. What is larger was written by a program and takes minutes to read."""


class Unreadable(Exception):
    """A file that is skipped. ``reason`` is counted: "unreadable", "too large" or "encoding"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read(path: Path) -> str:
    """A source file's text in the encoding that it declares, with ``\\n`` for line ends. Raises `Unreadable`."""
    try:
        if path.stat().st_size > LARGEST:
            raise Unreadable("too large")
        content = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except OSError:
        raise Unreadable("unreadable") from None
    except (SyntaxError, UnicodeDecodeError, LookupError):
        raise Unreadable("encoding") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
