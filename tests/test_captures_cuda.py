"""Compiled modules with CUDA's own backend, on a stand-in for torch.cuda whose graphs are recorded operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sizewise import CompilationConfig, CompiledModule, Dim
from sizewise.graphs import CUDABackend, backend_for, is_current
from sizewise.graphs.tape import TapeBackend
from sizewise.module import Options
from tests.test_fake_graphs import StandIn

SHAPES = {"x": {0: Dim("batch", 1, 16)}}


class Records(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def again(self) -> None:
        for func, args, kwargs, out in self.calls:
            for mine, seen in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(mine, torch.Tensor) and mine.data_ptr() != seen.data_ptr():
                    mine.copy_(seen)


class Replays(StandIn):
    """Its graphs make the operators' calls again, on the memory of the capture."""

    @contextmanager
    def graph(self, graph: Any, **options: Any) -> Iterator[None]:
        with super().graph(graph, **options):
            with Records() as records:
                yield
        graph.replay = lambda: (self.log.append(("replay",)), records.again())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layers(x)
        return {"y": y, "sum": y.sum(-1), "x": x}


def compiled(stand_in: StandIn, module: nn.Module, **options: Any) -> tuple[Any, list[Any]]:
    asked: list[Any] = []

    def give(kind: str, warmups: int | None) -> CUDABackend:
        asked.append((kind, warmups))
        return CUDABackend(cuda=stand_in, kind="cpu")

    config = CompilationConfig(backend="eager", cudagraph_mode="FULL", cudagraph_capture_sizes=[1, 4, 16])
    return CompiledModule(module.eval(), Options(SHAPES, config, backend_for=give, **options)), asked


def test_every_call_is_a_graphs_between_its_waits() -> None:
    module, stand_in = Net(), Replays()
    fast, asked = compiled(stand_in, module)
    fast.warmup(torch.randn(3, 8))
    assert asked == [("cpu", None)] and fast.counters.captures == 3
    graphs = [line for line in stand_in.log if line[0] == "graph"]
    assert graphs == [("graph", "pool 1", "side", "thread_local")] * 3
    for rows in (1, 3, 4, 9, 16):
        before = len(stand_in.log)
        x = torch.randn(rows, 8)
        seen, wanted = fast(x), module(x)
        assert [line[0] for line in stand_in.log[before:]] == ["wait event", "replay", "record"]
        assert seen["x"] is x
        for name in ("y", "sum"):
            torch.testing.assert_close(seen[name], wanted[name])
    assert fast.counters.calls_capture == 5 and fast.counters.calls_program == 0
    assert fast.report().capture_bytes == 300
    fast.close()
    assert stand_in.log.count(("reset",)) == 3


def test_static_results_of_graphs() -> None:
    module, stand_in = Net(), Replays()
    fast, _ = compiled(stand_in, module, outputs="static")
    fast.warmup(torch.randn(3, 8))
    first = fast(torch.randn(3, 8))["y"]
    assert is_current(first)
    x = torch.randn(4, 8)
    second = fast(x)["y"]
    assert not is_current(first) and is_current(second)
    torch.testing.assert_close(second, module(x)["y"])


def test_which_backend_serves_a_device() -> None:
    cuda = backend_for("cuda", 3)
    assert isinstance(cuda, CUDABackend) and cuda.cudagraph_num_of_warmups == 3
    assert isinstance(backend_for("cuda"), CUDABackend) and backend_for("cuda").cudagraph_num_of_warmups == 1
    assert isinstance(backend_for("cpu"), TapeBackend)
