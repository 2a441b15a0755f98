"""Latency of MiniLM at four shapes that are captured, against torch.compile with dynamic sizes and eager mode."""

from __future__ import annotations

from typing import Any

import torch

import sizewise
from sizewise import Dim
from sizewise.verify.tolerance import compare, sum_depth

from . import harness
from .minilm_latency import SHAPES
from .models import minilm, minilm_inputs


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    model = minilm()
    shapes = SHAPES[:2] if quick else SHAPES
    batch, seq = Dim("batch", 1, 16), Dim("seq", 1, 64)
    spec = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    fast = sizewise.compile(model, dynamic_shapes=spec, cudagraph_mode="FULL", cudagraph_capture_sizes=shapes)
    fast.warmup(**minilm_inputs(4, 16))
    dynamic = torch.compile(model, dynamic=True)
    rounds = 5 if quick else 40
    rows = []
    for shape in shapes:
        inputs = minilm_inputs(*shape)
        calls = 1 if shape[0] * shape[1] > 256 else 4
        contestants: dict[str, Any] = {
            "ours": lambda inputs=inputs: fast(**inputs),
            "compile": lambda inputs=inputs: dynamic(**inputs),
            "eager": lambda inputs=inputs: model(**inputs),
        }
        difference = compare(contestants["eager"](), contestants["ours"](), sum_depth(model))
        if difference is not None:
            raise SystemExit(f"wrong at {shape}: {difference.path} {difference.what}")
        contestants["compile"]()  # compiles, where it has to, outside the clock
        with fast.counters.expect(calls_capture=1 + rounds * calls, calls_program=0, calls_eager=0):
            medians = harness.interleaved(contestants, rounds, calls)
        ours, aim = medians["ours"] * 1e3, 1.15 if shape[0] == 1 else None
        rows.append(harness.Row(f"{shape}", ours, medians["compile"] * 1e3, "ms", 1.0, aim))
        rows.append(harness.Row(f"{shape}, against eager", ours, medians["eager"] * 1e3, "ms"))
    notes = [
        f"These shapes are captured; every call of Sizewise's replayed, by its counters. Median of {rounds} "
        "interleaved rounds, CPU time, one thread. Matrix products are most of these times, and are the same for all.",
    ]
    return harness.Result("captured_minilm", "MiniLM by captured shape", "torch.compile(dynamic=True)", rows, notes)
