"""Operators that look entries up by numbers in other tensors."""

from __future__ import annotations

from ..tags import Applied, Operand, Rows, aligned, axis_of
from .base import Outcome, Rule, named


def embedding(op: Applied) -> Outcome:
    op.without_rows("weight")
    rows = op.operand("indices").rows
    return rows.plain if rows else None


def gather(op: Applied) -> Outcome:
    operand, index = op.operand("self"), op.operand("index")
    dim = axis_of(op.args["dim"], operand.ndim)
    if operand.rows is not None:
        _beside(op, operand.rows, dim)
        op.need(index.rows is not None and index.rows.plain == operand.rows.plain, _elsewhere(op))
    return index.rows.plain if index.rows else None


def index_select(op: Applied) -> Outcome:
    operand, index = op.operand("self"), op.operand("index")
    dim = axis_of(op.args["dim"], operand.ndim)
    if operand.rows is None:
        return index.rows.at(dim) if index.rows else None
    _beside(op, operand.rows, dim)
    op.need(index.rows is None, f"looks up in every row of {op.dim} for every row")
    return operand.rows.plain


def index(op: Applied) -> Outcome:
    return _found(op, op.operand("self"), list(op.args["indices"]))


def _found(op: Applied, operand: Operand, indices: list[Operand | None]) -> Rows | None:
    """The rows of ``self[indices]``."""
    places = [place for place, entry in enumerate(indices) if entry is not None]
    entries = [entry for entry in indices if entry is not None]
    op.need(all(entry.is_index for entry in entries), "chooses by truth values, as many as there happen to be")
    ndim = max(entry.ndim for entry in entries)
    together = aligned(op, entries, ndim)
    neighbours = places == list(range(places[0], places[-1] + 1))
    start = places[0] if neighbours else 0
    looked_up = together.at(start + together.axis) if together else None
    rows = operand.rows
    if rows is None:
        return looked_up
    if rows.axis in places:
        # Each row looks up in itself, if the index along the rows' axis is the rows' own numbers.
        own = indices[rows.axis]
        itself = own is not None and own.rows is not None and own.rows.counts and rows.single
        op.need(itself, _elsewhere(op))
        return looked_up
    op.need(together is None, f"looks up in every row of {op.dim} for every row")
    before = sum(1 for axis in range(rows.axis) if axis not in places)
    first = sum(1 for axis in range(start) if axis not in places)
    return rows.at(before if before < first else before + ndim)


def index_put(op: Applied) -> Outcome:
    operand, values = op.operand("self"), op.operand("values")
    indices = list(op.args["indices"])
    if operand.rows is None:
        op.need(all(each.rows is None for each in op.operands()), _elsewhere(op))
        return None
    if len(indices) == 1 and indices[0] is not None and not indices[0].is_index:
        return _put_where(op, operand, indices[0], values)
    found = _found(op, operand, indices)
    if values.rows is not None:
        places = [place for place, entry in enumerate(indices) if entry is not None]
        entries = [entry for entry in indices if entry is not None]
        ndim = operand.ndim - len(places) + max(entry.ndim for entry in entries)
        op.need(aligned(op, [values], ndim) == found, _elsewhere(op))
    return operand.rows.plain


def _put_where(op: Applied, operand: Operand, mask: Operand, values: Operand) -> Outcome:
    """One value wherever a mask over the first axes is true."""
    one = values.rows is None and all(size == 1 for size in values.shape) and not op.args.get("accumulate")
    op.need(one, "writes to places chosen by truth values, as many as there happen to be")
    rows = operand.rows
    if rows is None:
        return None
    if mask.rows is not None:
        op.need(mask.rows.plain == rows.plain, _elsewhere(op))
    return rows.plain


def scatter(op: Applied) -> Outcome:
    operand, index = op.operand("self"), op.operand("index")
    if all(each.rows is None for each in op.operands()):
        return None
    dim = axis_of(op.args["dim"], operand.ndim)
    rows = operand.rows
    op.need(rows is not None and index.rows is not None and index.rows.plain == rows.plain, _elsewhere(op))
    if rows is None:
        return None
    _beside(op, rows, dim)
    source = op.args.get("src", op.args.get("value"))
    if isinstance(source, Operand) and source.ndim:
        op.need(source.rows is not None and source.rows.plain == rows.plain, _elsewhere(op))
    return rows.plain


def _beside(op: Applied, rows: Rows, dim: int) -> None:
    op.need(rows.axis != dim, f"looks entries up along the rows of {op.dim}")


def _elsewhere(op: Applied) -> str:
    return f"reaches from one row of {op.dim} into others, as far as can be seen"


RULES = {
    "embedding": Rule(embedding),
    "gather": Rule(gather),
    "index_select": Rule(index_select),
    **named("index _unsafe_index", Rule(index)),
    "index_put": Rule(index_put),
    **named("scatter scatter_add scatter_reduce", Rule(scatter)),
}
