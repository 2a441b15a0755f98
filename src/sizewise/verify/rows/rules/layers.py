"""Layers that are one operator: norms, convolutions, pooling, recurrent ones."""

from __future__ import annotations

from ..tags import Applied, Rows, aligned
from .base import Outcome, Rule, named


def trailing(axes: int) -> Rule:
    """Mixes the last ``axes`` axes of its first argument, and treats all before them as a batch."""

    def judge(op: Applied) -> Outcome:
        operand = op.operand("self", "input")
        op.only_rows_in("self", "input")
        if operand.rows is None:
            return None
        op.need(operand.rows.axis < operand.ndim - axes, op.over_rows())
        return operand.rows.plain

    return Rule(judge)


def layer_norm(op: Applied) -> Outcome:
    operand = op.operand("input")
    op.only_rows_in("input")
    if operand.rows is None:
        return None
    op.need(operand.rows.axis < operand.ndim - len(op.args["normalized_shape"]), op.over_rows())
    return operand.rows.plain


def group_norm(op: Applied) -> Outcome:
    operand = op.operand("input")
    op.only_rows_in("input")
    if operand.rows is None:
        return None
    op.need(operand.rows.axis == 0, op.over_rows())
    return operand.rows.plain


def batch_norm(op: Applied) -> list[Outcome]:
    operand = op.operand("input")
    rows = operand.rows
    training = bool(op.args.get("training", False))
    of_channels = [op.rows_of(name) for name in ("weight", "bias", "running_mean", "running_var")]
    given = [row for row in of_channels if row is not None]
    if rows is None:
        op.need(not given, f"uses rows of {op.dim} as its weights")
        return [None] * len(op.results)
    # Along axis 1 the rows are channels, each with statistics of its own: that is how instance norm is done.
    wanted = Rows(0, rows.outer, rows.inner) if rows.axis == 1 else None
    op.need(all(row.plain == wanted for row in given), f"uses rows of {op.dim} as its weights")
    if training:
        op.need(rows.axis == 1, f"uses the statistics of the rows of {op.dim}")
        kept = any(op.args.get(name) is not None for name in ("running_mean", "running_var"))
        op.need(not kept, f"keeps statistics of the rows of {op.dim}")
    others = [f"holds statistics of the rows of {op.dim}" if axis is not None else None for axis in op.following[1:]]
    return [rows.plain, *others]


def convolution(op: Applied) -> Outcome:
    operand, weight = op.operand("input", "self"), op.operand("weight")
    op.only_rows_in("input", "self")
    if operand.rows is None:
        return None
    op.need(operand.ndim == weight.ndim and operand.rows.axis == 0, f"sums over neighbouring rows of {op.dim}")
    return operand.rows.plain


def pad(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    pads = op.args["pad"]
    place = 2 * (operand.ndim - 1 - operand.rows.axis)
    op.need(not any(pads[place : place + 2]), f"adds entries beside the rows of {op.dim}")
    return operand.rows.plain


def triangle(op: Applied) -> Outcome:
    operand = op.operand("self")
    if operand.rows is None:
        return None
    op.need(operand.rows.axis < operand.ndim - 2, f"cuts a triangle out of the rows of {op.dim}")
    return operand.rows.plain


def recurrent(op: Applied) -> list[Outcome]:
    """One layer of an LSTM or GRU over (time, batch, features)."""
    operand, states = op.operand("input"), [op.operand("hx_"), op.operand("cx_")]
    op.only_rows_in("input", "hx_", "cx_")
    # Its input has the time first, also where the module's own had the batch first.
    op.need(op.args["batch_sizes"] == (), "is called in a form that is not known")
    op.need(operand.rows == Rows(1), f"goes from one row of {op.dim} to the next")
    for state in states:
        op.need(state.rows is not None and state.rows.single, f"starts all rows of {op.dim} from one state")
        op.need(state.rows is not None and state.rows.axis == state.ndim - 2, "is called in a form that is not known")
    last: list[Outcome] = [Rows(axis) if axis is not None else None for axis in op.following[1:3]]
    return [Rows(1), *last, "holds what a backward pass would need"][: len(op.results)]


def batches(axes: int) -> Rule:
    """Computes something of the last ``axes`` axes of its arguments together; those before them are broadcast."""

    def judge(op: Applied) -> Outcome:
        for operand in op.operands():
            op.need(operand.rows is None or operand.rows.axis < operand.ndim - axes, op.over_rows())
        return aligned(op, op.operands(), len(op.results[0]))

    return Rule(judge)


RULES = {
    **named("native_layer_norm layer_norm rms_norm _fused_rms_norm", Rule(layer_norm)),
    "native_group_norm": Rule(group_norm, frozenset({"N"})),
    **named(
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm",
        Rule(batch_norm),
    ),
    **named("convolution _convolution mkldnn_convolution cudnn_convolution", Rule(convolution)),
    "constant_pad_nd": Rule(pad),
    **named("triu tril", Rule(triangle)),
    "mkldnn_rnn_layer": Rule(recurrent),
    **named(
        "avg_pool1d adaptive_avg_pool1d max_pool1d_with_indices upsample_nearest1d upsample_linear1d "
        "reflection_pad1d replication_pad1d _upsample_nearest_exact1d",
        trailing(1),
    ),
    **named(
        "avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d max_pool2d_with_indices adaptive_max_pool2d "
        "upsample_nearest2d upsample_bilinear2d upsample_bicubic2d _upsample_nearest_exact2d "
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad2d replication_pad2d",
        trailing(2),
    ),
    **named(
        "avg_pool3d _adaptive_avg_pool3d adaptive_avg_pool3d max_pool3d_with_indices adaptive_max_pool3d "
        "upsample_nearest3d upsample_trilinear3d replication_pad3d",
        trailing(3),
    ),
    **named("pixel_shuffle pixel_unshuffle channel_shuffle im2col", trailing(3)),
    "bucketize": trailing(0),
    "_cdist_forward": batches(2),
    "grid_sampler_2d": batches(3),
    "grid_sampler_3d": batches(4),
}
