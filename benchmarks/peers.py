"""MiniLM against whole-model compilers of one shape range: AOTInductor and ONNX Runtime, and static torch.compile.

ONNX Runtime takes part where it is installed: ``pip install 'sizewise[bench]'``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

import sizewise
from sizewise import Dim

from . import harness
from .minilm_latency import SHAPES
from .models import minilm, minilm_inputs

Inputs = Mapping[str, torch.Tensor]


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    model = minilm()
    batch, seq = Dim("batch", 1, 16), Dim("seq", 1, 64)
    spec = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    build: dict[str, float] = {}
    peers: dict[str, Callable[..., Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours = sizewise.compile(model, dynamic_shapes=spec, cudagraph_mode="NONE")
        fast = _timed("sizewise", build, lambda: ours.warmup(**minilm_inputs(4, 16)))
        for name, make in {"AOTInductor": aot_inductor, "ONNX Runtime": onnx_runtime}.items():
            made = _timed(name, build, lambda make=make: make(model, Path(folder)))
            if made is not None:
                peers[name] = made
        rows = [row for shape in SHAPES for row in _rows(shape, model, fast, peers, quick)]
    rows += [harness.Row(f"build, wall, against {name}", build["sizewise"], build[name], "s") for name in peers]
    notes = [
        "One thread, fp32; median CPU time of interleaved rounds. Static torch.compile has one graph per shape.",
        "AOTInductor and ONNX Runtime are exported with a dynamic batch (1 to 16) and length (2 to 64).",
        "Builds share one warm machine and are not interleaved: their times say the order of magnitude.",
    ]
    if "ONNX Runtime" not in peers:
        notes.append("ONNX Runtime is not installed here.")
    return harness.Result("peers", "MiniLM against AOTInductor and ONNX Runtime", "the peer", rows, notes)


def _timed(name: str, into: dict[str, float], make: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    made = make()
    into[name] = time.perf_counter() - started
    return made


def _rows(
    shape: tuple[int, int], model: nn.Module, fast: Any, peers: Mapping[str, Callable[..., Any]], quick: bool
) -> list[harness.Row]:
    inputs = minilm_inputs(*shape)
    static = torch.compile(model, dynamic=False)
    contestants: dict[str, Any] = {"ours": lambda: fast(**inputs), "static torch.compile": lambda: static(**inputs)}
    for name, call in peers.items():
        contestants[name] = lambda call=call: call(inputs)
    expected = model(**inputs).last_hidden_state
    for name, call in contestants.items():
        given = call()
        seen = given.last_hidden_state if hasattr(given, "last_hidden_state") else torch.as_tensor(given[0])
        torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-4, msg=f"{name} is wrong at {shape}")
    calls = 1 if shape[0] * shape[1] > 256 else 4
    medians = harness.interleaved(contestants, 5 if quick else 40, calls)
    ours = medians.pop("ours") * 1e3
    return [harness.Row(f"{shape}, {name}", ours, taken * 1e3, "ms") for name, taken in medians.items()]


def aot_inductor(model: nn.Module, folder: Path) -> Callable[[Inputs], Any]:
    """MiniLM as an AOTInductor package."""
    batch, seq = torch.export.Dim("batch", min=1, max=16), torch.export.Dim("seq", min=2, max=64)
    shapes = {name: {0: batch, 1: seq} for name in ("input_ids", "attention_mask")}
    exported = torch.export.export(_Plain(model), (), dict(minilm_inputs(4, 16)), dynamic_shapes=shapes)
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "minilm.pt2"))
    loaded = torch._inductor.aoti_load_package(package)
    return lambda inputs: loaded(**inputs)


def onnx_runtime(model: nn.Module, folder: Path) -> Callable[[Inputs], Any] | None:
    """MiniLM in ONNX Runtime, one thread; None where it is not installed."""
    if find_spec("onnxruntime") is None or find_spec("onnxscript") is None:
        return None
    import onnxruntime

    path = folder / "minilm.onnx"
    inputs = minilm_inputs(4, 16)
    shapes = {name: {0: "batch", 1: "seq"} for name in inputs}
    with open(os.devnull, "w") as nowhere, _quiet(nowhere):
        torch.onnx.export(_Plain(model), (), str(path), kwargs=dict(inputs), dynamic_shapes=shapes, dynamo=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, {name: value.numpy() for name, value in given.items()})


class _Plain(nn.Module):
    """MiniLM with a tensor for a result, which is what exports want."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state,)


def _quiet(stream: Any) -> Any:
    from contextlib import redirect_stdout

    return redirect_stdout(stream)
