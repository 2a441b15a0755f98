"""Attention as one operator: (batch, heads, length, size)."""

from __future__ import annotations

from typing import Any

from ..tags import Applied, Operand, Rows, aligned
from .base import Outcome, Rule, named

BATCH, HEADS, LENGTH = 0, 1, 2


def _attended(op: Applied) -> Rows | None:
    """The rows of the result, in the layout of the query."""
    names = ("query", "key", "value")
    rows = [op.operand(name).rows for name in names]
    op.need(all(op.operand(name).ndim == 4 for name in names), "is called in a form that is not known")
    masks = [op.args.get(name) for name in ("attn_mask", "attn_bias", "mask")]
    given = [mask for mask in masks if isinstance(mask, Operand)]
    mask = aligned(op, given, 4)
    query, key, value = (row.plain if row else None for row in rows)
    if query is None and key is None and value is None:
        op.need(mask is None, f"uses rows of {op.dim} as its mask only")
        return None
    each_other = f"lets the rows of {op.dim} attend to one another"
    if query is not None and query.axis in (BATCH, HEADS):
        op.need(query == key == value, each_other)
        op.need(mask in (None, query), each_other)
        return query
    op.need(key is None and value is None, each_other)
    own = query is not None and query.axis == LENGTH and not op.args.get("is_causal") and mask in (None, query)
    op.need(own, each_other)
    return query


def attention(op: Applied) -> list[Outcome]:
    """torch's own variants: the result, then what a backward pass would need."""
    op.only_rows_in("query", "key", "value", "attn_mask", "attn_bias")
    rows = _attended(op)
    rest: list[Outcome] = []
    for axis in op.following[1:]:
        kept = rows is not None and rows.axis == BATCH == axis
        rest.append(rows if kept or rows is None else "holds sums that a backward pass would need")
    return [rows, *rest]


def own_attention(op: Applied) -> Outcome:
    """Sizewise's own operator, which writes (batch, length, heads, size)."""
    rows = _attended(op)
    if rows is None:
        return None
    return rows.at({BATCH: 0, HEADS: 2, LENGTH: 1}[rows.axis])


def encoder_layer(op: Applied) -> Outcome:
    """torch's fused layer of a transformer encoder, over (batch, length, size)."""
    operand, mask = op.operand("src"), op.rows_of("mask")
    op.only_rows_in("src", "mask")
    rows = operand.rows.plain if operand.rows else None
    op.need(rows is None or rows.axis == BATCH, f"lets the rows of {op.dim} attend to one another")
    # A mask of type 0 is one of lengths, which all rows share.
    op.need(mask is None or (mask == rows and op.args.get("mask_type") != 0), f"uses rows of {op.dim} as its mask")
    return rows


def _no_dropout(args: dict[str, Any]) -> bool:
    return not args.get("dropout_p")


_ATTENTION = Rule(attention, fixed=_no_dropout)

RULES = {
    **named(
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable",
        _ATTENTION,
    ),
    "_transformer_encoder_layer_fwd": Rule(encoder_layer),
    "sizewise::attention": Rule(own_attention),
}
