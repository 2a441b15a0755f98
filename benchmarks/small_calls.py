"""Launch-bound calls: a decoder of 24 layers, hidden 64, batch 1 and 2, and the entry check alone."""

from __future__ import annotations

from typing import Any

import torch

import sizewise
from sizewise import Dim
from sizewise.dispatch import Entry

from . import harness
from .models import ATTENTION, decoder

LAYERS = 24


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    model = decoder(LAYERS)
    dims = {"ids": {0: Dim("batch", 1, 8), 1: Dim("length", 1, 64)}}
    fast = sizewise.compile(model, dynamic_shapes=dims, splitting_ops=[ATTENTION], cudagraph_mode="NONE")
    fast.warmup(torch.randint(0, 256, (4, 8)))
    dynamic = torch.compile(model, dynamic=True)
    dynamic(torch.randint(0, 256, (4, 8)))
    rounds, calls = (15, 10) if quick else (120, 10)
    rows = []
    for batch in (1, 2):
        ids = torch.randint(0, 256, (batch, 1))
        contestants: dict[str, Any] = {
            "ours": lambda ids=ids: fast(ids),
            "compile": lambda ids=ids: dynamic(ids),
            "eager": lambda ids=ids: model(ids),
        }
        medians = harness.interleaved(contestants, rounds, calls)
        ours, name = medians["ours"] * 1e6, f"a call, batch {batch}"
        rows.append(harness.Row(name, ours, medians["compile"] * 1e6, "us", 1.1, 1.4))
        rows.append(harness.Row(f"{name}, against eager", ours, medians["eager"] * 1e6, "us"))
    entry = fast.built.entries[0]
    checks = harness.interleaved({"entry": lambda: check(ids)}, rounds, 1000) if (check := check_alone(entry)) else {}
    rows.append(harness.Row("the entry check alone", checks["entry"] * 1e6, None, "us", lower_is_better_limit=40))
    notes = [
        f"{LAYERS} layers, {sum(1 for _ in model.parameters())} parameters, through the public call, every check on; "
        f"median of {rounds} interleaved rounds of {calls} calls, CPU time, one thread. Aim of the entry check: 8 us."
    ]
    return harness.Result("small_calls", "Launch-bound calls", "torch.compile(dynamic=True)", rows, notes)


def check_alone(entry: Entry) -> Any:
    """The entry with a program that does nothing: what is left is the check."""
    from sizewise.dispatch import _EntryWriter

    source, scope = _EntryWriter(entry).write()
    scope["sw_program"] = lambda *_: None
    exec(source, scope)
    return scope["entry"]
