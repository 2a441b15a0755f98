"""Products of matrices: the axis that is summed over may not be the rows' one."""

from __future__ import annotations

from ..tags import Applied, Operand, Rows, aligned
from .base import Outcome, Rule, named


def _product(op: Applied, left: Operand, right: Operand) -> Rows | None:
    """The rows of ``left @ right``: matrices, or batches of them along axis 0."""
    summed = f"sums over the rows of {op.dim}"
    if left.rows is not None:
        op.need(left.rows.axis != left.ndim - 1, summed)
    if right.rows is not None:
        op.need(right.rows.axis != max(right.ndim - 2, 0), summed)
    if left.rows is None or right.rows is None:
        rows = left.rows or right.rows
        batched = rows is not None and left.ndim == 3 and rows.axis == 0
        op.need(not batched, f"multiplies rows of {op.dim} with what has none")
        return rows.plain if rows else None
    both = left.ndim == right.ndim == 3 and left.rows.plain == right.rows.plain and left.rows.axis == 0
    op.need(both, f"multiplies each row of {op.dim} with every other")
    return left.rows.plain


def product(left: str, right: str, added: str = "") -> Rule:
    def judge(op: Applied) -> Outcome:
        first, second = op.operand(left), op.operand(right)
        rows = _product(op, first, second)
        if not added:
            return rows
        ndim = len(op.results[0])
        others = [Operand(op.results[0], rows)] if rows else []
        return aligned(op, [op.operand(added), *others], ndim)

    return Rule(judge)


def linear(op: Applied) -> Outcome:
    operand = op.operand("input", "self")
    op.only_rows_in("input", "self")
    if operand.rows is None:
        return None
    op.need(operand.rows.axis != operand.ndim - 1, f"sums over the rows of {op.dim}")
    return operand.rows.plain


def dot(op: Applied) -> Outcome:
    op.need(all(operand.rows is None for operand in op.operands()), f"sums over the rows of {op.dim}")
    return None


RULES = {
    "mm": product("self", "mat2"),
    "bmm": product("self", "mat2"),
    "mv": product("self", "vec"),
    "addmm": product("mat1", "mat2", "self"),
    "_addmm_activation": product("mat1", "mat2", "self"),
    "addmv": product("mat", "vec", "self"),
    "baddbmm": product("batch1", "batch2", "self"),
    "linear": Rule(linear),
    **named("dot vdot", Rule(dot)),
}
