"""Cold build of deep decoders: whole torch.compile, torch.compile per block, and growth from 4 to 48 layers.

As a module with arguments (contestant, layers) this file is the fresh process that is measured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from . import harness

DEEP, SHALLOW = 48, 4


def run(quick: bool = False) -> harness.Result:
    # One round: the whole model takes torch.compile minutes, and the ratios are far from one another.
    deep, rounds = (12 if quick else DEEP), 1
    contestants = {
        "ours": ("sizewise", str(deep)),
        "ours, shallow": ("sizewise", str(SHALLOW)),
        "whole": ("whole", str(deep)),
        "per block": ("per_block", str(deep)),
        "per block, no number": ("per_block_no_number", str(deep)),
    }
    best = harness.taken_in_turns("benchmarks.cold_decoder", contestants, rounds)
    rows = []
    for clock in ("cpu", "wall"):
        ours = best["ours"][clock]
        rows += [
            harness.Row(f"{deep} layers, whole model, {clock}", ours, best["whole"][clock], "s", 6.0, 10.0),
            harness.Row(
                f"{deep} layers, one torch.compile per block, {clock}", ours, best["per block"][clock], "s", 1, 1.5
            ),
            harness.Row(
                f"the same without a layer's number, {clock}", ours, best["per block, no number"][clock], "s", 1, 1.5
            ),
            harness.Row(
                f"growth from {SHALLOW} to {deep} layers, {clock}",
                ours / best["ours, shallow"][clock],
                None,
                "x",
                lower_is_better_limit=1.4,
            ),
        ]
    notes = [
        f"Fresh process, empty cache, until the first result; imports and the machine's own costs are left out. "
        f"{rounds} round, one torch thread. CPU counts the C++ compilers, which run side by side in ours.",
        f"Ours traced: {best['ours']['blocks']}. Graphs that torch.compile made, whole / per block / without a number: "
        f"{best['whole']['graphs']} / {best['per block']['graphs']} / {best['per block, no number']['graphs']}.",
    ]
    return harness.Result("cold_decoder", "Cold build of a deep decoder", "torch.compile", rows, notes)


def child(contestant: str, layers: int) -> None:
    import torch

    import sizewise
    from sizewise import Dim

    from .models import ATTENTION, decoder

    torch.set_num_threads(1)
    model: Any = decoder(layers)
    ids = torch.randint(0, 256, (4, 16))
    harness.pay_machine_costs()
    answer: dict[str, Any] = {"blocks": "", "graphs": 0}
    if contestant == "per_block_no_number":
        for layer in model.layers:
            layer.number = 0
    with harness.measured(answer), torch.no_grad():
        if contestant == "sizewise":
            dims = {"ids": {0: Dim("batch", 1, 64)}}
            fast: Any = sizewise.compile(model, dynamic_shapes=dims, splitting_ops=[ATTENTION], cudagraph_mode="NONE")
            fast(ids)
        elif contestant == "whole":
            torch.compile(model, dynamic=True)(ids)
        else:
            for index, layer in enumerate(model.layers):
                model.layers[index] = torch.compile(layer, dynamic=True)
            model(ids)
    if contestant == "sizewise":
        answer["blocks"] = "; ".join(fast.report().blocks)
    answer["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
