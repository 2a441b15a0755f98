"""Where each buffer lies in one block of memory: buffers that are not alive at the same step may overlap."""

from __future__ import annotations

from collections.abc import Sequence

ALIGNMENT = 64
"""Bytes; what torch's own allocator gives on a CPU."""


def place(spans: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offset of each of ``spans``, which are (bytes, first step, last step), and the bytes of all together.

    The largest are placed first, each as low as it fits.
    """
    offsets = [0] * len(spans)
    placed: list[int] = []
    for index in sorted(range(len(spans)), key=lambda index: (-spans[index][0], index)):
        size, first, last = spans[index]
        offset = 0
        alive = [other for other in placed if spans[other][1] <= last and first <= spans[other][2]]
        for other in sorted(alive, key=offsets.__getitem__):
            if offset + size <= offsets[other]:
                break
            offset = max(offset, _aligned(offsets[other] + spans[other][0]))
        offsets[index] = offset
        placed.append(index)
    return offsets, max((offsets[index] + spans[index][0] for index in placed), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
