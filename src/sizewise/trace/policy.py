"""How each dim is traced: unbacked if the module allows it, else backed from 2 with size 1 apart.

An *unbacked* symbol has no example size, so a trace with it is right at every size, 1 included; code
that branches on it cannot be traced. A *backed* symbol lets such a branch be decided for the range
from 2, which is then proved or refused; size 1 gets a trace of its own.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from ..calls import Call
from ..dims import Dim, DimSpec, dims_of, no_such_axis
from ..errors import trace as errors
from . import blocks, dynamo
from .dynamo import BACKED, UNBACKED
from .graph import TracedGraph, interpret
from .problems import SizeGuard, data_branch, needs_data


def trace_all(
    module: nn.Module,
    call: Call,
    spec: DimSpec,
    owner: str,
    method: str = "__call__",
    shapes: str = "auto",
    backed: frozenset[str] = frozenset(),
) -> list[TracedGraph]:
    """Traces of ``module.method`` that together cover every size in range.

    ``shapes`` is ``auto``, ``unbacked`` or ``backed``: which kinds of symbol may be tried. ``backed`` names dims
    that are known to need a backed symbol.

    Raises:
        SizeBranch (SW208): no policy covers the declared ranges; other `TraceError`\\ s as they come.
    """
    present = {leaf.path for leaf in call.tensors()}
    spec = {path: axes for path, axes in spec.items() if path in present}
    dims = dims_of(spec)
    refusals: list[str] = []
    problems: list[SizeGuard] = []
    for policy in _policies(list(dims), shapes):
        if any(policy[name] != BACKED for name in backed & policy.keys()):
            continue
        try:
            return [
                _trace_once(module, call, part_spec, policy, owner, method, refusals)
                for part_spec in _parts(spec, dims, policy)
            ]
        except SizeGuard as problem:
            problems.append(problem)
            tried = ", ".join(f"{name} {kind}" for name, kind in policy.items())
            refusals.append(f"{tried}: {problem.reason}")
    # A backed trace says which sizes are on this side of the branch; only an unbacked one knows the line.
    last = problems[-1]
    if all(kind == BACKED for kind in policy.values()) and needs_data(last):
        raise data_branch(last, owner) from last.__cause__
    where = next((problem.where for problem in problems if problem.where), "")
    raise errors.SizeBranch(
        owner=owner, dims=", ".join(dims), reason=last.reason, where=where, graph_break=last.graph_break
    ) from last.__cause__


def _policies(names: Sequence[str], shapes: str) -> Iterator[dict[str, str]]:
    """All unbacked, then one backed, then more, then all backed."""
    if shapes in ("auto", "unbacked"):
        yield dict.fromkeys(names, UNBACKED)
    if shapes == "backed":
        yield dict.fromkeys(names, BACKED)
    if shapes == "auto":
        for count in range(1, len(names) + 1):
            for chosen in itertools.combinations(names, count):
                yield {name: BACKED if name in chosen else UNBACKED for name in names}


def _parts(spec: DimSpec, dims: dict[str, Dim], policy: dict[str, str]) -> Iterator[DimSpec]:
    """The ranges to trace: a backed dim that may be 1 is split into 2 and up, and exactly 1."""
    split = [name for name, kind in policy.items() if kind == BACKED and dims[name].min == 1]
    for ones in itertools.product((False, True), repeat=len(split)):
        chosen = dict(zip(split, ones, strict=True))
        if any(not one and dims[name].max < 2 for name, one in chosen.items()):
            continue
        yield {
            path: {axis: _narrow(dim, chosen.get(dim.name)) for axis, dim in axes.items()}
            for path, axes in spec.items()
        }


def _narrow(dim: Dim, one: bool | None) -> Dim:
    if one is None:
        return dim
    return Dim(dim.name, 1, 1) if one else Dim(dim.name, 2, dim.max)


def _trace_once(
    module: nn.Module,
    call: Call,
    spec: DimSpec,
    policy: dict[str, str],
    owner: str,
    method: str,
    refusals: list[str],
) -> TracedGraph:
    started = time.perf_counter()
    dims = dims_of(spec)
    static = {name for name, dim in dims.items() if dim.min == dim.max}
    symbolic = {
        path: {axis: dim for axis, dim in axes.items() if dim.name not in static} for path, axes in spec.items()
    }
    symbolic = {path: axes for path, axes in symbolic.items() if axes}
    raw, stamped = _capture(module, resized(call, spec), symbolic, policy, owner, method)
    live = {name: dim for name, dim in dims.items() if name not in static}
    traced = interpret(raw, module, symbolic, live, {n: k for n, k in policy.items() if n in live}, owner)
    traced.dims = dims
    traced.spec = spec
    traced.seconds = time.perf_counter() - started
    traced.notes = list(refusals)
    traced.blocks = stamped
    return traced


def _capture(
    module: nn.Module, call: Call, spec: DimSpec, policy: dict[str, str], owner: str, method: str
) -> tuple[dynamo.RawTrace, str]:
    """One trace, through one block of each run of equal ones where that can be shown to be enough; and in words how."""
    runs = blocks.find_runs(module)
    if not runs:
        return dynamo.capture(module, call, spec, policy, owner, method), ""
    try:
        raw = blocks.capture_once(module, runs, call, spec, policy, owner, method)
        return raw, "; ".join(f"1 of {len(run.keys)} blocks of {run.path or owner} traced" for run in runs)
    except blocks.NotAlike as reason:
        return dynamo.capture(module, call, spec, policy, owner, method), f"all blocks traced: {reason}"


def resized(call: Call, spec: DimSpec) -> Call:
    """The call with each declared axis at a size inside its range, distinct per dim where possible.

    Rows are repeated or cut from the user's own example, so that values stay legal.
    """
    sizes = _example_sizes(call, spec)
    values: dict[str, torch.Tensor] = {}
    for leaf in call.tensors():
        tensor = leaf.value
        for axis, dim in spec.get(leaf.path, {}).items():
            if axis >= tensor.ndim or axis < 0:
                raise no_such_axis(leaf.path, axis, tuple(tensor.shape))
            tensor = at_size(tensor, axis, sizes[dim.name])
        values[leaf.path] = tensor
    return call.with_values(values)


def _example_sizes(call: Call, spec: DimSpec) -> dict[str, int]:
    """The example's own sizes where they lie in range, moved apart when two dims agree."""
    sizes: dict[str, int] = {}
    for leaf in call.tensors():
        for axis, dim in spec.get(leaf.path, {}).items():
            if axis < leaf.value.ndim:
                sizes.setdefault(dim.name, min(max(leaf.value.shape[axis], dim.min), dim.max))
    dims = dims_of(spec)
    taken: set[int] = set()
    for name, size in sizes.items():
        dim = dims[name]
        # The range may be too long to be listed.
        near = range(max(dim.min, 2), min(dim.max, size + 8) + 1)
        candidates = itertools.islice(itertools.chain([size], near, range(dim.min, dim.max + 1)), 64)
        # Size 1 broadcasts and is special to torch; take it only where nothing else is in range.
        good = [item for item in candidates if item not in taken and (item > 1 or dim.max == 1)]
        sizes[name] = good[0] if good else size
        taken.add(sizes[name])
    return sizes


def at_size(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """``tensor`` with ``size`` entries along ``axis``, repeated or cut."""
    seen = tensor.shape[axis]
    if seen == size:
        return tensor
    if seen == 0:
        return tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
    index = torch.arange(size, device=tensor.device) % seen
    return tensor.index_select(axis, index)
