"""Captures of modules that hide what goes wrong: behind a weight that is zero, a flag that is off, a mask of ones."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.errors.capture import CaptureRefused
from sizewise.errors.state import BadOption
from sizewise.graphs import buckets
from sizewise.verify.tolerance import compare

BATCH, SEQ = Dim("batch", 1, 16), Dim("seq", 1, 16)
SHAPES = {"x": {0: BATCH}}


@torch.library.custom_op("captures_attacked::same", mutates_args=())
def same(x: Tensor) -> Tensor:
    return x.clone()


@same.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("captures_attacked::picky", mutates_args=())
def picky(x: Tensor) -> Tensor:
    if x.abs().max() > 100:
        raise ValueError("too large")
    return x * 2


@picky.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def ready(module: nn.Module, *example: Tensor, shapes: Any = SHAPES, **options: Any) -> CompiledModule:
    options = {"cudagraph_capture_sizes": [1, 4, 16], **options}
    fast: CompiledModule = sizewise.compile(
        module.eval(), dynamic_shapes=shapes, backend="eager", cudagraph_mode="FULL", **options
    )
    return fast.warmup(*example)


def check(module: nn.Module, fast: CompiledModule, *args: Tensor) -> None:
    with torch.no_grad():
        difference = compare(module(*args), fast(*args), depth=64)
    assert difference is None, difference


def rows() -> Tensor:
    return torch.randn(3, 8)


# -- results of a replay


class Halves(nn.Module):
    """Two views of one new tensor go to operators between the pieces; one of them counts for nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = nn.Linear(8, 16), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.layer(x).chunk(2, -1)
        return same(first) + self.gate * same(second)


def test_each_view_of_a_new_tensor_is_written_at_a_replay() -> None:
    module = Halves()
    fast = ready(module, rows(), splitting_ops=["captures_attacked::same"])
    module.gate.data.fill_(1.0)
    with fast.counters.expect(calls_capture=2):
        check(module, fast, torch.randn(4, 8))
        check(module, fast, torch.randn(4, 8))


