"""Memory of 16 captured sizes against the largest alone: what they share, and what each adds to the process.

As a module with arguments (model, ``all`` or ``largest``) this file is the fresh process that is measured.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import sys
import tempfile
from typing import Any

from . import harness

MODELS = {
    "decoder": "24 layers, hidden 64, batch 1 to 64",
    "mlp": "an MLP of 4 layers, 256 wide, batch 1 to 512",
    "minilm": "MiniLM, batch 1 to 8, length 1 to 64",
}
FLOOR, AIM = 2.0, 1.3


def run(quick: bool = False) -> harness.Result:
    names = ["mlp"] if quick else list(MODELS)
    rounds = 1 if quick else 3
    rows, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            answers = _measure(name, folder, rounds)
            every, largest = answers["all"][0], answers["largest"][0]
            ratio = every["bytes"] / largest["bytes"]
            what = MODELS[name]
            rows.append(harness.Row(what, ratio, None, "x", lower_is_better_limit=FLOOR))
            rows.append(harness.Row("bytes of 16 captures", every["bytes"] / 1024, None, "KiB"))
            rows.append(harness.Row("bytes of the largest alone", largest["bytes"] / 1024, None, "KiB"))
            rows.append(harness.Row("each capture's own bytes, added up", sum(every["each"]) / 1024, None, "KiB"))
            grown = [statistics.median(answer["rss"] for answer in answers[which]) for which in ("all", "largest")]
            per_size = (grown[0] - grown[1]) / (every["captures"] - largest["captures"]) / 1024
            rows.append(harness.Row("the process grew, per further size", per_size, None, "KiB"))
            notes.append(f"{what}: aim {AIM}x {'met' if ratio <= AIM else 'missed'}.")
    notes.append(
        "Bytes are those of the memory that captures compute in: arguments, intermediates and results, which all of "
        "a program's captures share. They are counted, not measured. What the process grew by is measured, in fresh "
        f"processes (median of {rounds}): it has the calls of each tape and their tensors as Python objects as well, "
        "and is rough."
    )
    return harness.Result("capture_memory", "Memory of 16 captured sizes", "", rows, notes)


def _measure(name: str, folder: str, rounds: int) -> dict[str, list[dict[str, Any]]]:
    answers: dict[str, list[dict[str, Any]]] = {"all": [], "largest": []}
    for number in range(rounds + 1):
        for which, given in answers.items():
            arguments = ("benchmarks.capture_memory", name, which)
            answer = harness.fresh(*arguments, cache=f"{folder}/inductor", programs=f"{folder}/programs")
            # The first ones build: compilers leave memory behind.
            if number:
                given.append(answer)
    return answers


def child(name: str, which: str) -> None:
    import torch

    import sizewise

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs, dims, sizes, options = _MAKE[name]()
    sizes = sizes if which == "all" else [sizes[-1]]
    # What a first capture imports and allocates is not a capture's.
    small = {"input": {0: sizewise.Dim("batch", 1, 2)}}
    other = sizewise.compile(torch.nn.ReLU().eval(), dynamic_shapes=small, cudagraph_mode="FULL")
    other.warmup(torch.randn(2, 2))
    plain = sizewise.compile(model, dynamic_shapes=dims, cudagraph_mode="NONE", **options)
    plain.warmup(**inputs)
    before = _resident()
    fast: Any = sizewise.compile(
        model, dynamic_shapes=dims, cudagraph_mode="FULL", cudagraph_capture_sizes=sizes, **options
    )
    fast.warmup(**inputs)
    answer = {
        "rss": _resident() - before,
        "bytes": fast.__dict__["_sw_generation"].captures.bytes,
        "each": [size["bytes"] for size in fast.report().captures],
        "captures": fast.counters.captures,
    }
    if answer["captures"] != len(sizes):
        raise SystemExit(f"{answer['captures']} captures of {len(sizes)}")
    sys.stdout.write(json.dumps(answer) + "\n")


def _resident() -> int:
    """Bytes of memory that this process holds, without what was freed."""
    gc.collect()
    # Only of glibc; warm-ups free many megabytes that it keeps.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _decoder() -> tuple[Any, ...]:
    import torch

    from sizewise import Dim

    from .models import ATTENTION, decoder

    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 40, 48, 64]
    ids = torch.randint(0, 256, (4, 1))
    return decoder(24), {"ids": ids}, {"ids": {0: Dim("batch", 1, 64)}}, sizes, {"splitting_ops": [ATTENTION]}


def _mlp() -> tuple[Any, ...]:
    import torch
    from torch import nn

    from sizewise import Dim

    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.GELU())]
    sizes = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512]
    model = nn.Sequential(*layers).eval()
    return model, {"input": torch.randn(4, 256)}, {"input": {0: Dim("batch", 1, 512)}}, sizes, {}


def _minilm() -> tuple[Any, ...]:
    from sizewise import Dim

    from .models import minilm, minilm_inputs

    batch, seq = Dim("batch", 1, 8), Dim("seq", 1, 64)
    dims = {name: {0: batch, 1: seq} for name in ("input_ids", "attention_mask")}
    sizes = [(rows, length) for rows in (1, 2, 4, 8) for length in (8, 16, 32, 64)]
    return minilm(), minilm_inputs(4, 16), dims, sizes, {}


_MAKE = {"decoder": _decoder, "mlp": _mlp, "minilm": _minilm}


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])
