"""Operators that give the same values in another shape or order of axes, or a part of them."""

from __future__ import annotations

from ..tags import Applied, Rows, axis_of, reshaped
from .base import Outcome, Rule, named


def reshape(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    return reshaped(op, operand.rows, operand.shape, op.results[0], op.following[0])


def permute(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    order = [axis_of(axis, operand.ndim) for axis in op.args["dims"]]
    return operand.rows.moved(order.index(operand.rows.axis))


def transpose(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    if "dim0" in op.args:
        pair = [axis_of(op.args[name], operand.ndim) for name in ("dim0", "dim1")]
    else:
        pair = [0, operand.ndim - 1]
    axis = operand.rows.axis
    return operand.rows.moved(pair[1 - pair.index(axis)] if axis in pair else axis)


def expand(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return op.constant_rows()
    axis = operand.rows.axis + len(op.results[0]) - operand.ndim
    op.need(op.results[0][axis] == operand.shape[operand.rows.axis], f"expands {op.dim} itself")
    return operand.rows.moved(axis)


def slice_(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return op.constant_rows()
    dim = axis_of(op.args["dim"], operand.ndim)
    if dim == operand.rows.axis:
        whole = op.results[0][dim] == operand.shape[dim]
        op.need(whole and op.args["step"] == 1, f"takes some of the rows of {op.dim} only")
        return operand.rows
    return operand.rows


def select(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    dim = axis_of(op.args["dim"], operand.ndim)
    op.need(dim != operand.rows.axis, f"takes one of the rows of {op.dim}")
    return operand.rows.moved(operand.rows.axis - (dim < operand.rows.axis))


def unbind(op: Applied) -> Outcome:
    return select(op)


def split(op: Applied) -> list[Outcome]:
    operand = op.operand("self")
    rows = operand.rows
    dim = axis_of(op.args["dim"], operand.ndim)
    if rows is None:
        # Parts of a constant, whose places follow the dim when their sizes do.
        op.need(all(axis is None for axis in op.following), f"splits a constant at places that follow {op.dim}")
        return [None] * len(op.results)
    if dim != rows.axis:
        return [rows] * len(op.results)
    block = op.rows * rows.inner
    parts: list[Outcome] = []
    for shape in op.results:
        op.need(shape[dim] > 0 and shape[dim] % block == 0, f"splits the rows of {op.dim} themselves")
        parts.append(Rows(dim, shape[dim] // block, rows.inner))
    return parts


def unfold(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    op.need(axis_of(op.args["dimension"], operand.ndim) != operand.rows.axis, f"joins neighbouring rows of {op.dim}")
    return operand.rows


def diagonal(op: Applied) -> Outcome:
    operand = op.operand("self")
    rows = operand.rows
    if rows is None:
        return None
    dims = [axis_of(op.args[name], operand.ndim) for name in ("dim1", "dim2")]
    op.need(rows.axis not in dims, f"takes a diagonal through the rows of {op.dim}")
    return rows.at(rows.axis - sum(dim < rows.axis for dim in dims))


def view_as_real(op: Applied) -> Outcome:
    return op.operand("self").rows


_SIZED = Rule(reshape, frozenset({"size", "stride", "shape"}), view=True)

RULES = {
    **named("view _unsafe_view reshape _reshape_alias", _SIZED),
    **named("unsqueeze squeeze", Rule(reshape, view=True)),
    "permute": Rule(permute, view=True),
    **named("transpose t swapaxes swapdims", Rule(transpose, view=True)),
    "expand": Rule(expand, frozenset({"size"}), view=True),
    "slice": Rule(slice_, frozenset({"end"}), view=True),
    "select": Rule(select, view=True),
    "unbind": Rule(unbind, view=True),
    **named(
        "split split_with_sizes unsafe_split unsafe_split_with_sizes",
        Rule(split, frozenset({"split_size", "split_sizes"}), view=True),
    ),
    "diagonal": Rule(diagonal, view=True),
    "unfold": Rule(unfold, view=True),
    **named("view_as_real view_as_complex", Rule(view_as_real, view=True)),
}
