"""Sizes of declared axes are positive symbols: what a trace makes of them, and what it still refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.source import LocalSource, TensorProperty, TensorPropertySource
from torch.fx.experimental import symbolic_shapes
from torch.nn import functional as F

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.calls import Signature
from sizewise.dims import normalize
from sizewise.errors import trace as errors
from sizewise.trace import TracedGraph, trace_all
from sizewise.trace.positive import positive_sizes

BATCH, LENGTH = Dim("batch", 1, 9), Dim("length", 1, 5)


class Runs(nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def traced(function: Callable[[Tensor], Any], shapes: str = "auto") -> TracedGraph:
    module = Runs(function).eval()
    signature = Signature(module.forward, "Runs")
    call = signature.bind((torch.randn(3, 4),), {})
    spec = normalize({"x": {0: BATCH, 1: LENGTH}}, signature.names(), "Runs")
    first, *_ = trace_all(module, call, spec, "Runs", shapes=shapes)
    return first


def ready(function: Callable[[Tensor], Any], dims: dict[int, Dim], x: Tensor) -> CompiledModule:
    fast = sizewise.compile(Runs(function).eval(), dynamic_shapes={"x": dims}, backend="eager")
    return fast.warmup(x)


def outcome(function: Callable[[Tensor], Any], x: Tensor) -> tuple[str, list[Tensor]]:
    """The class of what is raised, or the tensors that come out."""
    try:
        result = function(x)
    except Exception as problem:
        return type(problem).__name__, []
    return "", [torch.as_tensor(one) for one in (result if isinstance(result, tuple) else (result,))]


# -- the symbols


def torchs_own() -> tuple[Any, Any]:
    return symbolic_shapes.ShapeEnv.create_unbacked_symint, symbolic_shapes.make_symbol


def test_symbols_of_declared_sizes_are_positive() -> None:
    graph = traced(lambda x: x.t().contiguous() + 1, shapes="unbacked")
    assert sorted(graph.symbols.names.values()) == ["batch", "length"]
    assert all(symbol.is_positive and symbol.is_integer for symbol in graph.symbols.names)


def strides() -> str:
    graph = traced(lambda x: (x.t().contiguous()[None] + 1).reshape(-1), shapes="unbacked").graph.graph
    values = [node.meta.get("example_value") for node in graph.nodes]
    return str([value.stride() for value in values if isinstance(value, Tensor)])


def test_strides_are_written_without_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Max" not in strides()
    monkeypatch.setattr("sizewise.trace.dynamo.positive_sizes", nullcontext)
    assert "Max" in strides()


@pytest.mark.parametrize("name", ["make_symbol", "ShapeEnv"])
def test_a_torch_without_them_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_shapes, name, object() if name == "ShapeEnv" else None)
    before = vars(symbolic_shapes).copy()
    with positive_sizes():
        assert vars(symbolic_shapes) == before


def test_other_unbacked_symbols_are_of_any_sign() -> None:
    size = TensorPropertySource(LocalSource("x"), TensorProperty.SIZE, 0)
    env = symbolic_shapes.ShapeEnv()
    made: list[Any] = []
    with positive_sizes():
        made += [env.create_unbacked_symint(source) for source in (size, None, LocalSource("n"))]
        thread = threading.Thread(target=lambda: made.append(symbolic_shapes.ShapeEnv().create_unbacked_symint(size)))
        thread.start()
        thread.join()
    made.append(env.create_unbacked_symint(size))
    assert [one.node.expr.is_positive for one in made] == [True, None, None, None, None]


def test_torchs_functions_are_put_back() -> None:
    before = torchs_own()
    traced(lambda x: x + 1)
    assert torchs_own() == before
    with pytest.raises(errors.NotTraceable):
        traced(lambda x: x + 1 if x.sum() > 0 else x)
    assert torchs_own() == before


def test_they_are_put_back_where_making_a_symbol_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("no symbol")

    monkeypatch.setattr(symbolic_shapes, "make_symbol", fails)
    before = torchs_own()
    with pytest.raises(errors.NotTraceable, match="no symbol"):
        traced(lambda x: x + 1, shapes="unbacked")
    assert torchs_own() == before


# -- sizes of 1, and of what is made from them

SIZES: dict[str, Callable[[Tensor], Any]] = {
    "one row against all": lambda x: (x * x[:1], x + x.mean(0, keepdim=True), x[:1].expand(x.shape[0], -1) + 0),
    "rows against columns": lambda x: x[:, 0][:, None] + x[0][None, :],
    "rows against rows": lambda x: (x[:, None] * x[None, :, :1], x @ x.t()),
    "broadcast": lambda x: torch.broadcast_to(x[0], x.shape) * x,
    "squeezed": lambda x: (x.squeeze(0) + 1, x.unsqueeze(0).squeeze() * 2),
    "one less, perhaps none": lambda x: (x[1:] + 1, x[1:].t().contiguous(), x.new_ones(x.shape[0] - 1, 3) * 2),
    "half, perhaps none": lambda x: (x.new_ones(x.shape[0] // 2, 2) * 2, x[: x.shape[0] // 2] + x[:1]),
    "an empty axis": lambda x: x.new_ones(x.shape[0], 0, 3) * 2,
    "the larger of two": lambda x: (x.new_ones(max(x.shape[0], 1), 2), x.new_ones(max(x.shape[0] - 1, 1), 2) * 2),
    "other orders": lambda x: (x.t().contiguous(), x.t() + 1, x.permute(1, 0)[None].clone(), x.reshape(1, -1) + 1),
    "joined": lambda x: (torch.cat([x, x[:1]]), torch.stack([x, x * 2], 1), F.pad(x, (0, 0, 1, 0))[:-1] + x),
    "arithmetic": lambda x: (x * x.shape[0], x / x.shape[0], x + x.numel(), x * (x.shape[0] == 0)),
}


@pytest.mark.parametrize("name", SIZES)
def test_they_are_eagers_at_every_size(name: str) -> None:
    fast = ready(SIZES[name], {0: BATCH, 1: LENGTH}, torch.randn(3, 4))
    for rows in range(1, 10):
        for columns in (1, 2, 5):
            x = torch.randn(rows, columns)
            wanted, seen = outcome(SIZES[name], x), outcome(fast, x)
            assert (wanted[0], seen[0]) == ("", "")
            for ours, eagers in zip(seen[1], wanted[1], strict=True):
                torch.testing.assert_close(ours, eagers, check_stride=True)


def test_a_size_of_0_is_still_refused_at_entry() -> None:
    fast = ready(lambda x: x + 1, {0: BATCH}, torch.randn(3, 4))
    with pytest.raises(sizewise.SizewiseError, match="0"):
        fast(torch.randn(0, 4))


# -- conditions


def says(condition: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        torch._check(condition(x))
        return x + 1

    return function


def asserts(x: Tensor) -> Tensor:
    assert x.shape[0] <= 5
    return x + 1


def asserts_torchs_way(x: Tensor) -> Tensor:
    torch._assert(x.shape[0] <= 5, "too many")
    return x + 1


def a_value_error(x: Tensor) -> Tensor:
    torch._check_value(x.shape[0] <= 5)
    return x + 1


TRUE = {
    "the range's end": lambda x: x.shape[0] <= 9,
    "the range's start": lambda x: x.shape[0] >= 1,
    "of two sizes": lambda x: x.shape[0] * x.shape[1] == x.numel(),
    "of a fixed size": lambda x: x.shape[1] == 4,
}
FALSE: dict[str, Callable[[Tensor], Any]] = {
    "below the range's end": says(lambda x: x.shape[0] <= 5),
    "above its start": says(lambda x: x.shape[0] > 1),
    "not one of them": says(lambda x: x.shape[0] != 7),
    "a remainder": says(lambda x: x.shape[0] % 3 == 0),
    "never": says(lambda x: x.shape[0] > 100),
    "an assert": asserts,
    "torch's assert": asserts_torchs_way,
    "a value error": a_value_error,
}
OF_DATA: dict[str, Callable[[Tensor], Any]] = {
    "a check of an item": says(lambda x: x.sum().item() < 100),
    "a check of every item": says(lambda x: bool((x < 100).all())),
    "a branch": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "a mask": lambda x: x[x > 0],
    "a slice": lambda x: x[: int(x.shape[0] + (x.sum() * 0).item())] + 1,
}


@pytest.mark.parametrize("name", TRUE)
def test_a_true_condition_on_sizes_is_no_obstacle(name: str) -> None:
    function = says(TRUE[name])
    fast = ready(function, {0: BATCH}, torch.randn(3, 4))
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        assert torch.equal(fast(x), x + 1)


@pytest.mark.parametrize("name", FALSE)
def test_a_condition_that_some_size_breaks_is_refused(name: str) -> None:
    with pytest.raises((errors.SizeAssumption, errors.SizeBranch, errors.NotTraceable), match=r"batch|cond"):
        ready(FALSE[name], {0: BATCH}, torch.randn(3, 4))


@pytest.mark.parametrize("name", OF_DATA)
def test_what_goes_by_data_is_refused(name: str) -> None:
    with pytest.raises(errors.NotTraceable, match="data"):
        ready(OF_DATA[name], {0: BATCH}, torch.randn(3, 4))


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: torch._assert_async((x != 7).all()),
        lambda x: torch.ops.aten._assert_async.msg((x != 7).all(), "seven"),
    ],
    ids=["plain", "with words"],
)
def test_a_condition_that_is_an_operator_holds_at_every_call(condition: Callable[[Tensor], Any]) -> None:
    def function(x: Tensor) -> Tensor:
        condition(x)
        return x + 1

    fast = ready(function, {0: BATCH}, torch.randn(3, 4))
    for rows in (1, 8):
        good, bad = torch.randn(rows, 4), torch.full((rows, 4), 7.0)
        assert torch.equal(fast(good), good + 1)
        assert outcome(function, bad)[0] == outcome(fast, bad)[0] == "RuntimeError"
