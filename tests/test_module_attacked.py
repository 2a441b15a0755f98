"""Kinds of trouble an attack found: equal to eager, or a named error."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise.errors import call as call_errors
from sizewise.errors import state as state_errors
from sizewise.errors import trace as trace_errors

from .small import BATCH, X, ready


class ReadsStrides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.stride(0)


class WritesData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.data.mul_(2)
        return x + 1


@pytest.mark.parametrize("module", [ReadsStrides(), WritesData()], ids=lambda m: type(m).__name__)
def test_a_module_that_notices_a_copy_gets_none(module: nn.Module) -> None:
    try:
        fast = ready(module)
    except sizewise.SizewiseError as refusal:
        assert refusal.code
        return
    with pytest.raises(call_errors.WrittenInputLayout):
        fast(torch.randn(4, 5).t())


class IndexFromTheEnd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x.shape[0] - 3] * 2


class SqueezesADerivedSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones((x.shape[0] + 2) % 5 + 1, 3).squeeze(0) * x.sum()


@pytest.mark.parametrize(
    ("module", "says"), [(IndexFromTheEnd(), "batch=1"), (SqueezesADerivedSize(), "")], ids=["index", "squeeze"]
)
def test_a_size_the_module_cannot_run_or_runs_otherwise_is_found_before_serving(module: nn.Module, says: str) -> None:
    try:
        fast = ready(module)
    except sizewise.SizewiseError as refusal:
        assert says in str(refusal)
        return
    for size in range(1, 17):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), module(x))


class Keywords(nn.Module):
    def forward(self, **parts: Tensor) -> Tensor:
        return torch.cat(list(parts.values()), -1)


def test_the_order_of_keywords_is_the_callers() -> None:
    a, b = torch.zeros(3, 2), torch.ones(3, 2)
    dims = {"a": {0: BATCH}, "b": {0: BATCH}}
    fast = sizewise.compile(Keywords().eval(), dynamic_shapes=dims, backend="eager", on_outside="eager")
    fast.warmup(a=a, b=b)
    assert torch.equal(fast(a=a, b=b), fast.__wrapped__(a=a, b=b))
    assert torch.equal(fast(b=b, a=a), fast.__wrapped__(b=b, a=a))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_untied_weights_are_noticed() -> None:
    fast = ready(Tied())
    fast.__wrapped__.b.weight = nn.Parameter(torch.randn(4, 4))
    with pytest.raises(state_errors.Stale, match=r"b\.weight|a\.weight"):
        fast(X)


def test_data_of_the_same_address_and_another_layout_is_noticed() -> None:
    module = nn.Linear(4, 4).eval()
    fast = sizewise.compile(module, dynamic_shapes={"input": {0: BATCH}}, backend="eager").warmup(X)
    module.weight.data = module.weight.data.t()
    with pytest.raises(state_errors.Stale, match="strides"):
        fast(X)


class HiddenRandom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gumbel_softmax(x, hard=True)


def test_a_random_operator_of_any_name_is_refused() -> None:
    with pytest.raises(sizewise.SizewiseError):
        ready(HiddenRandom())


def test_side_effects_are_seen_while_other_threads_change_warnings() -> None:
    import time
    import warnings

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x * 2
            return self.last + 1

    stop = threading.Event()

    def user() -> None:
        while not stop.is_set():
            with warnings.catch_warnings(record=True):
                time.sleep(0.002)

    thread = threading.Thread(target=user)
    thread.start()
    try:
        for _ in range(3):
            with pytest.raises(trace_errors.SideEffect):
                ready(Keeps())
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", ["type", "len", "fetch", "program", "tensor_0", "size_batch", "Tensor", "repr"])
def test_an_argument_may_have_any_name(name: str) -> None:
    scope: dict[str, Any] = {"nn": nn}
    exec(f"class M(nn.Module):\n    def forward(self, x, {name}):\n        return x - {name}", scope)
    dims = {"x": {0: BATCH}, name: {0: BATCH}}
    fast = sizewise.compile(scope["M"]().eval(), dynamic_shapes=dims, backend="eager").warmup(X, X + 1)
    assert torch.equal(fast(X, X * 2), X - X * 2)


class AddsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(1)
        return x * self.total.sum(0)


def test_an_argument_that_is_a_written_buffer_is_refused() -> None:
    module = AddsBuffer().eval()
    fast = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager").warmup(X)
    reference = copy.deepcopy(module)
    torch.testing.assert_close(fast(X), reference(X))
    with pytest.raises(call_errors.WrittenInputLayout, match="shares memory"):
        fast(module.total)


class KeepsAPlainTensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.kept = torch.zeros(1), [torch.zeros(1)]

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        self.kept[0].add_(1)
        return x * 2


def test_warming_up_leaves_plain_tensors_as_they_were() -> None:
    module = KeepsAPlainTensor().eval()
    fast = ready(module)
    assert (float(module.count), float(module.kept[0])) == (0.0, 0.0)
    fast(X)
    assert (float(module.count), float(module.kept[0])) == (1.0, 1.0)
