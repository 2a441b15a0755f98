"""Captures in front of programs: that they ran, what they give, which dims are filled up, and what is refused."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.errors import call as call_errors
from sizewise.errors import capture as errors
from sizewise.errors import config as config_errors
from sizewise.errors.state import BadOption
from sizewise.monitor import cudagraph_capturing
from sizewise.verify import worth
from sizewise.verify.tolerance import compare

pytestmark = pytest.mark.slow

BATCH = Dim("batch", 1, 16)
SHAPES = {"x": {0: BATCH}}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def ready(module: nn.Module, *example: Any, shapes: Any = SHAPES, **options: Any) -> CompiledModule:
    options = {"cudagraph_capture_sizes": [1, 4, 16], **options}
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes=shapes, **options)
    return fast.warmup(*(example or (torch.randn(3, 8),)))


def check(fast: CompiledModule, module: nn.Module, *sizes: int, width: int = 8) -> None:
    for rows in sizes:
        x = torch.randn(rows, width)
        with torch.no_grad():
            difference = compare(module(x), fast(x), depth=64)
        assert difference is None, (rows, difference)


def outcomes(fast: CompiledModule) -> dict[int, str]:
    return {size["sizes"]["batch"]: size["outcome"] for size in fast.report().captures}


def padding(fast: CompiledModule, dim: str = "batch") -> dict[str, Any]:
    found: dict[str, Any] = fast.report().padding[dim]
    return found


def test_every_call_replays() -> None:
    module = Net()
    fast = ready(module)
    assert fast.counters.captures == 3
    with fast.counters.expect(calls_capture=16, calls_program=0, calls_eager=0, captures=0, compilations=0, traces=0):
        check(fast, module, *torch.randperm(16).add(1).tolist())
    assert outcomes(fast) == {1: "captured", 4: "captured", 16: "captured"}
    assert padding(fast)["verdict"] in ("proved", "tested")


def test_without_sizes_all_of_the_range_is_captured() -> None:
    module = Net()
    fast = ready(module, cudagraph_capture_sizes=None)
    sizes = list(outcomes(fast))
    assert sizes[0] == 1 and sizes[-1] == 16 and len(sizes) <= 16
    assert set(outcomes(fast).values()) <= {"captured", "program"}, "a matter of time: where it is worth it"
    check(fast, module, *range(1, 17))
    assert fast.counters.calls_capture + fast.counters.calls_program == 16
    assert fast.report().config["cudagraph_mode"] == "FULL"


def times(of: dict[int, float]) -> Any:
    """A clock that goes by ``of``: seconds that something takes at each size."""
    now = [0.0]

    def run(seconds: float) -> None:
        now[0] += seconds

    return now, lambda size: lambda: run(of[size]), run


def test_which_sizes_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = {1: 100.0, 2: 110.0, 4: 130.0, 8: 170.0, 16: 1000.0, 32: 2000.0, 64: 100.0}
    now, at, run = times(program)
    monkeypatch.setattr(worth.time, "thread_time", lambda: now[0])
    found = worth.measure(list(program), 1, lambda: run(60.0), at)
    # 40 s are saved. At 8 a replay takes 130 s, as the program does at 4; at 16 it takes 960 s, as the program at 15.6.
    assert dict(found.least) == {1: 1, 2: 2, 4: 3, 8: 5, 16: 16}
    assert list(found.without) == [32, 64] and "less than 3%" in found.without[64], "what is larger is not run"
    found = worth.measure([1, 2, 4], 1, lambda: run(200.0), at)
    assert dict(found.least) == {} and list(found.without) == [1, 2, 4], "a replay is slower"


def test_no_captures_where_none_are_asked_for() -> None:
    module = Net()
    fast = ready(module, cudagraph_capture_sizes=None, cudagraph_mode="NONE")
    with fast.counters.expect(calls_capture=0, calls_program=3):
        check(fast, module, 1, 9, 16)
    assert fast.report().captures == [] and fast.counters.captures == 0


def test_above_the_largest_the_program_serves() -> None:
    module = Net()
    fast = ready(module, cudagraph_capture_sizes=[2, 4])
    with fast.counters.expect(calls_capture=4, calls_program=2):
        check(fast, module, 1, 2, 3, 4, 5, 16)


def test_above_the_largest_is_an_error_if_that_was_asked_for() -> None:
    module = Net()
    fast = ready(module, cudagraph_capture_sizes=[2, 4], on_miss="error")
    check(fast, module, 1, 2, 3, 4)
    with pytest.raises(call_errors.NotCaptured, match="no capture of Net serves batch=5"):
        fast(torch.randn(5, 8))


def test_results_are_the_callers() -> None:
    fast = ready(Net())
    x = torch.randn(3, 8)
    first = fast(x)
    kept = first.clone()
    for rows in (3, 4, 1, 16, 3):
        fast(torch.randn(rows, 8))
    assert torch.equal(first, kept)
    assert fast(first).shape == (3, 8), "a result is an argument like any other"


def test_with_gradients_on_in_inference_mode_and_not_contiguous() -> None:
    module = Net()
    fast = ready(module)
    x = torch.randn(8, 5).T
    with fast.counters.expect(calls_capture=3):
        assert not fast(x).requires_grad and torch.is_grad_enabled()
        with torch.inference_mode():
            result = fast(torch.randn(5, 8))
        fast(result.clone())


# -- what a result may be


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    rows: int
    more: tuple[Any, ...]


class Nests(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = x.sin() * 2
        fields = Result(x.cos(), x.shape[0] * 3, (y, None, "text"))
        return {"list": [y, y.T.exp()], "fields": fields, "x": x, "flat": y.reshape(-1) + 1}


def test_any_nesting_cut_to_the_calls_size() -> None:
    module = Nests()
    fast = ready(module)
    with fast.counters.expect(calls_capture=5, calls_program=0):
        check(fast, module, 1, 3, 5, 16)
        x = torch.randn(3, 8)
        seen = fast(x)
    assert seen["fields"].rows == 9 and seen["x"] is x
    assert seen["list"][0] is seen["fields"].more[0], "two results that are one tensor stay one"


def test_a_function_without_dims() -> None:
    fast = sizewise.compile(lambda x: x.sin() + 1, dynamic_shapes={})
    x = torch.randn(3)
    fast.warmup(x)
    with fast.counters.expect(calls_capture=1):
        torch.testing.assert_close(fast(x), x.sin() + 1)


# -- padding


class Leaks(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.layer(x)
        return {
            "mean": lambda: x - x.mean(0),
            "scale": lambda: x / x.abs().max(),
            "cumsum from the end": lambda: x.flip(0).cumsum(0).flip(0),
            "top-k": lambda: x.topk(1, dim=0).values,
            "batch statistics": lambda: torch.nn.functional.batch_norm(x, None, None, training=True),
            "attention": lambda: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0],
            "last": lambda: x - x[-1],
            "count": lambda: x / x.shape[0],
            "twice": lambda: torch.cat([x, -x]),
            "softmax": lambda: x.softmax(0),
            "order": lambda: x.argsort(0),
            "sum of all": lambda: x + x.sum(),
            "product with itself": lambda: (x @ x.T) @ x,
            "reversed positions": lambda: x + torch.arange(x.shape[0] - 1, -1, -1)[:, None],
            "norm": lambda: torch.nn.functional.normalize(x, dim=0),
        }[self.kind]()


LEAKS = [
    "mean",
    "scale",
    "cumsum from the end",
    "top-k",
    "batch statistics",
    "attention",
    "last",
    "count",
    "twice",
    "softmax",
    "order",
    "sum of all",
    "product with itself",
    "reversed positions",
    "norm",
]


@pytest.mark.parametrize("kind, backend", [*((kind, "eager") for kind in LEAKS), ("mean", "inductor")])
def test_a_model_that_leaks_is_not_filled_up(kind: str, backend: str) -> None:
    module = Leaks(kind)
    shapes = {"x": {0: Dim("batch", 2, 16)}}  # statistics of one row are no statistics
    fast = ready(module, shapes=shapes, cudagraph_capture_sizes=[4, 16], backend=backend)
    verdict = padding(fast)
    assert verdict["verdict"] == "refused" and verdict["why"], verdict
    with fast.counters.expect(calls_capture=2, calls_program=3):
        check(fast, module, 4, 16, 2, 3, 9)


class Adds(nn.Module):
    """Rows of their own, and a total of them all that only the mask keeps padding out of."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = x * mask
        return kept.sum(1) / mask.sum(1).clamp(min=1)


