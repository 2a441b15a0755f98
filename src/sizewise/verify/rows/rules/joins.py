"""Operators that put tensors beside one another, repeat them, or change the order of entries along an axis."""

from __future__ import annotations

from ..tags import Applied, Operand, Rows, axis_of
from .base import Outcome, Rule, named


def cat(op: Applied) -> Outcome:
    tensors: list[Operand] = list(op.args["tensors"])
    ndim = len(op.results[0])
    dim = axis_of(op.args["dim"], ndim)
    # An empty tensor of one axis is skipped, whatever the others are.
    tensors = [tensor for tensor in tensors if tensor.shape != (0,) or ndim == 1]
    found = {tensor.rows.plain for tensor in tensors if tensor.rows is not None}
    axes = {rows.axis for rows in found}
    if not found:
        return None
    op.need(len(axes) == 1, f"combines rows of {op.dim} with others of them")
    if dim not in axes:
        op.need(len(found) == 1, f"combines rows of {op.dim} with others of them")
        op.need(all(tensor.rows is not None for tensor in tensors), f"combines rows of {op.dim} with what has none")
        return found.pop()
    inner = {rows.inner for rows in found}
    whole = all(tensor.rows is not None for tensor in tensors)
    op.need(whole and len(inner) == 1, f"puts other entries beside the rows of {op.dim}")
    return Rows(dim, sum(tensor.rows.outer for tensor in tensors if tensor.rows), inner.pop())


def stack(op: Applied) -> Outcome:
    tensors: list[Operand] = list(op.args["tensors"])
    found = {tensor.rows.plain for tensor in tensors if tensor.rows is not None}
    if not found:
        return None
    whole = all(tensor.rows is not None for tensor in tensors)
    op.need(whole and len(found) == 1, f"combines rows of {op.dim} with others of them")
    rows = found.pop()
    return rows.at(rows.axis + (axis_of(op.args["dim"], len(op.results[0])) <= rows.axis))


def repeat(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return op.constant_rows()
    repeats = op.args["repeats"]
    axis = operand.rows.axis + len(repeats) - operand.ndim
    return Rows(axis, operand.rows.outer * repeats[axis], operand.rows.inner)


def reorder(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    dims = [axis_of(dim, operand.ndim) for dim in op.args["dims"]]
    op.need(bool(dims) and operand.rows.axis not in dims, f"moves the rows of {op.dim} to other places")
    return operand.rows.plain


RULES = {
    "cat": Rule(cat),
    "stack": Rule(stack),
    "repeat": Rule(repeat, frozenset({"repeats"})),
    **named("flip roll", Rule(reorder)),
}
