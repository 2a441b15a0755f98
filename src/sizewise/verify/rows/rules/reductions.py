"""Operators that take something over some axes; over the rows' axis they mix rows."""

from __future__ import annotations

from ..tags import Applied, axis_of
from .base import Outcome, Rule


def _over(op: Applied, ndim: int) -> list[int]:
    """The axes that are taken together; all where none is named."""
    dim = op.args.get("dim", op.args.get("dims"))
    if dim is None or dim == ():
        return list(range(ndim))
    return [axis_of(axis, ndim) for axis in (dim if isinstance(dim, tuple) else (dim,))]


def reduction(op: Applied) -> Outcome:
    operand = op.operand("self", "x", "input")
    op.only_rows_in("self", "x", "input")
    rows = operand.rows
    if rows is None:
        return None
    over = _over(op, operand.ndim)
    op.need(rows.axis not in over, op.over_rows())
    if op.args.get("keepdim"):
        return rows.plain
    return rows.at(rows.axis - sum(axis < rows.axis for axis in over))


def along(op: Applied) -> Outcome:
    """Results of the argument's number of axes, each value taken along one of them."""
    operand = op.operand("self", "input")
    op.only_rows_in("self", "input")
    rows = operand.rows
    if rows is None:
        return None
    op.need(rows.axis not in _over(op, operand.ndim), op.over_rows())
    return rows.plain


REDUCTIONS = (
    "sum mean prod amax amin max min argmax argmin aminmax any all var std var_mean std_mean logsumexp norm "
    "linalg_vector_norm median nanmedian mode nansum nanmean count_nonzero kthvalue"
)
ALONG = (
    "_softmax softmax _log_softmax log_softmax _safe_softmax cumsum cumprod cummax cummin logcumsumexp sort topk "
    "argsort glu _fft_r2c _fft_c2c _fft_c2r"
)

RULES = {
    **dict.fromkeys(REDUCTIONS.split(), Rule(reduction)),
    **dict.fromkeys(ALONG.split(), Rule(along)),
}