def test_a_mask_keeps_padding_out() -> None:
    seq = Dim("seq", 1, 8)
    shapes = {"x": {1: seq}, "mask": {1: seq}}
    module = Adds()
    x, mask = torch.randn(2, 5), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    fast = ready(module, x, mask, shapes=shapes, cudagraph_capture_sizes=[4, 8])
    assert padding(fast, "seq")["verdict"] == "tested"
    with fast.counters.expect(calls_capture=8):
        for size in range(1, 9):
            x, mask = torch.randn(2, size), (torch.rand(2, size) > 0.3).long()
            torch.testing.assert_close(fast(x, mask), module(x, mask))
    # A mask whose pad lets padding in.
    other = ready(module, x, mask, shapes=shapes, cudagraph_capture_sizes=[4, 8], pad_values={"mask": 1})
    assert padding(other, "seq")["verdict"] == "refused"


def test_what_is_tested_only_may_be_refused() -> None:
    seq = Dim("seq", 1, 8)
    x, mask = torch.randn(2, 5), torch.ones(2, 5, dtype=torch.int64)
    mask[1, 3:] = 0
    options = {"cudagraph_capture_sizes": [4, 8], "require_proof": True}
    fast = ready(Adds(), x, mask, shapes={"x": {1: seq}, "mask": {1: seq}}, **options)
    assert padding(fast, "seq")["verdict"] == "refused" and "tested only" in padding(fast, "seq")["why"]
    assert padding(ready(Net(), require_proof=True))["verdict"] == "proved"


