"""A second process: from module built to first output, with what the first one left, against torch.compile's own cache.

As a module with arguments (contestant, model) this file is the fresh process that is measured.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from . import harness

MODELS = {"decoder": "24 layers, hidden 64", "minilm": "MiniLM"}
_FLOORS = {"decoder": (100.0, 300.0), "minilm": (50.0, 150.0)}


def run(quick: bool = False) -> harness.Result:
    rounds = 1 if quick else 5
    rows, notes = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for model, what in MODELS.items():
            answers = _measure(model, folder, rounds)
            ours, theirs = answers["sizewise"], answers["torch.compile"]
            rows.append(harness.Row(f"{what}, wall", ours["wall"], theirs["wall"], "s", *_FLOORS[model]))
            rows.append(harness.Row(f"{what}, CPU", ours["cpu"], theirs["cpu"], "s"))
            rows.append(harness.Row(f"{what}, from process start", ours["start"], theirs["start"], "s"))
            notes.append(
                f"{what}: of Sizewise's {ours['wall'] * 1000:.0f} ms {ours['imports'] * 1000:.0f} ms are imports of "
                f"its own modules. Compilations in the measured processes: {ours['compilations']}."
            )
        rows += _imports(rounds)
    notes.append(
        f"Fresh processes, one torch thread, {rounds} interleaved rounds, medians. Each contestant has its own cache "
        "folder, filled by a process before; Python's bytecode is on disk for both. torch.compile has warm caches of "
        "FX graphs, of AOTAutograd and of C++ libraries; its time includes importing Dynamo and Inductor."
    )
    title, baseline = "Warm start: the first output of a second process", "torch.compile, warm cache"
    return harness.Result("warm_start", title, baseline, rows, notes)


def _imports(rounds: int) -> list[harness.Row]:
    """What importing takes in a process that has torch already."""
    # The first writes the bytecode.
    answers = [harness.fresh("benchmarks.warm_start", "imports", "") for _ in range(rounds + 1)][1:]
    return [
        harness.Row(what, statistics.median(answer[key] for answer in answers), None, "s", lower_is_better_limit=0.1)
        for what, key in {
            "import sizewise, beyond import torch": "import",
            "import of everything that serving needs": "all",
        }.items()
    ]


def _measure(model: str, folder: str, rounds: int) -> dict[str, dict[str, Any]]:
    answers: dict[str, list[dict[str, Any]]] = {"sizewise": [], "torch.compile": []}
    for number in range(rounds + 2):
        for contestant, given in answers.items():
            # Twice before it counts: the first builds, the second writes the bytecode of what only a hit imports.
            answer = harness.fresh(
                "benchmarks.warm_start",
                contestant,
                model,
                cache=f"{folder}/{model}-{contestant}",
                programs=f"{folder}/{model}-programs",
            )
            if number > 1:
                given.append(answer)
    return {contestant: harness.median_of(given, "wall") for contestant, given in answers.items()}


def child(contestant: str, name: str) -> None:
    import torch

    if contestant == "imports":
        sys.stdout.write(json.dumps(_imported()) + "\n")
        return
    torch.set_num_threads(1)
    model, inputs, dims = _decoder() if name == "decoder" else _minilm()
    answer: dict[str, Any] = {"imports": 0.0, "compilations": 0}
    with harness.measured(answer), torch.no_grad():
        if contestant == "sizewise":
            began = time.perf_counter()
            import sizewise
            import sizewise.api
            import sizewise.warm

            answer["imports"] = time.perf_counter() - began
            fast: Any = sizewise.compile(model, dynamic_shapes=dims)
            fast.warmup(**inputs)
            fast(**inputs)
        else:
            torch.compile(model, dynamic=True)(**inputs)
    answer["start"] = time.time() - _process_start()
    if contestant == "sizewise":
        answer["compilations"] = fast.counters.compilations
        if fast.counters.captures:
            raise SystemExit("this is about programs; capture_load is about captures")
    sys.stdout.write(json.dumps(answer) + "\n")


def _imported() -> dict[str, float]:
    if "sizewise" in sys.modules:
        raise RuntimeError("sizewise is there already")
    began = time.perf_counter()
    importlib.import_module("sizewise")
    own = time.perf_counter() - began
    for name in ("sizewise.api", "sizewise.warm"):
        importlib.import_module(name)
    return {"import": own, "all": time.perf_counter() - began}


def _decoder() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    import torch

    from sizewise.dims import Dim

    from .models import decoder

    # Of two dims nothing is captured by default. A setting would say so, and import the class of settings.
    dims = {"ids": {0: Dim("batch", 1, 64), 1: Dim("length", 1, 64)}}
    return decoder(24), {"ids": torch.randint(0, 256, (4, 16))}, dims


def _minilm() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from sizewise.dims import Dim

    from .models import minilm, minilm_inputs

    batch, seq = Dim("batch", 1, 16), Dim("seq", 1, 64)
    dims = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    return minilm(), minilm_inputs(4, 16), dims


def _process_start() -> float:
    """When this process began, in seconds since the epoch."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime") as file:
        booted = time.time() - float(file.read().split()[0])
    return booted + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])
