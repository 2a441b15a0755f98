"""Operators that compute each value from the values in the same place, and those that make values from nothing."""

from __future__ import annotations

from ..tags import Applied, Rows, aligned
from .base import Outcome, Rule, named


def pointwise(op: Applied) -> Outcome:
    return aligned(op, op.operands(), len(op.results[0]))


def same(op: Applied) -> Outcome:
    """The first argument's values in the same places, perhaps of another type."""
    operand = op.operand("self", "input")
    op.only_rows_in("self", "input")
    if operand.rows is None:
        return None
    keeps = operand.rows.counts and all(op.result_is_long)
    return operand.rows.moved(operand.rows.axis) if keeps else operand.rows.plain


def fill(op: Applied) -> Outcome:
    """One value everywhere in the first argument."""
    op.only_rows_in("self")
    rows = op.rows_of("self")
    return rows.plain if rows else None


def copy(op: Applied) -> Outcome:
    """The second argument's values, spread over the first."""
    target, source = op.operand("self"), op.operand("src", "source")
    if source.rows is None:
        return target.rows.plain if target.rows else None
    return aligned(op, [source], target.ndim)


def constant(op: Applied) -> Outcome:
    """Values that are all the same, or depend on their place only."""
    return op.constant_rows()


def constant_like(op: Applied) -> Outcome:
    rows = op.operand("self").rows
    return rows.plain if rows else op.constant_rows()


def arange(op: Applied) -> Outcome:
    """Numbers from a start that is the same at both sizes."""
    rows = op.constant_rows()
    if rows is None or not rows.single or not all(op.result_is_long):
        return rows
    from_zero = op.args.get("start", 0) == 0 and op.args.get("step", 1) == 1
    return Rows(0, counts=from_zero)


POINTWISE = Rule(pointwise)
SAME = Rule(same)
_SIZE = frozenset({"size", "stride"})

RULES = {
    **named(
        "_prelu_kernel hardswish mish log_sigmoid_forward softplus relu6 threshold complex polar masked_fill "
        "floor_divide logical_and logical_or nan_to_num",
        POINTWISE,
    ),
    **named("_to_copy clone detach alias lift_fresh lift contiguous", SAME),
    **named("fill zero", Rule(fill)),
    "copy": Rule(copy),
    **named("full zeros ones new_full new_zeros new_ones", Rule(constant, _SIZE, values=False)),
    **named("empty empty_strided new_empty new_empty_strided", Rule(constant, _SIZE, values=False, fills=False)),
    **named("full_like zeros_like ones_like", Rule(constant_like, values=False)),
    "empty_like": Rule(constant_like, values=False, fills=False),
    "arange": Rule(arange, frozenset({"end"})),
}
