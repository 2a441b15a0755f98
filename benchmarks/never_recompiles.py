"""Sizes 1 to 64 in random order: compilations after warm-up, and the worst call, against torch.compile."""

from __future__ import annotations

import random
import time
from typing import Any

import torch

import sizewise
from sizewise import Dim

from . import harness
from .models import ATTENTION, decoder

LAYERS = 4


def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    model = decoder(LAYERS)
    sizes = list(range(1, 65))
    random.Random(0).shuffle(sizes)
    sizes = sizes[: 16 if quick else 64]
    fast = sizewise.compile(
        model, dynamic_shapes={"ids": {0: Dim("batch", 1, 64), 1: Dim("length", 1, 8)}}, splitting_ops=[ATTENTION]
    )
    example = torch.randint(0, 256, (4, 8))
    fast.warmup(example)
    dynamic = torch.compile(model, dynamic=True)
    with torch.no_grad():
        dynamic(example)
    counters = torch._dynamo.utils.counters["stats"]
    before, theirs_before = fast.counters.traces + fast.counters.compilations, counters["unique_graphs"]
    served = fast.counters.as_dict()
    worst = {"sizewise": _worst(fast, sizes), "torch.compile": _worst(dynamic, sizes)}
    captures, programs = (fast.counters.as_dict()[name] - served[name] for name in ("calls_capture", "calls_program"))
    if captures + programs != len(sizes):
        raise SystemExit(f"of {len(sizes)} calls {captures} replayed and {programs} ran a program")
    ours = fast.counters.traces + fast.counters.compilations - before
    theirs = counters["unique_graphs"] - theirs_before
    rows = [
        harness.Row("compilations after warm-up", ours, float(theirs), "", lower_is_better_limit=0),
        harness.Row("worst call", worst["sizewise"] * 1e3, worst["torch.compile"] * 1e3, "ms"),
    ]
    notes = [
        f"A decoder of {LAYERS} layers, hidden 64, at {len(sizes)} batch sizes from 1 to 64, each seen once. Of "
        f"Sizewise's calls {captures} replayed a capture and {programs} ran the program: with two dims there are no "
        "captures unless sizes are listed."
    ]
    return harness.Result("never_recompiles", "Sizes in random order", "torch.compile(dynamic=True)", rows, notes)


@torch.no_grad()
def _worst(function: Any, sizes: list[int]) -> float:
    worst = 0.0
    for size in sizes:
        ids = torch.randint(0, 256, (size, 1 + size % 8))
        started = time.process_time()
        function(ids)
        worst = max(worst, time.process_time() - started)
    return worst
