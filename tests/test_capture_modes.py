"""Capture modes: PIECEWISE, and those that capture decode batches in a way of their own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from benchmarks.models import ATTENTION, decoder
from sizewise import CompilationConfig, CompiledModule, CUDAGraphMode, Dim
from sizewise.errors import capture as errors
from sizewise.errors import config as config_errors
from sizewise.errors.state import BadOption
from sizewise.graphs.lifetimes import read_later
from sizewise.verify.tolerance import compare

slow = pytest.mark.slow
ROWS = {"x": {0: Dim("batch", 1, 16)}}
BOTH = {"ids": {0: Dim("batch", 1, 8), 1: Dim("seq", 1, 12)}}
GRID = {"batch": [1, 4, 8], "seq": [1, 12]}


@torch.library.custom_op("mode_tests::fills", mutates_args={"out"})
def fills(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.sin() * 2)


@torch.library.custom_op("mode_tests::makes", mutates_args=())
def makes(x: torch.Tensor) -> torch.Tensor:
    """Memory of its own, laid out the other way round."""
    return (x.cos() + 1).T.contiguous().T


@makes.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[1], x.shape[0]).T


MAKES = ["mode_tests::makes"]
SPLITS = ["mode_tests::fills", *MAKES]


class Skips(nn.Module):
    """Three pieces around two operators; what the first makes is read by the last, and handed out as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        early = self.first(x).tanh()
        wide = early.cos()
        out = torch.empty_like(early)
        torch.ops.mode_tests.fills(early, out)
        middle = self.second(out).relu() + wide.sum(1, keepdim=True)
        made = torch.ops.mode_tests.makes(middle)
        last = self.third(made) + early + wide * made
        return last, early, made


class Waits(nn.Module):
    """What the first piece makes is read by an operator behind the last one, and by no other piece."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x.sin() * 2
        one = torch.ops.mode_tests.makes(self.first(x))
        two = torch.ops.mode_tests.makes(self.second(one).relu())
        three = self.third(two).tanh()
        return torch.ops.mode_tests.makes(kept) + three


def ready(module: nn.Module, *example: Any, shapes: Any = ROWS, **options: Any) -> CompiledModule:
    options = {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [1, 4, 16], **options}
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes=shapes, **options)
    return fast.warmup(*(example or (torch.randn(3, 8),)))


def check(fast: CompiledModule, module: nn.Module, *sizes: int) -> None:
    for rows in sizes:
        x = torch.randn(rows, 8)
        with torch.no_grad():
            difference = compare(module(x), fast(x), depth=64)
        assert difference is None, (rows, difference)


@pytest.fixture(scope="module")
def skips() -> tuple[Skips, CompiledModule]:
    torch.set_num_threads(1)  # as every test does, later than this
    torch.manual_seed(0)
    module = Skips()
    return module, ready(module, splitting_ops=SPLITS)


def captured(fast: CompiledModule) -> dict[tuple[int, ...], tuple[str, int]]:
    return {tuple(each["sizes"].values()): (each["mode"], each["pieces"]) for each in fast.report().captures}


# -- PIECEWISE


@slow
def test_pieces_replay_and_operators_run_between_them(skips: tuple[Skips, CompiledModule]) -> None:
    module, fast = skips
    assert captured(fast) == {(1,): ("PIECEWISE", 3), (4,): ("PIECEWISE", 3), (16,): ("PIECEWISE", 3)}
    sizes = [int(rows) for _ in range(3) for rows in torch.randperm(16) + 1]
    with fast.counters.expect(calls_capture=48, calls_program=0, calls_eager=0, captures=0, compilations=0, traces=0):
        check(fast, module, *sizes)
    assert "PIECEWISE" in str(fast.report())


@slow
def test_results_are_the_callers(skips: tuple[Skips, CompiledModule]) -> None:
    _, fast = skips
    results = fast(torch.randn(3, 8))
    kept = [result.clone() for result in results]
    for rows in (3, 4, 1, 16, 3):
        fast(torch.randn(rows, 8))
    assert all(map(torch.equal, results, kept))


@slow
def test_every_thread_gets_its_own_results(skips: tuple[Skips, CompiledModule]) -> None:
    module, fast = skips
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


@slow
def test_an_operator_that_fails_leaves_the_captures_usable(skips: tuple[Skips, CompiledModule]) -> None:
    module, fast = skips

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with torch.library._scoped_library("mode_tests", "IMPL") as library:
        library.impl("makes", fail, "CPU", allow_override=True)
        with pytest.raises(KeyboardInterrupt):
            fast(torch.randn(3, 8))
    with fast.counters.expect(calls_capture=2):
        check(fast, module, 3, 16)


@slow
def test_weights_that_change_in_place_and_elsewhere() -> None:
    module = Skips()
    fast = ready(module, splitting_ops=SPLITS)
    module.load_state_dict(Skips().state_dict())
    with fast.counters.expect(calls_capture=2, calls_program=0):
        check(fast, module, 3, 16)
    module.second.weight.data = torch.randn(8, 8)
    with fast.counters.expect(calls_capture=0, calls_program=2):
        check(fast, module, 3, 16)
    fast.refresh()
    with fast.counters.expect(calls_capture=2, calls_program=0):
        check(fast, module, 3, 16)


@slow
def test_what_only_an_operator_reads_later_is_kept() -> None:
    module = Waits()
    fast = ready(module, splitting_ops=MAKES)
    with fast.counters.expect(calls_capture=4, calls_program=0):
        check(fast, module, 1, 3, 4, 16)


class Updates(nn.Module):
    """A piece writes to what an operator made, which another operator reads; and to a buffer of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.ops.mode_tests.makes(x * 2)
        self.total.add_(made.sum(0))
        made.add_(x)
        again = torch.ops.mode_tests.makes(made)
        return again * 2 + made.sin() + self.total


