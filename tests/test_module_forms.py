"""`sizewise.compile` in its forms, and its options."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import Dim
from sizewise.errors import call as call_errors
from sizewise.errors import state as state_errors

from .small import BATCH, Generates, Net, X, ready


def test_a_function_and_both_decorators() -> None:
    def double(x: Tensor) -> Tensor:
        """Twice x."""
        return x * 2

    options: dict[str, Any] = {"dynamic_shapes": {"x": {0: BATCH}}, "backend": "eager"}
    direct = sizewise.compile(double, **options)
    decorated = sizewise.compile(**options)(double)
    for form in (direct, decorated):
        assert torch.equal(form(X), X * 2)
        assert form.__name__ == "double"
    bare = sizewise.compile(double)
    assert torch.equal(bare.warmup_many([((X,), {}), ((torch.randn(5, 4),), {})])(X), X * 2)


def test_a_bound_method() -> None:
    module = Generates().eval()
    fast = sizewise.compile(module.encode, dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    assert torch.equal(fast(X), (X + 1) * 2)


def test_in_place_keeps_the_instance_and_its_hooks() -> None:
    module = Net().eval()
    reference = copy.deepcopy(module)
    same = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager", inplace=True)
    assert same is module
    torch.testing.assert_close(module(X), reference(X))
    assert module.forward.compiled.counters.calls_program == 1
    with pytest.raises(state_errors.NotPicklable):
        pickle.dumps(module)
    seen: list[int] = []
    module.register_forward_hook(lambda *_: seen.append(1))
    module(X)
    assert seen == [1]


def test_a_class_gives_compiled_instances() -> None:
    @sizewise.compile(dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    class Mine(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            return self.lin(x) * self.factor

    instance = Mine(3.0).eval()
    torch.testing.assert_close(instance(X), instance.lin(X) * 3.0)
    assert instance.forward.compiled.counters.calls_program == 1
    assert Mine.__name__ == "Mine"


def test_disable_gives_the_target_back() -> None:
    module = Net()
    assert sizewise.compile(module, disable=True) is module


@pytest.mark.parametrize("target", [3, "model", len, object()])
def test_what_is_no_target_is_refused(target: Any) -> None:
    with pytest.raises(state_errors.BadTarget):
        sizewise.compile(target)


@pytest.mark.parametrize(
    "option",
    [{"on_outside": "ignore"}, {"on_stale": "maybe"}, {"outputs": "view"}, {"on_miss": "eager"}],
)
def test_a_wrong_option_lists_the_right_ones(option: dict[str, Any]) -> None:
    with pytest.raises(state_errors.BadOption, match=r"is not (one of .|.copy|.program)"):
        sizewise.compile(Net(), **option)


@pytest.mark.parametrize(
    "option",
    [
        {"persistent": ["x"], "inplace": True},
    ],
)
def test_what_does_not_exist_yet_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(state_errors.NotAvailable):
        sizewise.compile(Net(), **option)


def test_a_misspelt_argument_names_the_right_one() -> None:
    with pytest.raises(state_errors.UnknownOption, match="dynamic_shapes"):
        sizewise.compile(Net(), dynamic_shape={"x": {0: BATCH}})


def test_an_example_outside_the_range_is_refused() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with pytest.raises(call_errors.SizeOutOfRange):
        fast.warmup(torch.randn(17, 4))


def test_a_first_call_that_compiles_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with caplog.at_level("WARNING", logger="sizewise"):
        fast(X)
        fast(X)
    assert [record.getMessage() for record in caplog.records] == [
        "sizewise: Net was not warmed up: it is compiled now, in the middle of a call; call warmup(...) before serving"
    ]


class FastPath(nn.Module):
    """Eager takes a shortcut for padding masks that no trace takes."""

    def __init__(self, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_shortcut_of_eager_mode_that_depends_on_data_is_refused(nested: bool) -> None:
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[1, 5:] = True
    dims = {"x": {0: BATCH, 1: Dim("seq", 1, 12)}, "mask": {0: BATCH, 1: Dim("seq", 1, 12)}}
    fast = sizewise.compile(FastPath(nested).eval(), dynamic_shapes=dims, backend="eager")
    if nested:
        with pytest.raises(sizewise.SizewiseError, match="enable_nested_tensor=False"):
            fast.warmup(torch.randn(3, 6, 16), mask)
    else:
        fast.warmup(torch.randn(3, 6, 16), mask)


def test_compiling_twice_is_refused() -> None:
    with pytest.raises(state_errors.BadTarget, match="compiled already"):
        sizewise.compile(ready())


def test_counters_expect_is_exact() -> None:
    fast = ready()
    with pytest.raises(AssertionError, match="expected"), fast.counters.expect(calls_program=2):
        fast(X)
    with pytest.raises(state_errors.UnknownCount, match=r"write .calls_program."), fast.counters.expect(call_program=1):
        fast(X)


def test_the_report_prints_and_serialises() -> None:
    import json

    fast = ready()
    fast(X)
    report = fast.report()
    assert "1 distinct" in str(report)
    data = json.loads(report.to_json())
    assert data["counters"]["calls_program"] == 1
    assert data["dims"]["batch"]["policy"] == "unbacked"
    assert "def call(weights, size_batch, arg_x):" in report.code
    assert {size["verdict"] for size in report.sizes} == {"equal"}
