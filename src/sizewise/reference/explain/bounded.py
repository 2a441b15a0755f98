"""Texts of any size, cut to what is read of them: the start, the last traceback, the end."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import BinaryIO

HEAD = 64 * 1024
MIDDLE = 128 * 1024
TAIL = 192 * 1024
"""Bytes kept of the start, from the last traceback on, and of the end."""
CHUNK = 1024 * 1024
MOST = 512 * CHUNK
"""No more than this is read of a stream that does not end."""
LINE = 4000
"""Characters kept of a line."""
_MARK = b"Traceback (most recent call last)"
_GAP = "\n...\n"
_CODECS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_bounded(stream: BinaryIO) -> str:
    """The part of a stream that matters, as text; what is no text is replaced. Memory does not grow with its size."""
    return _kept(_chunks(stream))


def cut(text: str) -> str:
    """The part of a text that matters."""
    if len(text) <= HEAD + MIDDLE + TAIL:
        return text
    return _kept(text[start : start + CHUNK].encode("utf-8", "replace") for start in range(0, len(text), CHUNK))


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    left = MOST
    while left > 0 and (chunk := stream.read(min(CHUNK, left))):
        left -= len(chunk)
        yield chunk


def _kept(chunks: Iterable[bytes]) -> str:
    head, tail, middle, size, after = b"", b"", b"", 0, 0
    """``size``: bytes seen; ``after``: where ``middle`` starts."""
    for chunk in chunks:
        if len(head) < HEAD:
            head += chunk[: HEAD - len(head)]
        # The mark may lie across two chunks.
        window = tail[-len(_MARK) :] + chunk
        found = window.rfind(_MARK)
        if found >= 0:
            after, middle = size + len(chunk) - len(window) + found, window[found:][:MIDDLE]
        elif middle and len(middle) < MIDDLE:
            middle += chunk[: MIDDLE - len(middle)]
        tail = (tail + chunk)[-TAIL:]
        size += len(chunk)
    if size <= HEAD:
        return _decoded(head, head)
    if size - TAIL <= HEAD:
        return _decoded(head, head + tail[HEAD - size :])
    if middle and HEAD < after < size - TAIL:
        return _GAP.join(_decoded(head, part) for part in (head, middle, tail))
    return _GAP.join(_decoded(head, part) for part in (head, tail))


def _decoded(head: bytes, part: bytes) -> str:
    for mark, codec in _CODECS:
        if head.startswith(mark):
            # A part from the middle has no mark of its own.
            plain = {"utf-8-sig": "utf-8", "utf-16": "utf-16-be" if mark == codecs.BOM_UTF16_BE else "utf-16-le"}[codec]
            return part.removeprefix(mark).decode(plain, "replace")
    return part.decode("utf-8", "replace")