@slow
def test_what_a_piece_writes_is_read_by_those_after_it() -> None:
    module, other = Updates(), Updates()
    fast = ready(module, splitting_ops=MAKES)
    assert module.total.count_nonzero() == 0
    with fast.counters.expect(calls_capture=3, calls_program=0):
        for rows in (4, 16, 1):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), other(x))
    torch.testing.assert_close(module.total, other.total)


class Thirds(nn.Module):
    """The inputs of an operator are views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layer(x).chunk(3, 1)
        made = torch.ops.mode_tests.makes(second)
        return torch.ops.mode_tests.makes(first + made) * third


@slow
def test_pieces_whose_results_share_memory() -> None:
    module = Thirds()
    fast = ready(module, splitting_ops=MAKES)
    with fast.counters.expect(calls_capture=4, calls_program=0):
        check(fast, module, 1, 3, 4, 16)


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.ops.mode_tests.makes(x.sin())
        return made, made[:, :2]


@slow
def test_results_that_share_memory_are_refused() -> None:
    with pytest.raises(errors.CaptureRefused, match="share memory"):
        ready(Halves(), splitting_ops=MAKES)
    module = Halves()
    fast = ready(module, splitting_ops=MAKES, allow_partial=True)
    assert {each["outcome"] for each in fast.report().captures} == {"program"}
    with fast.counters.expect(calls_program=2, calls_capture=0):
        check(fast, module, 4, 5)


@slow
def test_without_a_split_the_one_piece_is_all() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    fast = ready(module, shapes={"input": ROWS["x"]})
    assert captured(fast)[(4,)] == ("PIECEWISE", 1)
    with fast.counters.expect(calls_capture=2):
        check(fast, module, 3, 4)
    assert "nothing splits the program" in str(fast.report())


# -- decode batches and others


def decode_ready(mode: str | None, **options: Any) -> tuple[nn.Module, CompiledModule]:
    module = decoder(2)
    settings = {"cudagraph_mode": mode, "splitting_ops": [ATTENTION], "cudagraph_capture_sizes": GRID, **options}
    return module, ready(module, torch.randint(0, 256, (3, 5)), shapes=BOTH, **settings)


def check_decoder(fast: CompiledModule, module: nn.Module, *sizes: tuple[int, int]) -> None:
    for size in sizes:
        ids = torch.randint(0, 256, size)
        with torch.no_grad():
            torch.testing.assert_close(fast(ids), module(ids), rtol=1e-4, atol=1e-4)


DECODE = [(1, 1), (3, 1), (8, 1)]
MIXED = [(1, 12), (3, 12), (8, 12)]
PROGRAM = [(3, 5), (8, 11)]


@slow
def test_a_decoder_in_every_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Built once: what is captured is no part of a program.
    monkeypatch.delenv("SIZEWISE_DISABLE_COMPILE_CACHE")
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "cache"))
    module, piecewise = decode_ready("PIECEWISE")
    assert set(captured(piecewise).values()) == {("PIECEWISE", 3)}
    with piecewise.counters.expect(calls_capture=6, calls_program=2):
        check_decoder(piecewise, module, *DECODE, *MIXED, *PROGRAM)

    module, both = decode_ready(None, decode={"seq": 1})
    assert both.counters.compilations == 0
    assert captured(both)[(4, 1)] == ("FULL", 0) and captured(both)[(4, 12)] == ("PIECEWISE", 3)
    with both.counters.expect(calls_capture=6, calls_program=2):
        check_decoder(both, module, *DECODE, *MIXED, *PROGRAM)

    module, only = decode_ready("FULL_DECODE_ONLY", decode={"seq": 1})
    assert captured(only)[(4, 1)] == ("FULL", 0) and captured(only)[(4, 12)] == ("NONE", 0)
    with only.counters.expect(calls_capture=3, calls_program=5):
        check_decoder(only, module, *DECODE, *MIXED, *PROGRAM)

    # What a bundle was saved with holds where it is loaded.
    loaded = sizewise.load(both.save(tmp_path / "both.sizewise", proved=False), module)
    with loaded.counters.expect(calls_capture=6, calls_program=2, compilations=0):
        check_decoder(loaded, module, *DECODE, *MIXED, *PROGRAM)
    assert captured(loaded)[(4, 1)] == ("FULL", 0) and captured(loaded)[(4, 12)] == ("PIECEWISE", 3)

    # One layer after another, with the same memory.
    held = [
        captures.bytes for fast in (piecewise, decode_ready("FULL")[1]) if (captures := fast._sw_generation.captures)
    ]
    assert held[0] < 3 * held[1], held
    assert max(each["bytes"] for each in piecewise.report().captures) <= held[0]


@slow
def test_a_batch_that_is_no_decode_batch_is_not_filled_up_to_one() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    shapes = {"input": ROWS["x"]}
    fast = ready(module, shapes=shapes, cudagraph_mode="FULL_DECODE_ONLY", decode={"batch": 4})
    assert {sizes: mode for sizes, (mode, _) in captured(fast).items()} == {(1,): "NONE", (4,): "FULL", (16,): "NONE"}
    with fast.counters.expect(calls_capture=1, calls_program=4):
        check(fast, module, 4, 1, 3, 5, 16)
    fast = ready(module, shapes=shapes, cudagraph_mode="FULL_AND_PIECEWISE", decode={"batch": 4})
    with fast.counters.expect(calls_capture=5, calls_program=0):
        check(fast, module, 4, 1, 3, 5, 16)


# -- what is legal

DIMS = {"batch": (1, 8), "seq": (1, 64)}


def test_pieces_need_compilation_in_pieces() -> None:
    for mode in ("PIECEWISE", "FULL_AND_PIECEWISE"):
        with pytest.raises(config_errors.PiecewiseWithoutCompilation, match=r"should be CompilationMode\.VLLM_COMPILE"):
            CompilationConfig(mode="NONE", cudagraph_mode=mode).resolve(decode={"seq": 1})


@pytest.mark.parametrize("settings, words", [({"splitting_ops": []}, "FULL"), ({"backend": "eager"}, "NONE")])
def test_a_mode_that_was_set_and_has_no_pieces(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(config_errors.NoPiecesToCapture, match=f"set cudagraph_mode='{words}'"):
        sizewise.compile(nn.Linear(8, 8).eval(), cudagraph_mode="PIECEWISE", **settings)


def test_a_mode_that_was_left_open_and_has_no_pieces() -> None:
    resolved = CompilationConfig(splitting_ops=[]).resolve(dims=DIMS, decode={"seq": 1})
    assert resolved.config.cudagraph_mode is CUDAGraphMode.FULL
    modes = [(change.after, change.rule) for change in resolved.changes if change.field == "cudagraph_mode"]
    assert modes == [
        (CUDAGraphMode.FULL_AND_PIECEWISE, "capture_mode"),
        (CUDAGraphMode.FULL, "pieces_can_be_captured"),
    ]


@pytest.mark.parametrize("mode", ["FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"])
def test_decode_batches_have_to_be_declared(mode: str) -> None:
    with pytest.raises(config_errors.DecodeNotDeclared, match=r'decode=\{"seq": 1\}'):
        sizewise.compile(nn.Linear(8, 8).eval(), cudagraph_mode=mode)


@pytest.mark.parametrize("mode", ["FULL", "PIECEWISE", "NONE"])
def test_decode_without_a_mode_that_reads_it(mode: str) -> None:
    with pytest.raises(config_errors.SettingWithoutEffect, match="decode would have no effect"):
        sizewise.compile(nn.Linear(8, 8).eval(), cudagraph_mode=mode, decode={"seq": 1})


@pytest.mark.parametrize("decode", [{}, {"seq": 0}, {"seq": True}, {1: 1}, "seq", ["seq"]])
def test_a_decode_that_is_none(decode: Any) -> None:
    with pytest.raises(BadOption, match="decode"):
        sizewise.compile(nn.Linear(8, 8).eval(), decode=decode)


@pytest.mark.parametrize("decode", [{"rows": 1}, {"seq": 65}, {"seq": 2}])
def test_a_decode_that_does_not_fit_the_dims(decode: dict[str, int]) -> None:
    config = CompilationConfig(cudagraph_capture_sizes={"batch": [1], "seq": [1, 64]})
    with pytest.raises(config_errors.DecodeDoesNotFit):
        config.resolve(dims=DIMS, decode=decode)


def test_the_default_sizes_hold_decode_batches() -> None:
    found = CompilationConfig().resolve(dims=DIMS, decode={"seq": 3}).config.cudagraph_capture_sizes
    assert isinstance(found, dict) and 3 in found["seq"] and len(found["seq"]) > 1
    only = CompilationConfig(cudagraph_mode="FULL_DECODE_ONLY")
    assert only.resolve(dims=DIMS, decode={"seq": 3}).config.cudagraph_capture_sizes["seq"] == [3]  # type: ignore[index,call-overload]
    assert only.resolve(dims={"seq": (1, 64)}, decode={"seq": 3}).config.cudagraph_capture_sizes == [3]


def test_which_inputs_of_a_piece_are_read_later() -> None:
    source = """def call(weights, size_n, arg_x):
    w0, = weights
    a, b = piece_0([arg_x, w0, size_n])
    op_0(a, out=b)
    del a
    c, = piece_1([b, arg_x, (size_n * 2)])
    del b
    return (c, arg_x)
"""
    assert read_later(source) == {"piece_0": [True, False, True], "piece_1": [False, True, False]}
