"""Latency of MiniLM at four shapes, against torch.compile with dynamic sizes and eager mode."""

from __future__ import annotations

from typing import Any

import torch

import sizewise
from sizewise import Dim

from . import harness
from .models import minilm, minilm_inputs

SHAPES = [(1, 8), (1, 32), (4, 16), (16, 32)]


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    model = minilm()
    batch, seq = Dim("batch", 1, 16), Dim("seq", 1, 64)
    spec = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    fast = sizewise.compile(model, dynamic_shapes=spec, cudagraph_mode="NONE").warmup(**minilm_inputs(4, 16))
    dynamic = torch.compile(model, dynamic=True)
    rows = []
    for rows_, length in SHAPES:
        inputs = minilm_inputs(rows_, length)
        dynamic(**inputs)  # compiles, where it has to, outside the clock
        contestants: dict[str, Any] = {
            "ours": lambda inputs=inputs: fast(**inputs),
            "compile": lambda inputs=inputs: dynamic(**inputs),
            "eager": lambda inputs=inputs: model(**inputs),
        }
        rounds = 5 if quick else 40
        calls = 1 if rows_ * length > 256 else 4
        medians = harness.interleaved(contestants, rounds, calls)
        ours = medians["ours"] * 1e3
        rows.append(harness.Row(f"({rows_}, {length})", ours, medians["compile"] * 1e3, "ms", 0.9, 1.1))
        rows.append(harness.Row(f"({rows_}, {length}), against eager", ours, medians["eager"] * 1e3, "ms"))
    notes = ["Matrix products are 87 to 98 % of these times, and are the same for all three."]
    return harness.Result("minilm_latency", "MiniLM by shape", "torch.compile(dynamic=True)", rows, notes)
