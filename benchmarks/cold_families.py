"""Every family of docs/families.md: cold time to results at three sizes, against torch.compile(dynamic=True).

As a module with arguments (contestant, family) this file is the fresh process that is measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from sizewise.trace.policy import at_size

from . import harness
from .families import FAMILIES

QUICK = ("BERT", "Llama, with a mask", "MLP")
REFUSED = ("Mamba", "custom operator without a fake")
"""Sizewise refuses these, as the table of families says."""


def run(quick: bool = False) -> harness.Result:
    names = [item.name for item in FAMILIES if item.name not in REFUSED and (not quick or item.name in QUICK)]
    rows = []
    for name in names:
        contestants = {contestant: (contestant, name) for contestant in ("sizewise", "torch.compile")}
        best = harness.taken_in_turns("benchmarks.cold_families", contestants, 1)
        ours, theirs = best["sizewise"]["cpu"], best["torch.compile"]["cpu"]
        rows.append(harness.Row(name, ours, theirs, "s", 1.0, 2.0))
    notes = [
        "CPU seconds of a fresh process with an empty cache, C++ compilers included, until the third of three results "
        "at different sizes; imports and the machine's own costs are left out. One round: ratios are rough.",
        "The models are tiny, so what differs is what tracing and compiling cost.",
        "torch.compile does not trace nn.LSTM: it runs it in eager mode, and compiles nothing.",
    ]
    return harness.Result("cold_families", "Cold start of every family", "torch.compile(dynamic=True)", rows, notes)


def child(contestant: str, name: str) -> None:
    import torch

    import sizewise

    torch.set_num_threads(1)
    torch.manual_seed(0)
    family = next(item for item in FAMILIES if item.name == name)
    model, example, dims = family.make()
    calls = [example, *_other_sizes(example, dims)]
    harness.pay_machine_costs()
    answer: dict[str, Any] = {"calls": len(calls)}
    with harness.measured(answer), torch.no_grad():
        if contestant == "sizewise":
            fast: Any = sizewise.compile(model, dynamic_shapes=dims, cudagraph_mode="NONE", **family.options)
            fast.warmup(**example)
        else:
            fast = torch.compile(model, dynamic=True)
        for call in calls:
            fast(**call)
    sys.stdout.write(json.dumps(answer) + "\n")


def _other_sizes(example: Mapping[str, Any], dims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The example's rows, cut or repeated to half of each dim's largest size, and to its smallest."""
    calls = []
    for size_of in (lambda dim: max(dim.min, dim.max // 2), lambda dim: dim.min):
        call = dict(example)
        for name, axes in dims.items():
            for axis, dim in axes.items():
                call[name] = at_size(call[name], axis, size_of(dim))
        calls.append(call)
    return calls


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])
