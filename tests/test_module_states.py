"""States, warm-up, training, buffers and arguments that are written."""

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

from .small import BATCH, Net, X, ready


def test_states_in_order() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    assert fast.state == "new"
    states: list[str] = []
    fast.warmup_many([((X,), {})], progress=lambda event: states.append(fast.state))
    assert set(states) == {"warming"}
    assert fast.state == "ready"
    fast.reset()
    assert fast.state == "new"
    fast(X)
    assert fast.state == "ready"
    fast.close()
    assert fast.state == "closed"
    for use in (lambda: fast(X), lambda: fast.warmup(X), fast.reset):
        with pytest.raises(state_errors.Closed):
            use()


def test_a_failed_warmup_leaves_it_new_and_usable() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with pytest.raises(sizewise.SizewiseError):
        fast.warmup(torch.randn(3, 5))
    assert fast.state == "new"
    fast.warmup(X)
    assert fast.state == "ready"


def test_an_interrupted_warmup_leaves_it_new_and_usable() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")

    def interrupt(event: Any) -> None:
        if event.name == "compile.start":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fast.warmup_many([((X,), {})], progress=interrupt)
    assert fast.state == "new"
    fast.warmup(X)
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_the_first_call_warms_up_unless_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    with pytest.raises(state_errors.NotWarm):
        fast(X)
    monkeypatch.delenv("SIZEWISE_REQUIRE_WARM")
    with fast.counters.expect(traces=1, calls_program=1):
        torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_racing_first_calls_build_once() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    results: list[tuple[Tensor, Tensor]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for size in range(1, 17):
            x = torch.randn(size, 4)
            results.append((fast(x), x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    with fast.counters.expect(traces=1, calls_program=64):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    for seen, x in results:
        torch.testing.assert_close(seen, fast.__wrapped__(x))


def test_a_module_in_training_is_refused_before_and_after() -> None:
    with pytest.raises(trace_errors.TrainingMode, match="Dropout"):
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
        net[1].train()
        ready_net = sizewise.compile(net, dynamic_shapes={"input": {0: BATCH}}, backend="eager")
        ready_net.warmup(X)
    fast = ready()
    fast.__wrapped__.train()
    with pytest.raises(trace_errors.TrainingMode):
        fast(X)


def test_more_programs_than_allowed_are_refused() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager", max_programs=1)
    with pytest.raises(state_errors.TooManyPrograms, match="max_programs=1"):
        fast.warmup_many([((X,), {}), ((X,), {"double": True})])


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


def test_warming_up_leaves_buffers_as_they_were_and_calls_write_them() -> None:
    module = Stateful().eval()
    module.total.fill_(3.0)
    fast = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager").warmup(X)
    assert torch.equal(module.total, torch.full((4,), 3.0))
    reference = copy.deepcopy(module)
    for size in (2, 5, 1):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), reference(x))
    torch.testing.assert_close(module.total, reference.total)


class Writes(nn.Module):
    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        out.copy_(x * 2)
        return out + 1


def test_an_argument_that_is_written_is_written_or_refused() -> None:
    dims = {"x": {0: BATCH}, "out": {0: BATCH}}
    fast = sizewise.compile(Writes().eval(), dynamic_shapes=dims, backend="eager")
    fast.warmup(X, torch.empty(3, 4))
    out = torch.zeros(5, 4)
    x = torch.randn(5, 4)
    fast(x, out)
    torch.testing.assert_close(out, x * 2)
    with pytest.raises(call_errors.WrittenInputLayout, match="not contiguous"):
        fast(x, torch.zeros(4, 5).t())
    with pytest.raises(call_errors.WrittenInputLayout, match="shares memory"):
        base = torch.zeros(10, 4)
        fast(base[:5], base[5:])


class WritesAndReturns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu_()


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_module_that_only_writes_its_argument(backend: str) -> None:
    fast = sizewise.compile(WritesAndReturns().eval(), dynamic_shapes={"x": {0: BATCH}}, backend=backend).warmup(X)
    x = torch.randn(5, 4)
    wanted = x.relu()
    assert fast(x) is x
    assert torch.equal(x, wanted)
