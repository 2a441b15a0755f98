"""Attention as one opaque operator that writes to an output its caller allocated.

Keeping it out of the compiled pieces removes the branches on sizes that attention code is full of,
and lets every layer share one piece: the layer's number, window and scale stay on the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registry import REGISTRY, Operator

SCHEMA = (
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float? scale, bool is_causal, "
    "bool enable_gqa, Tensor(a!) out) -> ()"
)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    is_causal: bool,
    enable_gqa: bool,
    out: Tensor,
) -> None:
    """Scaled dot product attention.

    ``query`` (batch, heads, queries, size), ``key`` and ``value`` (batch, key heads, keys, size),
    ``mask`` additive and broadcastable to (batch, heads, queries, keys), ``out`` (batch, queries, heads,
    value size). ``is_causal`` aligns the triangle to the upper left, as torch does.
    """
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, is_causal=is_causal, enable_gqa=enable_gqa
    )
    out.copy_(result.transpose(1, 2))


def _fake(*_args: Any, **_kwargs: Any) -> None:
    """Nothing is returned and shapes are the caller's."""


ATTENTION = Operator("attention", SCHEMA, native=attention, fake=_fake)


def attention_overload() -> Any:
    """``torch.ops.sizewise.attention.default``, defined on first use."""
    return REGISTRY.define(ATTENTION)
