"""Tracing, without compiling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.models import decoder
from sizewise import Dim
from sizewise.calls import Signature
from sizewise.dims import normalize
from sizewise.errors import trace as errors
from sizewise.trace import TracedGraph, trace_all, twin_of

BATCH = Dim("batch", 1, 16)


def trace(
    module: nn.Module, *args: Any, dims: dict[str, Any], shapes: str = "auto", **kwargs: Any
) -> list[TracedGraph]:
    signature = Signature(module.forward, type(module).__name__)
    call = signature.bind(args, kwargs)
    return trace_all(module.eval(), call, normalize(dims, signature.names(), "M"), type(module).__name__, shapes=shapes)


class Everything(nn.Module):
    """Inputs and outputs of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.plain = torch.full((4,), 2.0)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.lin(x) + self.shift * self.plain
        return {
            "y": y,
            "same": x,
            "view": x.T,
            "weight": self.lin.weight,
            "n": x.shape[0],
            "c": 7,
            "top": y.topk(2),
        }


def test_inputs_are_known_by_kind_and_name() -> None:
    [traced] = trace(Everything(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    kinds = {item.path: item.kind for item in traced.inputs if item.kind != "size"}
    assert kinds == {
        "lin.weight": "parameter",
        "lin.bias": "parameter",
        "shift": "buffer",
        "plain": "attribute",
        "x": "dynamic",
    }
    assert any(item.kind == "size" and (item.path, item.axis) == ("x", 0) for item in traced.inputs)


def test_the_template_keeps_keys_constants_classes_and_identity() -> None:
    [traced] = trace(Everything(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    kinds = dict(zip(traced.template.keys, [child.kind for child in traced.template.children], strict=True))
    assert kinds == {
        "y": "graph",
        "same": "input",
        "view": "graph",
        "weight": "tensor",
        "n": "graph",
        "c": "constant",
        "top": "structseq",
    }


def test_one_unbacked_trace_covers_every_size() -> None:
    [traced] = trace(decoder(2), torch.zeros(2, 3, dtype=torch.long), dims={"ids": {0: BATCH, 1: Dim("length", 1, 32)}})
    assert set(traced.policy.values()) == {"unbacked"}
    assert all(assumption.verdict == "proved" for assumption in traced.assumptions)


def test_nothing_of_a_trace_stays_on_the_users_code_or_tensors() -> None:
    module, x = Everything(), torch.randn(3, 4)
    trace(module, x, dims={"x": {0: BATCH}})
    assert not [name for name in vars(x) if name.startswith("_dynamo")]
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list(Everything.forward.__code__)
    assert not entries


def test_a_later_torch_compile_of_the_same_class_is_not_affected() -> None:
    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    trace(Scale(2.0), torch.randn(3), dims={"x": {0: BATCH}})
    other = torch.compile(Scale(5.0), backend="eager")
    assert torch.equal(other(torch.ones(3)), torch.full((3,), 5.0))


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.shape[0] > 5 else x - 1


def test_a_branch_on_a_size_is_refused_with_the_users_line() -> None:
    with pytest.raises(errors.SizeBranch, match=r"x\.shape\[0\]") as seen:
        trace(Branch(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    assert "test_trace.py" in str(seen.value)
    assert "x.shape[0] > 5" in str(seen.value)


def test_a_branch_that_the_range_decides_is_no_branch() -> None:
    [traced] = trace(Branch(), torch.randn(8, 4), dims={"x": {0: Dim("batch", 6, 16)}})
    assert traced.policy == {"batch": "unbacked"}


class AtOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.shape[0] == 1 else x - 1


def test_size_one_gets_a_trace_of_its_own_where_it_differs() -> None:
    traces = trace(AtOne(), torch.randn(3, 4), dims={"x": {0: BATCH}})
    assert [(t.dims["batch"].min, t.dims["batch"].max) for t in traces] == [(2, 16), (1, 1)]


class HalfView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0] // 2, -1)


def test_an_assumption_that_fails_at_some_size_is_refused_with_the_size() -> None:
    with pytest.raises((errors.SizeAssumption, errors.SizeBranch)) as seen:
        trace(HalfView(), torch.randn(4, 4), dims={"x": {0: BATCH}})
    assert "batch" in str(seen.value)


class Add(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


def test_two_dims_that_turn_out_equal_are_checked_at_entry() -> None:
    dims = {"a": {0: Dim("n", 1, 8)}, "b": {0: Dim("m", 1, 8)}}
    [traced] = trace(Add(), torch.randn(3), torch.randn(3), dims=dims, shapes="unbacked")
    assert {a.relation for a in traced.assumptions if a.verdict == "checked"} == {("n", "m")}


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + 1


def test_a_side_effect_is_refused_and_not_carried_out() -> None:
    module = Counting()
    with pytest.raises(errors.SideEffect, match="self"):
        trace(module, torch.randn(3), dims={"x": {0: BATCH}})
    assert module.count == 0


class Appends(nn.Module):
    def forward(self, x: Tensor, kept: list[int]) -> Tensor:
        kept.append(1)
        return x + 1


def test_writing_to_an_argument_container_is_a_side_effect() -> None:
    kept: list[int] = []
    with pytest.raises(errors.SideEffect):
        trace(Appends(), torch.randn(3), kept, dims={"x": {0: BATCH}})
    assert kept == []


class DataBranch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class DataShape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


@pytest.mark.parametrize("module", [DataBranch(), DataShape()], ids=lambda m: type(m).__name__)
def test_what_depends_on_data_is_refused_with_the_users_line(module: nn.Module) -> None:
    with pytest.raises(errors.NotTraceable, match=r"test_trace\.py"):
        trace(module, torch.randn(3, 4), dims={"x": {0: BATCH}})


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def test_a_random_operator_is_refused() -> None:
    with pytest.raises(errors.RandomOperator, match="randn_like"):
        trace(Noise(), torch.randn(3), dims={"x": {0: BATCH}})


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(4, 1)


def test_a_fixed_size_is_refused() -> None:
    with pytest.raises((errors.SizeSpecialized, errors.SizeAssumption, errors.SizeBranch)):
        trace(Fixed(), torch.randn(4, 4), dims={"x": {0: BATCH}})


class Strange:
    pass


class ReturnsStrange(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return {"y": x + 1, "s": {1.5: x}}


def test_an_output_that_cannot_be_rebuilt_is_refused() -> None:
    with pytest.raises(errors.OutputClass, match=r"1\.5"):
        trace(ReturnsStrange(), torch.randn(3), dims={"x": {0: BATCH}})


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def test_a_module_that_computes_nothing_is_refused() -> None:
    with pytest.raises(errors.EmptyGraph):
        trace(Nothing(), torch.randn(3), dims={"x": {0: BATCH}})


TABLE = torch.ones(4)


class ReadsGlobal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + TABLE


def test_a_global_tensor_is_refused() -> None:
    with pytest.raises(errors.UnboundInput, match="TABLE"):
        trace(ReadsGlobal(), torch.randn(3, 4), dims={"x": {0: BATCH}})


def test_a_twin_shares_tensors_and_nothing_else() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    module.list_of_parts = [module[0]]
    twin = twin_of(module)
    for (name, first), (_, second) in zip(module.state_dict().items(), twin.state_dict().items(), strict=True):
        assert first.data_ptr() == second.data_ptr(), name
    assert twin[0] is not module[0]
    assert twin.list_of_parts[0] is twin[0]
    twin[0].register_forward_hook(lambda *_: None)
    assert not module[0]._forward_hooks
