from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models import ATTENTION, decoder
from sizewise import Dim
from sizewise.errors import trace as errors
from sizewise.split import Piece, SplitCall, split
from sizewise.structure import structural_key
from sizewise.trace import TracedGraph

from .test_trace import trace

BATCH, LENGTH = Dim("batch", 1, 16), Dim("length", 1, 32)


def traced_decoder(layers: int) -> TracedGraph:
    [traced] = trace(decoder(layers), torch.zeros(2, 3, dtype=torch.long), dims={"ids": {0: BATCH, 1: LENGTH}})
    return traced


def pieces(steps: list[Any]) -> list[Piece]:
    return [step for step in steps if isinstance(step, Piece)]


def test_a_decoder_is_cut_at_its_attention() -> None:
    steps = split(traced_decoder(3), [ATTENTION], user_set=True)
    kinds = [type(step).__name__ for step in steps]
    assert kinds == ["Piece", "SplitCall"] * 3 + ["Piece"]


@pytest.mark.parametrize("layers", [2, 5, 8])
def test_a_decoder_of_any_depth_has_three_distinct_pieces(layers: int) -> None:
    traced = traced_decoder(layers)
    keys = [structural_key(piece.graph, traced.symbols) for piece in pieces(split(traced, [ATTENTION], True))]
    assert len(keys) == layers + 1
    assert len(set(keys)) == 3


def test_no_splitting_op_is_one_piece() -> None:
    assert len(split(traced_decoder(2), [], user_set=True)) == 1


def test_pieces_run_in_eager_give_the_whole_graphs_result() -> None:
    traced = traced_decoder(2)
    steps = split(traced, [ATTENTION], user_set=True)
    made = {name for step in pieces(steps) for name in step.outputs}
    given = {item.name for item in traced.inputs}
    for step in pieces(steps):
        assert set(step.inputs) <= made | given


class TwoResults(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        values, indices = x.sin().topk(2)
        return values.cos() + indices


def test_the_items_of_a_split_operator_stay_with_it() -> None:
    [traced] = trace(TwoResults(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    first, cut, last = split(traced, ["aten::topk"], user_set=True)
    assert isinstance(first, Piece)
    assert isinstance(cut, SplitCall)
    assert next(node.name for node in cut.nodes) == "topk"
    assert len(cut.nodes) == 3
    assert isinstance(last, Piece)


class Sub(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.tanh() * 2


class WithSub(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sub = Sub()

    def forward(self, x: Tensor) -> Tensor:
        return self.sub(x + 1) + 1


def test_a_module_class_can_be_cut_out() -> None:
    [traced] = trace(WithSub(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    kinds = [type(step).__name__ for step in split(traced, [Sub], user_set=True)]
    assert kinds == ["Piece", "SplitCall", "Piece"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("aten::tpok", "is not a registered operator.*aten::topk"),
        ("aten::softmax", "does not occur in the graph"),
        ("nonsense", "is not a registered operator"),
        (Sub, "class of no module that runs"),
    ],
)
def test_a_name_that_cuts_nothing_is_refused(name: Any, says: str) -> None:
    [traced] = trace(TwoResults(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    with pytest.raises(errors.UnknownSplittingOp, match=says):
        split(traced, [name], user_set=True)


def test_a_default_name_that_cuts_nothing_is_fine() -> None:
    [traced] = trace(TwoResults(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    assert len(split(traced, ["sizewise::attention"], user_set=False)) == 1


class Scaled(nn.Module):
    def __init__(self, factor: float, constant: Any = None) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def key_of(module: nn.Module, *args: Tensor, dim: Dim = BATCH) -> str:
    [traced] = trace(module, *args, dims={"x": {0: dim}})
    [piece] = split(traced, [], user_set=True)
    assert isinstance(piece, Piece)
    return structural_key(piece.graph, traced.symbols)


def test_the_key_changes_with_what_changes_the_code_and_with_nothing_else() -> None:
    x = torch.randn(3, 4)
    base = key_of(Scaled(2.0), x)
    assert key_of(Scaled(2.0), torch.randn(5, 4)) == base
    assert key_of(Scaled(3.0), x) != base
    assert key_of(Scaled(2.0), x.double()) != base
    assert key_of(Scaled(2.0), torch.randn(3, 5)) != base
    assert key_of(Scaled(2.0), x, dim=Dim("batch", 1, 8)) != base
    assert key_of(Scaled(2.0), x, dim=Dim("other_name", 1, 16)) == base
