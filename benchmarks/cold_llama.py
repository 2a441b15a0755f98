"""Cold build of a Llama of transformers (12 layers, hidden 512, vocabulary 8192) against torch.compile.

As a module with an argument (the contestant) this file is the fresh process that is measured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from . import harness

FLOOR, AIM, THEIRS = 12.0, 6.0, 42.0
"""CPU seconds, on a machine where torch.compile took the last; `vllm_cpu` measures vLLM's own compilation."""


def run(quick: bool = False) -> harness.Result:
    rounds = 1 if quick else 3
    contestants = {name: (name,) for name in ("sizewise", "whole", "per_block")}
    best = harness.taken_in_turns("benchmarks.cold_llama", contestants, rounds)
    ours = best["sizewise"]
    rows = [harness.Row("CPU seconds to the first result", ours["cpu"], None, "s", lower_is_better_limit=FLOOR)]
    for name, what in {"whole": "the whole model", "per_block": "torch.compile per block"}.items():
        limits = (THEIRS / FLOOR, THEIRS / AIM) if name == "whole" else ()
        rows.append(harness.Row(f"{what}, CPU", ours["cpu"], best[name]["cpu"], "s", *limits))
        rows.append(harness.Row(f"{what}, wall", ours["wall"], best[name]["wall"], "s"))
    notes = [
        f"Fresh process, empty cache, one torch thread; imports and the machine's own costs are left out. {rounds} "
        f"interleaved rounds. Aim: {AIM:g} CPU seconds. The limits are of a machine where the whole model took "
        f"torch.compile {THEIRS:g} CPU seconds: as ratios {THEIRS / FLOOR:g}x and {THEIRS / AIM:g}x. Ours serves "
        "batch 1 to 8 and lengths 1 to 64; the others compile again at batch 1.",
        f"Ours traced: {ours['blocks']}.",
    ]
    return harness.Result(
        "cold_llama", "Cold build of a Llama of 12 layers", "torch.compile(dynamic=True)", rows, notes
    )


def child(contestant: str) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import sizewise
    from sizewise import Dim

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=8192,
        max_position_embeddings=512,
        use_cache=False,
    )
    model: Any = LlamaForCausalLM(config).eval()
    ids = torch.randint(3, 8192, (4, 16))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    harness.pay_machine_costs()
    answer: dict[str, Any] = {"blocks": ""}
    with harness.measured(answer), torch.no_grad():
        if contestant == "sizewise":
            batch, length = Dim("batch", 1, 8), Dim("length", 1, 64)
            dims = {name: {0: batch, 1: length} for name in inputs}
            fast: Any = sizewise.compile(model, dynamic_shapes=dims, cudagraph_mode="NONE")
            fast(**inputs)
        elif contestant == "whole":
            torch.compile(model, dynamic=True)(**inputs)
        else:
            for index, layer in enumerate(model.model.layers):
                model.model.layers[index] = torch.compile(layer, dynamic=True)
            model(**inputs)
    if contestant == "sizewise":
        answer["blocks"] = "; ".join(fast.report().blocks)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    child(sys.argv[1])
