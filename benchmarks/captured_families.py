"""Which families of docs/families.md can be captured, which dims may be filled up, and why not where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import sizewise
from sizewise import CompiledModule, SizewiseError
from sizewise.calls import Call
from sizewise.dims import Dim, dims_of
from sizewise.traced import Traced
from sizewise.verify.exact import ExactReference
from sizewise.verify.samples import in_range, sample
from sizewise.verify.tolerance import compare, sum_depth

from . import harness
from .families import FAMILIES, Family

QUICK = ("BERT", "MLP", "graph, gather and scatter", "custom operator without a fake")
HEADER = ["model", "captured", "runs live in the replay", "filled up", "right"]


def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    families = [item for item in FAMILIES if not quick or item.name in QUICK]
    lines = [line(item) for item in families]
    built = [cells for cells in lines if cells[1] != "refused"]
    whole = [cells for cells in built if _all(cells[1])]
    rows = [
        harness.Row("families", len(lines), None, ""),
        harness.Row("built", len(built), None, ""),
        harness.Row("captured at every listed size", len(whole), None, ""),
        harness.Row("of these, with no operator that runs live", sum(not cells[2] for cells in whole), None, ""),
    ]
    notes = [
        "Tiny models with random weights, two listed sizes per dim (every combination), Inductor. *Captured*: listed "
        "sizes that replay, and why others do not. *Runs live*: operators that a tape cannot write into its memory, so "
        "they run as they are within the replay. *Filled up*: per dim whether a smaller call may use a larger capture. "
        "*Right*: calls whose result equals eager's, of one at each captured size and one below each, with how many "
        "replayed.",
    ]
    return harness.Result("captured_families", "Which models can be captured", "", rows, notes, [HEADER, *lines])


def line(item: Family) -> list[str]:
    """One family's cells, as `HEADER` names them."""
    torch.manual_seed(0)
    model, example, dims = item.make()
    sizes = listed(dims_of(dims))
    fast = sizewise.compile(
        model,
        dynamic_shapes=dims,
        name=item.name,
        cudagraph_mode="FULL",
        cudagraph_capture_sizes=sizes,
        allow_partial=True,
        **item.options,
    )
    try:
        fast.warmup(**example)
    except SizewiseError as refusal:
        return [item.name, "refused", "", "", f"{refusal.code} {type(refusal).__name__}"]
    report = fast.report()
    done = [each for each in report.captures if each["outcome"] == "captured"]
    why = dict.fromkeys(each["why"] for each in report.captures if each["outcome"] != "captured")
    captured = "; ".join([f"{len(done)} of {len(report.captures)}", *why])
    live = sorted({name for each in done for name in each["live"]})
    filled = [f"{name} {verdict['verdict']}{_because(verdict)}" for name, verdict in report.padding.items()]
    return [item.name, captured, ", ".join(live), "; ".join(filled), _right(model, fast)]


def listed(dims: Mapping[str, Dim]) -> list[int] | dict[str, list[int]]:
    """Two sizes of each dim, its largest among them."""
    sizes = {name: sorted({max(dim.min, dim.max // 2), dim.max}) for name, dim in dims.items()}
    return next(iter(sizes.values())) if len(sizes) == 1 else sizes


def _all(captured: str) -> bool:
    done, _, wanted = captured.partition(";")[0].partition(" of ")
    return done == wanted != "0"


def _because(verdict: Mapping[str, Any]) -> str:
    return f" ({verdict['why']})" if verdict["why"] else ""


@torch.no_grad()
def _right(model: Any, fast: CompiledModule) -> str:
    """How many calls at captured sizes, and at sizes one below, gave eager's result, and how many replayed."""
    generator = torch.Generator().manual_seed(1)
    built = fast.built
    traced = [entry.program.traced for entry in built.entries] if built is not None else []
    exact, depth = ExactReference(model), sum_depth(model)
    calls = [
        call
        for each in fast.report().captures
        if each["outcome"] == "captured"
        for less in (0, 1)
        if (call := _call(traced, {name: size - less for name, size in each["sizes"].items()}, generator)) is not None
    ]
    right, before = 0, fast.counters.calls_capture
    for call in calls:
        reference, seen = model(*call.args, **call.kwargs), fast(*call.args, **call.kwargs)
        equal = compare(reference, seen, depth) is None
        right += equal or compare(reference, seen, depth, exact=exact(call)) is None
    return f"{right} of {len(calls)}, {fast.counters.calls_capture - before} replayed"


def _call(traced: Sequence[Traced], sizes: Mapping[str, int], generator: torch.Generator) -> Call | None:
    """A call of these sizes; None where no program serves them."""
    part = next((each for each in traced if set(sizes) == set(each.dims) and in_range(each, sizes)), None)
    return sample(part.call, part.spec, sizes, generator) if part is not None else None