class Expands(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return same(x.sum(1, keepdim=True).expand(-1, 8)) + x


def test_what_is_expanded_is_refused_by_name() -> None:
    module, options = Expands(), {"splitting_ops": ["captures_attacked::same"]}
    with pytest.raises(CaptureRefused, match="expanded"):
        ready(module, rows(), **options)
    fast = ready(module, rows(), **options, allow_partial=True)
    check(module, fast, torch.randn(4, 8))


# -- what is filled up


class Switched(nn.Module):
    """The mean over the batch counts where a buffer says so."""

    def __init__(self, off: Tensor) -> None:
        super().__init__()
        self.register_buffer("on", off)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.where(self.on > 0, x.mean(0, keepdim=True), torch.zeros(()))


@pytest.mark.parametrize("off", [torch.tensor(False), torch.tensor(0)], ids=["bool", "int"])
def test_a_leak_behind_a_switch_of_the_module(off: Tensor) -> None:
    module = Switched(off.clone())
    fast = ready(module, rows())
    module.on.fill_(1)
    check(module, fast, rows())
    assert fast.report().padding["batch"]["verdict"] == "refused"


def test_a_leak_of_a_pad_that_is_always_the_same() -> None:
    module = Switched(torch.tensor(0))
    fast = ready(module, rows(), pad_values={"x": 1})
    module.on.fill_(1)
    check(module, fast, rows())


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return x + x.mean(0, keepdim=True) * scale


def test_a_leak_behind_an_argument_that_is_zero_in_the_example() -> None:
    module = Scaled()
    fast = ready(module, rows(), torch.zeros(()), shapes={"x": {0: BATCH}, "scale": None})
    check(module, fast, rows(), torch.ones(()))
    assert "that the example lacks" in fast.report().padding["batch"]["why"]


class Far(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + (x - 20).relu() * x.mean(0, keepdim=True)


def test_a_leak_behind_values_far_from_the_examples() -> None:
    module = Far()
    fast = ready(module, rows())
    check(module, fast, rows() + 60)


class AnyRow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (x >= 0).any()


def test_a_leak_behind_rows_that_saturate_what_is_reduced() -> None:
    module = AnyRow()
    fast = ready(module, rows())
    check(module, fast, -rows().abs())


class Attends(nn.Module):
    def __init__(self, masked: float) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = torch.einsum("bqd,bkd->bqk", x, x).masked_fill(~mask[:, None, :], self.masked)
        return torch.einsum("bqk,bkd->bqd", scores.softmax(-1), x)


def test_a_mask_with_a_row_of_nothing() -> None:
    shapes = {name: {0: Dim("batch", 1, 4), 1: SEQ} for name in ("x", "mask")}
    mask = torch.ones(2, 5, dtype=torch.bool)
    module = Attends(-1e9)
    fast = ready(module, torch.randn(2, 5, 8), mask, shapes=shapes, cudagraph_capture_sizes=[(2, 8)])
    # Finite scores that are all equal give every key the same weight: also those that were filled up.
    check(module, fast, torch.randn(2, 5, 8), torch.stack([mask[0], ~mask[0]]))
    assert fast.report().padding["seq"]["verdict"] == "refused"
    assert fast.report().padding["batch"]["verdict"] == "proved"


class Picky(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return picky(x) + 1


def test_an_operator_that_raises_on_what_is_filled_up() -> None:
    module = Picky()
    fast = ready(module, rows())
    found = fast.report().padding["batch"]
    assert found["verdict"] == "refused" and "ValueError: too large" in found["why"]
    with fast.counters.expect(calls_capture=2, calls_program=1):
        check(module, fast, torch.randn(4, 8))
        check(module, fast, rows())
        with pytest.raises(ValueError, match="too large"):
            fast(torch.full((4, 8), 1e3))
        check(module, fast, torch.randn(4, 8))


# -- settings, memory


@pytest.mark.parametrize(
    ("dtype", "pad"),
    [
        (torch.int64, float("nan")),
        (torch.int64, 1.5),
        (torch.int64, 2**70),
        (torch.uint8, -1),
        (torch.bool, 2),
        (torch.float32, 1e40),
        (torch.float16, 1e5),
        (torch.float32, 2**1100),
    ],
    ids=str,
)
def test_a_pad_that_its_argument_cannot_hold(dtype: torch.dtype, pad: float) -> None:
    shapes = {"x": {0: BATCH}, "scale": {0: BATCH}}
    with pytest.raises(BadOption, match=r"pad_values=.* whose dtype is"):
        ready(Scaled(), torch.randn(3), torch.ones(3, dtype=dtype), shapes=shapes, pad_values={"scale": pad})


def test_functions_that_are_dropped_leave_no_source_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MOST_FUNCTIONS", 4)
    fast = ready(Far(), rows(), cudagraph_capture_sizes=list(range(1, 17)))
    before = {name for name in linecache.cache if name.startswith("<sizewise bucket")}
    for size in range(1, 17):
        fast(torch.randn(size, 8))
    after = {name for name in linecache.cache if name.startswith("<sizewise bucket")}
    assert len(after - before) <= 4


class TakesOne(nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x.sin().gather(1, (lengths - 1)[:, None]) * 2


def outcomes_of(fast: Any) -> Any:
    return fast.__dict__["_sw_generation"].captures.outcomes


def takes_one(lengths: list[int], **options: Any) -> Any:
    shapes = {"x": {1: Dim("seq", 1, 8)}}
    fast = sizewise.compile(TakesOne().eval(), dynamic_shapes=shapes, backend="eager", cudagraph_mode="FULL", **options)
    return fast.warmup(torch.randn(3, 6), torch.tensor(lengths))


@pytest.mark.parametrize("options", [{}, {"cudagraph_capture_sizes": [2, 4, 8]}])
def test_where_the_examples_values_are_too_large_small_ones_are_captured_with(options: dict[str, Any]) -> None:
    fast = takes_one([6, 1, 5], **options)
    for size in (1, 2, 3, 4, 8):
        x, lengths = torch.randn(3, size), torch.randint(1, size + 1, (3,))
        with fast.counters.expect(**({"calls_capture": 1} if options and size in (2, 4, 8) else {})):
            torch.testing.assert_close(fast(x, lengths), TakesOne()(x, lengths))


def test_a_size_for_which_no_legal_value_is_known() -> None:
    fast = takes_one([6, 2, 5], self_test=False, cudagraph_capture_sizes=[1, 2], allow_partial=True)
    assert [outcome.outcome for outcome in outcomes_of(fast)] == ["captured", "program"]
    for size in (1, 2, 5):
        x, lengths = torch.randn(3, size), torch.randint(1, size + 1, (3,))
        torch.testing.assert_close(fast(x, lengths), TakesOne()(x, lengths))
    with pytest.raises(sizewise.SizewiseError, match="SW621"):
        takes_one([6, 2, 5], self_test=False, cudagraph_capture_sizes=[1])
