"""The compiled module among others: in other models and traces, after a fork, with weights moved and swapped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise.errors import state as state_errors

from .small import BATCH, Net, X, ready


def cold(module: nn.Module, **options: Any) -> Any:
    return sizewise.compile(module.eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager", **options)


INSIDE: dict[str, Callable[[], nn.Module]] = {
    "warm": ready,
    "cold": lambda: cold(Net()),
    "in place": lambda: cold(Net(), inplace=True),
    "torch.compile": lambda: torch.compile(Net().eval(), backend="eager"),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_a_compiled_module_inside_another_model(inside: str) -> None:
    outer = nn.Sequential(INSIDE[inside](), nn.Tanh()).eval()
    dims = {"input": {0: BATCH}}
    fast = sizewise.compile(outer, dynamic_shapes=dims, backend="eager").warmup(X)
    for size in (1, 5, 16):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), outer(x))
    fast.load_state_dict({name: torch.randn_like(value) for name, value in fast.state_dict().items()})
    torch.testing.assert_close(fast(X), outer(X))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_within_torch_compile_it_is_the_original(warm: bool, fullgraph: bool) -> None:
    fast = ready() if warm else cold(Net())
    state = fast.state
    compiled = torch.compile(fast, backend="eager", fullgraph=fullgraph)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), fast.__wrapped__(X))
    assert fast.state == state


@pytest.mark.parametrize("strict", [False, True])
def test_it_can_be_exported(strict: bool) -> None:
    fast = ready()
    program = torch.export.export(fast, (X,), strict=strict)
    torch.testing.assert_close(program.module()(X), fast(X))
    assert set(program.state_dict) == set(fast.__wrapped__.state_dict())


def test_vmap_of_it_is_vmap_of_the_original() -> None:
    fast = ready()
    many = torch.randn(3, 5, 4)
    with torch.no_grad():
        torch.testing.assert_close(torch.func.vmap(fast)(many), torch.func.vmap(fast.__wrapped__)(many))


def test_functional_call_uses_the_tensors_given() -> None:
    fast = ready()
    given = {name: torch.randn_like(value) for name, value in fast.__wrapped__.state_dict().items()}
    with torch.no_grad():
        wanted = torch.func.functional_call(fast.__wrapped__, given, (X,))
        with fast.counters.expect(calls_program=2, stale=0):
            torch.testing.assert_close(torch.func.functional_call(fast, given, (X,)), wanted)
            torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_tensors_can_be_swapped_after_warm_up() -> None:
    fast = ready()
    other = nn.Parameter(torch.randn(8, 4))
    torch.utils.swap_tensors(fast.a.weight, other)
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


class Adapter(nn.Module):
    """A low-rank addition around a linear layer."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(base.in_features, 2))
        self.up = nn.Parameter(torch.randn(2, base.out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down @ self.up


def test_an_adapter_that_is_attached_and_merged() -> None:
    fast = ready()
    module = fast.__wrapped__
    plain = module.a
    module.a = Adapter(plain).eval()
    with pytest.raises(state_errors.Stale, match="a was a Linear and is a Adapter"):
        fast(X)
    fast.refresh()
    torch.testing.assert_close(fast(X), module(X))
    wanted = module(X)
    with torch.no_grad():
        plain.weight += (module.a.down @ module.a.up).t()
    module.a = plain
    with pytest.raises(state_errors.Stale):
        fast(X)
    torch.testing.assert_close(fast.refresh()(X), wanted)


def in_child(work: Callable[[], bool]) -> int:
    """The exit code of a forked child that does ``work``: 0 if it gave True."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if work() else 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_serves_and_warms_up_though_the_parent_held_the_locks() -> None:
    from sizewise.trace.dynamo import TRACING

    fast, other = ready(), cold(Net())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with TRACING, other._sw_lock, other._sw_timeline._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)

    def work() -> bool:
        x = torch.randn(7, 4)
        same = torch.allclose(fast(x), fast.__wrapped__(x))
        return same and torch.allclose(other.warmup(X)(x), other.__wrapped__(x))

    try:
        assert in_child(work) == 0
    finally:
        done.set()
        thread.join()
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


KINDS = [X, X.double(), torch.randn(3, 4, 2), torch.randn(3, 5)]


def test_examples_of_other_dtypes_ranks_and_fixed_sizes_get_programs_of_their_own() -> None:
    fast = sizewise.compile(nn.Tanh().eval(), dynamic_shapes={"input": {0: BATCH}}, backend="eager")
    fast.warmup_many([((x,), {}) for x in KINDS])
    with fast.counters.expect(calls_program=4, traces=0):
        for x in KINDS:
            wanted = torch.cat([x, x])
            torch.testing.assert_close(fast(wanted), wanted.tanh())


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 1 else x * 3


def test_ranges_of_a_module_that_branches_at_one() -> None:
    fast = cold(Branches(), compile_ranges_endpoints=[4], compile_sizes=[1, 7]).warmup(X)
    for size in range(1, 17):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))


def test_a_converted_module_is_named_and_not_the_argument_that_fits_it() -> None:
    fast = ready()
    fast.double()
    with pytest.raises(state_errors.Stale, match="float64"):
        fast(X.double())
