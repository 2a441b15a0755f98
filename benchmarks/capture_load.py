"""A second process with 8 captures, from a bundle and from the cache, against torch.compile's warm cache with one size.

As a module with arguments (``build``, ``bundle`` or ``cache``, and the path of the bundle) this file is one of our
processes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from . import harness

LAYERS = 24
SIZES = [1, 2, 4, 8, 16, 32, 48, 64]
_FLOOR, _AIM = 30.0, 100.0


def run(quick: bool = False) -> harness.Result:
    rounds = 1 if quick else 5
    answers: dict[str, list[dict[str, Any]]] = {"bundle": [], "cache": [], "torch.compile": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        _ours("build", folder)
        for number in range(rounds + 2):
            for contestant, given in answers.items():
                # Twice before it counts: the first of torch.compile builds, and bytecode is written.
                answer = _theirs(folder) if contestant == "torch.compile" else _ours(contestant, folder)
                if number > 1:
                    given.append(answer)
    medians = {contestant: harness.median_of(given, "wall") for contestant, given in answers.items()}
    theirs = medians.pop("torch.compile")
    rows, notes = [], []
    for contestant, what in {"bundle": "load of a bundle", "cache": "warm-up from the cache"}.items():
        ours, limits = medians[contestant], (_FLOOR, _AIM) if contestant == "bundle" else ()
        rows.append(harness.Row(f"{what}, 8 captures, wall", ours["wall"], theirs["wall"], "s", *limits))
        rows.append(harness.Row(f"{what}, 8 captures, CPU", ours["cpu"], theirs["cpu"], "s"))
        rows.append(harness.Row(f"{what}, the first output, wall", ours["first"], theirs["wall"], "s"))
        notes.append(
            f"{what}: of {ours['wall'] * 1000:.0f} ms {ours['capture'] * 1000:.0f} ms are captures at warm-up and "
            f"{ours['imports'] * 1000:.0f} ms imports of what it uses. Compilations in the measured process: "
            f"{ours['compilations']}."
        )
    notes.append(
        f"A decoder of {LAYERS} layers, hidden 64, captures of {SIZES}; torch.compile has one size and none. From the "
        "module built until all are recorded and the first output is there; a bundle's are recorded by the first call "
        "of each size, which is in the time. torch.compile's is until its first output. import torch and import "
        "sizewise are left out, what either imports later is not: torch.compile's time includes Dynamo and Inductor. "
        f"Fresh processes, one torch thread, {rounds} interleaved rounds, medians."
    )
    title = "A second process with 8 captures: the first output"
    return harness.Result("capture_load", title, "torch.compile, warm cache", rows, notes)


def _ours(what: str, folder: str) -> dict[str, Any]:
    arguments = ("benchmarks.capture_load", what, f"{folder}/decoder.sizewise")
    return harness.fresh(*arguments, cache=f"{folder}/ours", programs=f"{folder}/programs")


def _theirs(folder: str) -> dict[str, Any]:
    return harness.fresh("benchmarks.warm_start", "torch.compile", "decoder", cache=f"{folder}/theirs")


def child(what: str, bundle: str) -> None:
    import importlib
    import time

    import torch

    import sizewise

    from .models import ATTENTION, decoder

    torch.set_num_threads(1)
    model, inputs = decoder(LAYERS), {"ids": torch.randint(0, 256, (4, 16))}
    answer: dict[str, Any] = {}
    with harness.measured(answer), torch.no_grad():
        began = time.perf_counter()
        settings = [] if what == "bundle" else ["sizewise.config.compilation"]
        for name in ("sizewise.api", "sizewise.warm", "sizewise.captures", "sizewise.graphs.tape", *settings):
            importlib.import_module(name)
        answer["imports"] = time.perf_counter() - began
        if what == "bundle":
            fast: Any = sizewise.load(bundle, model)
        else:
            fast = sizewise.compile(
                model,
                dynamic_shapes={"ids": {0: sizewise.Dim("batch", 1, 64)}},
                splitting_ops=[ATTENTION],
                cudagraph_mode="FULL",
                cudagraph_capture_sizes=SIZES,
            )
            fast.warmup(**inputs)
        fast(**inputs)
        answer["first"] = time.perf_counter() - began
        # A bundle's captures are recorded when a call needs them.
        for size in SIZES if fast.counters.captures < len(SIZES) else []:
            fast(torch.randint(0, 256, (size, 16)))
    counters = fast.counters
    if counters.captures != len(SIZES) or counters.calls_program or counters.calls_eager:
        raise SystemExit(f"not every size was captured, or a call did not replay: {counters}")
    if what == "build":
        fast.save(bundle)
    answer |= {"capture": fast.report().seconds("capture"), "compilations": counters.compilations}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])
