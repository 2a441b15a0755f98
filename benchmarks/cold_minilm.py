"""Cold start of MiniLM: empty cache until results at three shapes, against torch.compile with dynamic sizes.

As a module with an argument (``sizewise`` or ``torch.compile``) this file is the fresh process that is
measured; without one, it is the benchmark.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from . import harness

SHAPES = [(4, 16), (1, 8), (1, 1)]


def run(quick: bool = False) -> harness.Result:
    # The instruction-set probe and the precompiled header of the machine are paid for by neither.
    rounds = 1 if quick else 3
    taken: dict[str, list[dict[str, Any]]] = {"sizewise": [], "torch.compile": []}
    for _ in range(rounds):
        for contestant in taken:
            taken[contestant].append(harness.fresh("benchmarks.cold_minilm", contestant))
    best = {name: _median(answers) for name, answers in taken.items()}
    ours, theirs = best["sizewise"], best["torch.compile"]
    rows = [
        harness.Row("results at (4,16), (1,8) and (1,1), CPU", ours["cpu"], theirs["cpu"], "s", 2.0, 3.0),
        harness.Row("the same, wall", ours["wall"], theirs["wall"], "s", 2.0, 3.0),
    ]
    for index, shape in enumerate(SHAPES):
        name = f"of that, result at {shape} after the one before"
        rows.append(harness.Row(name, ours["each"][index], theirs["each"][index], "s"))
    notes = [
        "Fresh process, empty cache, one thread; imports and loading the weights are left out.",
        f"Compilations after the first result: Sizewise {ours['later']}, torch.compile {theirs['later']}.",
        f"Median of {rounds} interleaved rounds.",
    ]
    return harness.Result("cold_minilm", "Cold start of MiniLM", "torch.compile(dynamic=True)", rows, notes)


def _median(answers: list[dict[str, Any]]) -> dict[str, Any]:
    return sorted(answers, key=lambda answer: answer["cpu"])[len(answers) // 2]


def child(contestant: str) -> None:
    import torch

    from .models import minilm, minilm_inputs

    torch.set_num_threads(1)
    model = minilm()
    harness.pay_machine_costs()
    from torch._dynamo.utils import counters

    wall, cpu = time.perf_counter(), harness.cpu_seconds()
    if contestant == "sizewise":
        import sizewise
        from sizewise import Dim

        batch, seq = Dim("batch", 1, 16), Dim("seq", 1, 64)
        spec = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
        fast: Any = sizewise.compile(model, dynamic_shapes=spec, cudagraph_mode="NONE")
    else:
        fast = torch.compile(model, dynamic=True)
    each, graphs = [], []
    with torch.no_grad():
        for rows, length in SHAPES:
            started = time.perf_counter()
            fast(**minilm_inputs(rows, length))
            each.append(time.perf_counter() - started)
            compiled = fast.counters.compilations if contestant == "sizewise" else counters["stats"]["unique_graphs"]
            graphs.append(compiled)
    answer = {
        "wall": time.perf_counter() - wall,
        "cpu": harness.cpu_seconds() - cpu,
        "each": each,
        "later": graphs[-1] - graphs[0],
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    child(sys.argv[1])
