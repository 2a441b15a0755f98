"""Launch-bound calls that replay a capture: 24 layers, against torch.compile, AOTInductor and eager mode."""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.counters import Counters
from sizewise.graphs.bucket import Bucket
from sizewise.graphs.buckets import Buckets

from . import harness
from .models import ATTENTION, decoder
from .small_calls import check_alone

LAYERS, QUICK_LAYERS = 24, 4
SIZES = [1, 2, 4, 8, 16]
PADDED = 3
"""A batch that no capture has: it is filled up to the next one."""
LIMIT, AIM = 25, 10
"""Microseconds of a call beyond its replay and its entry check."""


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    layers, rounds, calls = (QUICK_LAYERS, 15, 10) if quick else (LAYERS, 120, 10)
    model = decoder(layers)
    fast, program = (_ours(model, mode) for mode in ("FULL", "NONE"))
    with tempfile.TemporaryDirectory() as folder:
        package = aot_inductor(model, Path(folder))
        others = {
            "torch.compile": torch.compile(model, dynamic=True),
            "AOTInductor package": package,
            "AOTInductor, loader.run": lambda ids: package.loader.run([ids])[0],
            "eager": model,
            "Sizewise without captures": program,
        }
        others["torch.compile"](_ids(4))
        rows = [row for batch in (1, 2) for row in _calls(batch, model, fast, others, rounds, calls)]
    parts = _parts(fast, _ids(PADDED), rounds)
    rows += _beyond(parts)
    return harness.Result(
        "captured_calls", "Calls that replay a capture", "the other", rows, _notes(layers, parts, rounds)
    )


def _ours(model: nn.Module, mode: str) -> CompiledModule:
    dims = {"ids": {0: Dim("batch", 1, SIZES[-1])}}
    sizes: dict[str, Any] = {"cudagraph_capture_sizes": SIZES} if mode == "FULL" else {}
    fast = sizewise.compile(model, dynamic_shapes=dims, splitting_ops=[ATTENTION], cudagraph_mode=mode, **sizes)
    warmed: CompiledModule = fast.warmup(_ids(4))
    return warmed


def _ids(batch: int) -> Tensor:
    return torch.randint(0, 256, (batch, 1))


def aot_inductor(model: nn.Module, folder: Path) -> Any:
    """``model`` as an AOTInductor package with a dynamic batch, loaded; called with token ids."""
    shapes = {"ids": {0: torch.export.Dim("batch", min=1, max=SIZES[-1])}}
    exported = torch.export.export(model, (_ids(4),), dynamic_shapes=shapes)
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "decoder.pt2"))
    return torch._inductor.aoti_load_package(package)


def _calls(
    batch: int,
    model: nn.Module,
    fast: CompiledModule,
    others: dict[str, Callable[[Tensor], Any]],
    rounds: int,
    calls: int,
) -> list[harness.Row]:
    ids = _ids(batch)
    functions: dict[str, Callable[[Tensor], Any]] = {"ours": fast, **others}
    for name, function in functions.items():
        torch.testing.assert_close(function(ids), model(ids), msg=f"{name} is wrong at batch {batch}")
    contestants = {name: lambda function=function: function(ids) for name, function in functions.items()}
    with fast.counters.expect(calls_capture=1 + rounds * calls, calls_program=0, calls_eager=0):
        medians = harness.interleaved(contestants, rounds, calls)
    ours = medians.pop("ours") * 1e6
    limits = {"torch.compile": (2.2, 3.2), "eager": (7.0, 10.0), "AOTInductor package": (1.0, 1.2)}
    return [
        harness.Row(f"batch {batch}, against {name}", ours, taken * 1e6, "us", *limits.get(name, ()))
        for name, taken in medians.items()
    ]


def _parts(fast: CompiledModule, ids: Tensor, rounds: int) -> dict[str, float]:
    """Microseconds of a call, and of its parts as they are after a replay.

    Each part follows a replay here as there, which leaves little of it in the processor's caches.
    """
    generation = fast.__dict__["_sw_generation"]
    entry, buckets = generation.built.entries[0], generation.captures.buckets[0]
    bucket = buckets.holding({"batch": len(ids)})
    given = _ids(bucket.sizes["batch"])
    check, rest = check_alone(entry), without_replays(fast)

    def replay() -> None:
        # A replay may overwrite what it is given.
        bucket.capture.inputs[0].copy_(given)
        bucket.capture.replay()

    contestants: dict[str, Callable[[], Any]] = {
        "call": lambda: fast(ids),
        "replay": replay,
        "check": lambda: (replay(), check(ids)),
        "rest": lambda: (replay(), rest(ids)),
    }
    with fast.counters.expect(calls_capture=1 + rounds * 10, calls_program=0, calls_eager=0):
        taken = harness.interleaved(contestants, rounds, 10)
    call, alone, checked, without = (taken[name] * 1e6 for name in contestants)
    return {
        "beyond": without - checked,
        "difference": call - checked,
        "check": checked - alone,
        "replay": alone,
    }


def without_replays(fast: CompiledModule) -> Callable[..., Any]:
    """``fast`` with captures whose replay does nothing: what is left is all that a call does around it.

    Results are whatever the captures' memory holds. Replays are counted elsewhere. ``fast`` stays as it is.
    """
    generation = fast.__dict__["_sw_generation"]
    counters, calls = Counters(), []
    for entry, found in zip(generation.built.entries, generation.captures.buckets, strict=True):
        empty = Buckets(
            entry.program.size_names,
            [_without_replay(bucket) for bucket in found.buckets],
            found.padded,
            counters.adder("calls_capture"),
        )
        calls.append(entry.serving(empty, counters.adder("calls_program")).call)
    other = object.__new__(CompiledModule)
    other.__dict__.update(fast.__dict__, _sw_generation=dataclasses.replace(generation, calls=tuple(calls)))
    return other


def _without_replay(bucket: Bucket) -> Bucket:
    other = copy.copy(bucket)
    other.capture = dataclasses.replace(bucket.capture, replay=lambda: None)
    return other


def _beyond(parts: dict[str, float]) -> list[harness.Row]:
    name = f"beyond the replay and the entry check, batch {PADDED} in a capture of 4"
    return [
        harness.Row(name, parts["beyond"], None, "us", lower_is_better_limit=LIMIT),
        harness.Row("the same, as the call less its replay and its entry check", parts["difference"], None, "us"),
        harness.Row("the entry check, after a replay", parts["check"], None, "us"),
        harness.Row("the replay, its arguments copied in", parts["replay"], None, "us"),
    ]


def _notes(layers: int, parts: dict[str, float], rounds: int) -> list[str]:
    return [
        f"{layers} layers, hidden 64, one token per row, captures of {SIZES}; through the public call, every check on; "
        f"median of {rounds} interleaved rounds, CPU time, one thread. Every call of Sizewise's replayed a capture, by "
        "its counters.",
        "AOTInductor: torch.export with a dynamic batch, aoti_compile_and_package, aoti_load_package. The package is "
        "called as its users call it; loader.run leaves out its checks of what the arguments look like. Attention is "
        "the same operator in Python for all.",
        "Beyond the replay: a replay and then the whole call with a replay that does nothing, less a replay and then "
        "the entry check. It fills up, copies the arguments in, cuts and copies the result out, takes the lock "
        "and counts. The addresses of the weights are part of the entry check. Each part follows a replay, which "
        f"leaves little of it in the processor's caches; in a loop of its own it takes less. Aim: {AIM} us "
        f"({'met' if parts['beyond'] <= AIM else 'missed'}). The difference of whole calls leaves one copy of the "
        "arguments out and has their noise.",
    ]
