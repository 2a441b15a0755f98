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


BACKENDS = ["eager", pytest.param("inductor", marks=pytest.mark.slow)]


class Asserts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._assert_async((x > -100).all())
        return x * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_assertion_on_values_is_kept(backend: str) -> None:
    fast = sizewise.compile(Asserts().eval(), dynamic_shapes={"x": {0: BATCH}}, backend=backend).warmup(X)
    torch.testing.assert_close(fast(X), X * 2)
    with pytest.raises(RuntimeError, match="nonzero"):
        fast(torch.full((5, 4), -200.0))


class SharesWithItself(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        y = x * 2
        return {"y": y, "views": [y[:, 1:], y.t()], "joined": torch.cat([y, x]), "copy": y.clone(), "input": x}


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_share_memory_where_eagers_do_and_nowhere_else(backend: str) -> None:
    fast = sizewise.compile(SharesWithItself().eval(), dynamic_shapes={"x": {0: BATCH}}, backend=backend).warmup(X)
    for module in (fast, fast.__wrapped__):
        x = X.clone()
        out = module(x)
        out["y"].zero_()
        assert not out["views"][0].any()
        assert not out["views"][1].any()
        torch.testing.assert_close(out["joined"], torch.cat([X * 2, X]))
        torch.testing.assert_close(out["copy"], X * 2)
        assert out["input"] is x


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_that_a_compiler_leaves_out_is_made(backend: str) -> None:
    fast = sizewise.compile(nn.ChannelShuffle(1).eval(), dynamic_shapes={"input": {0: BATCH}}, backend=backend)
    x = torch.randn(3, 4, 2, 2)
    out = fast.warmup(x)(x)
    assert out.data_ptr() != x.data_ptr()
    assert torch.equal(out, x)


class WritesItsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.steps.add_(1)
        return x * self.steps


def test_warming_up_leaves_parameters_that_forward_writes_as_they_were() -> None:
    fast = ready(WritesItsParameter())
    assert torch.equal(fast.steps, torch.ones(4))
    assert torch.equal(fast(X), X * 2)
    assert torch.equal(fast.steps, torch.full((4,), 2.0))
    limited = nn.Sequential(nn.Embedding(5, 4, max_norm=0.1)).eval()
    before = limited[0].weight.detach().clone()
    ids = torch.tensor([1, 2, 2])
    quick = sizewise.compile(limited, dynamic_shapes={"input": {0: BATCH}}, backend="eager").warmup(ids)
    assert torch.equal(limited[0].weight, before)
    reference = copy.deepcopy(limited)
    torch.testing.assert_close(quick(ids), reference(ids))
    torch.testing.assert_close(limited[0].weight, reference[0].weight)


class MadeInInferenceMode(nn.Module):
    def __init__(self, writes: bool) -> None:
        super().__init__()
        with torch.inference_mode():
            self.register_buffer("kept", torch.zeros(4))
        self.writes = writes

    def forward(self, x: Tensor) -> Tensor:
        if self.writes:
            self.kept.add_(x.sum(0))
        return x + self.kept


def test_a_buffer_made_in_inference_mode_is_read_or_refused_by_name() -> None:
    torch.testing.assert_close(ready(MadeInInferenceMode(False))(X), X)
    with pytest.raises(sizewise.SizewiseError, match="inference"):
        ready(MadeInInferenceMode(True))


class NamesSizes(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return {f"rows {x.shape[0]}": x * 2}


class SaysSizes(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x * 2, f"of {x.shape[0]} rows"


@pytest.mark.parametrize("module", [NamesSizes(), SaysSizes()], ids=lambda m: type(m).__name__)
def test_a_size_written_into_a_text_is_refused_by_name(module: nn.Module) -> None:
    with pytest.raises(trace_errors.OutputClass, match="made from a size"):
        ready(module)
