"""Which sentences arrive together: batches of changing size and length, the same for every contestant."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

MAX_BATCH = 16
MAX_TOKENS = 64

Request = tuple[int, ...]
"""Indices of the sentences of one request."""


def make_traffic(lengths: Sequence[int], requests: int, seed: int) -> list[Request]:
    """``requests`` batches of sentence indices; equal arguments give equal traffic.

    Batch sizes and lengths are drawn log-uniformly, so that small requests are frequent and large ones
    are not missing. Sentences of one request have similar lengths: mixed ones would all be padded to the
    longest, and every request would be long.
    """
    draw = random.Random(seed)
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index])
    sorted_lengths = [lengths[index] for index in by_length]
    return [_request(draw, by_length, sorted_lengths) for _ in range(requests)]


def _request(draw: random.Random, by_length: list[int], sorted_lengths: list[int]) -> Request:
    batch = min(_log_uniform(draw, 1, MAX_BATCH), len(by_length))
    centre = bisect_left(sorted_lengths, _log_uniform(draw, sorted_lengths[0], sorted_lengths[-1]))
    window = min(2 * batch, len(by_length))
    start = max(0, min(centre - window // 2, len(by_length) - window))
    return tuple(draw.sample(by_length[start : start + window], batch))


def _log_uniform(draw: random.Random, low: int, high: int) -> int:
    # The upper edge is above `high`, so that `high` is as likely as its neighbours.
    return min(high, int(low * ((high + 1) / low) ** draw.random()))