@pytest.mark.parametrize("pads", [{"y": 0}, {"x": "a"}, {"x": None}, 3])
def test_pads_that_are_none(pads: Any) -> None:
    with pytest.raises(BadOption):
        ready(Net(), pad_values=pads)


def test_pads_and_refusals_need_captures() -> None:
    for option in ({"pad_values": {"x": 0}}, {"on_miss": "error"}):
        with pytest.raises(BadOption, match="nothing is captured"):
            ready(Net(), cudagraph_capture_sizes=None, cudagraph_mode="NONE", **option)


def test_several_dims_that_are_listed() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * 2).softmax(-1)

    shapes = {"x": {0: Dim("batch", 1, 8), 1: Dim("seq", 1, 8)}}
    module = Two()
    fast = ready(module, torch.randn(3, 4), shapes=shapes, cudagraph_capture_sizes={"batch": [2, 8], "seq": [4, 8]})
    assert padding(fast)["verdict"] != "refused" and padding(fast, "seq")["verdict"] == "refused"
    assert fast.counters.captures == 4
    with fast.counters.expect(calls_capture=5, calls_program=2):
        for batch, seq in ((2, 4), (1, 4), (3, 8), (8, 8), (5, 4), (2, 5), (2, 3)):
            x = torch.randn(batch, seq)
            torch.testing.assert_close(fast(x), module(x))


# -- what cannot be captured


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y, y[:, :2]


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1


@pytest.mark.parametrize("module, words", [(Halves(), "share memory"), (Writes(), "writes to its argument x")])
def test_a_listed_size_that_cannot_be_captured(module: nn.Module, words: str) -> None:
    with pytest.raises(errors.CaptureRefused, match=words):
        ready(module)
    fast = ready(module, cudagraph_capture_sizes=[1, 4], allow_partial=True)
    assert outcomes(fast) == {1: "program", 4: "program"}
    assert words in fast.report().captures[0]["why"] and words in str(fast.report())
    fast = ready(module, cudagraph_capture_sizes=None)
    with fast.counters.expect(calls_program=2, calls_capture=0):
        for rows in (3, 16):
            x = torch.randn(rows, 8)
            assert compare(module(x.clone()), fast(x.clone())) is None


def test_the_gate_is_closed() -> None:
    fast: CompiledModule = sizewise.compile(Net().eval(), dynamic_shapes=SHAPES)
    with cudagraph_capturing(False), pytest.raises(errors.CapturingDisabled):
        fast.warmup(torch.randn(3, 8))
    assert fast.state == "new"
    fast.warmup(torch.randn(3, 8))
    assert fast.counters.captures


