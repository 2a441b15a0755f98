"""Ranges that this machine cannot run: refused by name before anything of that size is allocated."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.dims import dims_of
from sizewise.errors.config import NotEnoughMemory
from sizewise.verify import machine, memory, selftest


def linear(largest: int, **options: Any) -> CompiledModule:
    shapes = {"input": {0: Dim("batch", min=1, max=largest)}}
    fast: CompiledModule = sizewise.compile(nn.Linear(4, 2).eval(), dynamic_shapes=shapes, backend="eager", **options)
    return fast


@pytest.mark.parametrize("largest", [10**12, sys.maxsize])
def test_a_range_without_end_is_refused_before_it_is_tried(largest: int) -> None:
    with pytest.raises(NotEnoughMemory) as seen:
        linear(largest).warmup(torch.randn(3, 4))
    text = str(seen.value)
    assert f"Linear cannot be tried at batch={largest}" in text
    assert re.search(r"takes about [\d.]+(e\+\d+)? [TPE]B of memory, and [\d.]+ [kMGT]B may be used", text)
    assert isinstance(seen.value, MemoryError)
    assert re.search(r'Dim\("batch", min=1, max=\d+\)', text)


def test_the_declaration_that_is_offered_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 2_000_000)
    with pytest.raises(NotEnoughMemory) as seen:
        linear(10**9).warmup(torch.randn(3, 4))
    offered = re.search(r"max=(\d+)\)", str(seen.value))
    assert offered is not None
    fast = linear(int(offered[1])).warmup(torch.randn(3, 4))
    assert {size["verdict"] for size in fast.report().sizes} == {"equal"}


def test_what_serves_but_cannot_be_compared_is_checked_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 1_000_000)
    fast = linear(20_000).warmup(torch.randn(3, 4))
    verdicts = [(size["sizes"]["batch"], size["verdict"]) for size in fast.report().sizes]
    assert (20_000, "not checked") in verdicts
    below = max(size for size, verdict in verdicts if verdict == "equal")
    assert 3 < below < 20_000
    assert "not checked at batch=20000: that would take about 3.2 MB of memory" in str(fast.report())
    assert f"batch={below} is checked in its place" in str(fast.report())


def test_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 10)
    with pytest.raises(NotEnoughMemory, match="the smallest sizes do not fit either"):
        linear(8).warmup(torch.randn(3, 4))


def test_where_nothing_says_how_much_there_is_everything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: None)
    assert len(linear(8).warmup(torch.randn(3, 4)).report().sizes) == 4


class Greedy(nn.Module):
    """Fails to allocate at one size, as eager mode or only in its compiled form."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and x.shape[0] == 8:
            raise self.problem
        return x + 1


@pytest.mark.parametrize(
    "problem", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_an_allocation_that_fails_all_the_same_is_named(problem: Exception) -> None:
    shapes = {"x": {0: Dim("batch", min=1, max=8)}}
    with pytest.raises(NotEnoughMemory) as seen:
        sizewise.compile(Greedy(problem).eval(), dynamic_shapes=shapes, backend="eager").warmup(torch.randn(3, 4))
    assert seen.value.__cause__ is problem
    assert f"{type(problem).__name__}: {str(problem)[:7]}" in str(seen.value) and "batch=8" in str(seen.value)


def test_failed_allocations_are_found_in_a_chain() -> None:
    outer = ValueError("outer")
    outer.__cause__ = RuntimeError("CUDA out of memory. Tried to allocate")
    assert machine.allocation_failure(outer) is outer.__cause__
    circle = ValueError("a circle")
    circle.__context__ = ValueError("back")
    circle.__context__.__context__ = circle
    assert machine.allocation_failure(circle) is None and machine.allocation_failure(None) is None


def test_long_ranges_take_no_time_and_no_memory_without_the_self_test() -> None:
    fast = linear(sys.maxsize, self_test=False, compile_sizes=[1, 8]).warmup(torch.randn(3, 4))
    assert [fast(torch.randn(rows, 4)).shape[0] for rows in (1, 8, 9)] == [1, 8, 9]


def test_the_largest_sizes_that_fit() -> None:
    dims = {"a": Dim("a", 1, 1000), "b": Dim("b", 2, 10)}
    top = {name: dim.max for name, dim in dims.items()}
    assert memory.largest_fitting(dims, top, lambda sizes: True) == top
    assert memory.largest_fitting(dims, top, lambda sizes: False) is None
    found = memory.largest_fitting(dims, top, lambda sizes: sizes["a"] * sizes["b"] <= 500)
    assert found is not None and found["a"] * found["b"] <= 500 < (found["a"] + 1) * (found["b"] + 1)
    assert memory.largest_fitting({}, {}, lambda sizes: True) == {}


class Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        wide = x[:, :, None] * x[:, None, :]
        return wide.sum(-1).view(-1)


def test_the_estimate_counts_what_is_alive_together() -> None:
    shapes = {"x": {0: Dim("n", max=16), 1: Dim("m", max=16)}}
    fast = sizewise.compile(Wide().eval(), dynamic_shapes=shapes, backend="eager").warmup(torch.randn(3, 4))
    built = fast.built
    assert built is not None and dims_of(built.spec)
    estimate = memory.Estimate(built.entries[0].program.traced)
    # The argument, the product, and the sum beside it; views take nothing.
    assert estimate.serving({"n": 5, "m": 7}) == 4 * (5 * 7 + 5 * 7 * 7 + 5 * 7)
    assert estimate.checking({"n": 5, "m": 7}) > 3 * 4 * 5 * 7


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (24 * 10**9, "24 GB"), (1536, "1.54 kB")]
)
def test_bytes_in_words(count: int, text: str) -> None:
    assert memory.in_bytes(count) == text


def test_limits_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "box", tmp_path / "memory" / "box" / "inner"
    for folder, names in ((one, ("max", "current")), (two, ("limit_in_bytes", "usage_in_bytes"))):
        folder.mkdir(parents=True)
        for name, value in zip(names, ("1000", "400"), strict=True):
            (folder / f"memory.{name}").write_text(f"{value}\n")
    (one / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    texts = {Path("/proc/self/cgroup"): "4:cpu,memory:/box/inner\n3:pids:/x\n0::/box\n", Path("/proc/meminfo"): ""}
    read = machine._text
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "_text", lambda path: texts[path] if path in texts else read(path))
    assert sorted(machine._cgroups()) == [600, 650]
    assert [amount > 0 for amount in machine._system()] == [True]  # what there is in all, without meminfo
    assert machine.available("cpu") == 600


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v is kept by Linux")
def test_the_limit_of_the_address_space() -> None:
    code = (
        "import resource; from sizewise.verify import machine; "
        "used = int(machine._text(machine.Path('/proc/self/statm')).split()[0]) * resource.getpagesize(); "
        "resource.setrlimit(resource.RLIMIT_AS, (used + 10**9, resource.RLIM_INFINITY)); "
        "print(machine.available('cpu'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 10**9


def test_probes_that_become_the_same_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = linear(64).warmup(torch.randn(3, 4))
    assert fast.built is not None
    traced = fast.built.entries[0].program.traced
    budget = memory.Budget(traced)
    monkeypatch.setattr(memory.Budget, "checkable", lambda self, sizes: {"batch": 1})
    probes, skipped = selftest._checkable(budget, traced, [{"batch": 1}, {"batch": 64}])
    assert probes == [{"batch": 1}] and [outcome.sizes for outcome in skipped] == [{"batch": 64}]