@pytest.mark.parametrize("sizes", [[1, 17], {"rows": [1]}, [(1, 2)]])
def test_sizes_that_do_not_fit_the_dims(sizes: Any) -> None:
    with pytest.raises((config_errors.SizeOutOfRange, config_errors.CaptureSizesOfOtherDims)):
        ready(Net(), cudagraph_capture_sizes=sizes)


# -- weights, state, threads


def test_weights_that_change_in_place_and_elsewhere() -> None:
    module = Net()
    fast = ready(module)
    layer = module.layers[0]
    with torch.no_grad():
        layer.weight.copy_(torch.randn(16, 8))
    with fast.counters.expect(calls_capture=1):
        check(fast, module, 3)
    module.load_state_dict(Net().state_dict())
    with fast.counters.expect(calls_capture=1):
        check(fast, module, 3)
    layer.weight.data = torch.randn(16, 8)
    with fast.counters.expect(calls_capture=0, calls_program=2):
        check(fast, module, 3, 16)
    module.load_state_dict(Net().state_dict(), assign=True)
    with fast.counters.expect(calls_capture=0, calls_program=2):
        check(fast, module, 3, 16)
    fast.refresh()
    with fast.counters.expect(calls_capture=2, calls_program=0):
        check(fast, module, 3, 16)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


def test_state_is_put_back_at_warm_up_and_written_by_replays() -> None:
    module, other = Counts(), Counts()
    module.total.fill_(3.0)
    other.total.fill_(3.0)
    fast = ready(module)
    assert torch.equal(module.total, torch.full((8,), 3.0))
    assert padding(fast)["verdict"] == "refused", "rows that are filled up would count"
    for rows in (4, 16, 3, 4):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), other(x))
    torch.testing.assert_close(module.total, other.total)
    assert fast.counters.calls_capture == 3 and fast.counters.calls_program == 1


def test_many_threads() -> None:
    module = Net()
    fast = ready(module)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(60):
            rows = int(torch.randint(1, 17, (1,), generator=generator))
            x = torch.randn(rows, 8, generator=generator)
            with torch.no_grad():
                difference = compare(module(x), fast(x), depth=64)
            wrong.extend([difference] if difference is not None else [])

    before = fast.counters.calls_capture + fast.counters.calls_program
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert fast.counters.calls_capture + fast.counters.calls_program - before == 240


# -- programs that were loaded


def test_a_bundle_captures_what_calls_need(tmp_path: Any) -> None:
    module = Net()
    fast = ready(module)
    path = fast.save(tmp_path / "net.sizewise", proved=False)
    loaded = sizewise.load(path, module)
    assert loaded.counters.captures == 0 and padding(loaded) == padding(fast), "loading takes milliseconds"
    with loaded.counters.expect(captures=2, calls_capture=4, calls_program=0, traces=0, compilations=0):
        check(loaded, module, 3, 1, 4, 2)
    assert outcomes(loaded) == {1: "captured", 4: "captured"}
    with cudagraph_capturing(False), loaded.counters.expect(captures=0, calls_capture=1, calls_program=2):
        check(loaded, module, 16, 9, 4)
    with loaded.counters.expect(captures=1, calls_capture=2):
        check(loaded, module, 9, 16)


def test_threads_on_a_bundle_that_captures_meanwhile(tmp_path: Any) -> None:
    module = Net()
    path = ready(module, cudagraph_capture_sizes=None).save(tmp_path / "net.sizewise", proved=False)
    loaded = sizewise.load(path, module)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(40):
            x = torch.randn(int(torch.randint(1, 17, (1,), generator=generator)), 8, generator=generator)
            with torch.no_grad():
                difference = compare(module(x), loaded(x), depth=64)
            wrong.extend([difference] if difference is not None else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and loaded.counters.calls_capture + loaded.counters.calls_program == 160
    assert all(outcome == "captured" for outcome in outcomes(loaded).values())


def test_programs_from_the_cache_capture_at_warm_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")
    module = Net()
    ready(module)
    second = ready(module, cudagraph_capture_sizes=[2, 8])
    assert second.counters.cache_hits == 1, "what is captured is no part of the key"
    assert second.counters.captures == 2 and padding(second)["verdict"] == "proved"
    with second.counters.expect(calls_capture=3, captures=0):
        check(second, module, 1, 7, 8)
    third = ready(module, cudagraph_capture_sizes=None, cudagraph_mode="NONE")
    assert third.counters.cache_hits == 1 and third.counters.captures == 0
