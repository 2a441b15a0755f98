"""Compiled modules on the fake of CUDA graphs: the life of captures, from warm-up to release."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import sizewise
from sizewise import CompilationConfig, CompiledModule, Dim, monitor
from sizewise.errors import capture as errors
from sizewise.graphs import FakeBackend, Job, check_current, is_current
from sizewise.module import Options
from sizewise.verify.tolerance import compare

SHAPES = {"x": {0: Dim("batch", 1, 16)}}
SIZES = [1, 4, 16]


@pytest.fixture(autouse=True)
def open_gate() -> Iterator[None]:
    yield
    monitor.set_cudagraph_capturing_enabled(True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def compiled(module: nn.Module, fake: Any, *, on_outside: str = "error", outputs: str = "copy", **config: Any) -> Any:
    settings: dict[str, Any] = {"backend": "eager", "cudagraph_mode": "FULL", "cudagraph_capture_sizes": SIZES}
    options = Options(
        SHAPES,
        CompilationConfig(**{**settings, **config}),
        on_outside=on_outside,
        outputs=outputs,
        backend_for=lambda kind, warmups: fake,
    )
    return CompiledModule(module.eval(), options)


def ready(module: nn.Module, fake: Any, **options: Any) -> Any:
    return compiled(module, fake, **options).warmup(torch.randn(3, 8))


def check(fast: Any, module: nn.Module, *sizes: int) -> None:
    for rows in sizes:
        x = torch.randn(rows, 8)
        with torch.no_grad():
            difference = compare(module(x), fast(x), depth=64)
        assert difference is None, (rows, difference)


def outcomes(fast: Any) -> dict[int, str]:
    return {row["sizes"]["batch"]: row["outcome"] for row in fast.report().captures}


# -- warm-up


@pytest.mark.parametrize("overwrite_inputs", [False, True])
def test_largest_first_in_one_session_and_every_call_replays(overwrite_inputs: bool) -> None:
    module, fake = Net(), FakeBackend(cudagraph_num_of_warmups=2, overwrite_inputs=overwrite_inputs)
    given = torch.randn(3, 8)
    kept = given.clone()
    fast = compiled(module, fake).warmup(given)
    assert fake.sizes == [((16, 8),), ((4, 8),), ((1, 8),)] and fake.warm_ups == 6
    assert len(fake.sessions) == 1 and torch.equal(given, kept)
    assert fast.report().capture_bytes == fake.bytes == 16 * 8 * 4, "what they share is counted once"
    with fast.counters.expect(calls_capture=20, calls_program=0, calls_eager=0, traces=0, compilations=0, captures=0):
        check(fast, module, *torch.randperm(16).add(1).tolist(), 16, 1, 4, 3)


def test_results_are_copies_also_where_a_later_replay_overwrites_them() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    first = fast(torch.randn(4, 8))
    kept = first.clone()
    check(fast, module, 16, 4, 1)
    assert torch.equal(first, kept) and is_current(first)


def test_weights_that_move_are_bypassed_until_refresh_which_gives_the_old_captures_up() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    with torch.no_grad():
        module.layers[0].weight.mul_(-1.5)
    with fast.counters.expect(calls_capture=2):
        check(fast, module, 3, 16)
    module.layers[0].weight.data = torch.randn(16, 8)
    with fast.counters.expect(calls_capture=0, calls_program=2):
        check(fast, module, 3, 16)
    old = list(fake.captures)
    fast.refresh()
    assert len(fake.captures) == 6 and all(one.freed for one in old) and not any(one.freed for one in fake.captures[3:])
    with fast.counters.expect(calls_capture=2, calls_program=0):
        check(fast, module, 3, 16)


def test_out_of_memory_at_sizes_that_nobody_listed() -> None:
    module = Net()
    fast = ready(module, FakeBackend(out_of_memory_at=1), cudagraph_capture_sizes=None)
    assert outcomes(fast) == {1: "padded", **dict.fromkeys((2, 3, 4, 5, 6, 7, 8, 12, 16), "captured")}
    assert ": out of memory; its calls are filled up to batch=2\n" in str(fast.report())
    with fast.counters.expect(calls_capture=3, calls_program=0):
        check(fast, module, 1, 16, 2)


def test_out_of_memory_at_the_second_of_the_list() -> None:
    module = Net()
    fast = ready(module, FakeBackend(out_of_memory_at=2), allow_partial=True)
    assert outcomes(fast) == {1: "captured", 4: "padded", 16: "captured"}
    with fast.counters.expect(calls_capture=4, calls_program=0):
        check(fast, module, 4, 3, 16, 1)


def test_out_of_memory_at_the_largest() -> None:
    module, fake = Net(), FakeBackend(out_of_memory_at=1)
    fast = ready(module, fake, allow_partial=True)
    assert outcomes(fast) == {1: "captured", 4: "captured", 16: "program"}
    with fast.counters.expect(calls_capture=3, calls_program=2):
        check(fast, module, 4, 3, 1, 5, 16)


def test_out_of_memory_at_a_listed_size() -> None:
    fake = FakeBackend(out_of_memory_at=2)
    fast = compiled(Net(), fake)
    with pytest.raises(errors.CaptureRefused, match=r"at batch=4.*out of memory"):
        fast.warmup(torch.randn(3, 8))
    assert fast.state == "new" and fast.built is None and fake.bytes == 0 and all(one.freed for one in fake.captures)
    check(fast.warmup(torch.randn(3, 8)), fast.__wrapped__, 3, 16)


class Counts(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return super().forward(x) + self.calls


def test_an_interrupt_halfway() -> None:
    module, fake = Counts(), FakeBackend(interrupt_at=2)
    module.calls.fill_(7.0)
    fast = compiled(module, fake)
    with pytest.raises(KeyboardInterrupt):
        fast.warmup(torch.randn(3, 8))
    assert fast.state == "new" and fake.bytes == 0 and all(one.freed for one in fake.captures)
    assert module.calls == 7
    fast.warmup(torch.randn(3, 8))
    assert module.calls == 7, "neither captures nor the profiling run count"
    fast(torch.randn(4, 8))
    assert module.calls == 8 and fast.counters.calls_capture == 1


def test_captures_of_an_earlier_kind_go_with_the_failure_of_a_later_one() -> None:
    fake = FakeBackend(out_of_memory_at=5)
    fast = compiled(Kinds(), fake)
    with pytest.raises(errors.CaptureRefused):
        fast.warmup_many([((torch.randn(3, 8),), {"double": flag}) for flag in (False, True)])
    assert len(fake.sessions) == 2 and len(fake.captures) == 4
    assert fake.bytes == 0 and all(one.freed for one in fake.captures) and fast.state == "new"


class Kinds(nn.Module):
    def forward(self, x: torch.Tensor, double: bool = False) -> torch.Tensor:
        return x.sin() * 2 if double else x.cos()


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), x[:, :4]


def test_a_view_of_an_argument_is_not_replayed_as_a_copy() -> None:
    module, fake = Views(), FakeBackend()
    fast = ready(module, fake, allow_partial=True)
    assert set(outcomes(fast).values()) == {"program"} and fake.bytes == 0
    x = torch.randn(3, 8)
    assert fast(x)[1].data_ptr() == x.data_ptr()


# -- the end


@pytest.mark.parametrize("end", ["close", "reset"])
def test_the_end_gives_captures_up(end: str) -> None:
    fake = FakeBackend()
    fast = ready(Net(), fake)
    generation = fast._sw_generation
    getattr(fast, end)()
    assert fake.bytes == 0 and all(one.freed for one in fake.captures)
    # A call that read the generation before goes on with its programs.
    x = torch.randn(3, 8)
    torch.testing.assert_close(generation.calls[0](x), fast.__wrapped__(x))
    assert fast.counters.calls_program == 1 and generation.captures.bytes == 0


def test_the_end_comes_while_a_call_replays() -> None:
    """The call finishes; what it used is given up after it, without anybody waiting."""
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    (capture,) = [one for one in fake.captures if one.inputs[0].shape[0] == 4]
    closed: list[int] = []

    run, x = capture._job, torch.randn(3, 8)
    original = run.call

    def call(*args: Any) -> Any:
        fast.close()
        closed.append(fake.bytes)
        return original(*args)

    capture._job = Job(call, run.inputs, run.fixed, run.weights)
    torch.testing.assert_close(fast(x), module(x))
    assert closed and closed[0] > 0, "not under its hands"
    assert fake.bytes == 0 and fast.state == "closed"


def test_tapes_give_their_memory_back() -> None:
    fast: CompiledModule = sizewise.compile(
        Net().eval(), dynamic_shapes=SHAPES, cudagraph_capture_sizes=SIZES, backend="eager"
    )
    fast.warmup(torch.randn(3, 8))
    captures = fast._sw_generation.captures
    held = captures.bytes
    assert held > 0 and fast.report().capture_bytes == held
    assert all(row["seconds"] > 0 for row in fast.report().captures)
    session, _ = captures.sessions
    gone = weakref.ref(session._arenas[0])
    fast.refresh()
    assert gone() is None and captures.bytes == 0 and fast.report().capture_bytes == held
    check(fast, fast.__wrapped__, 3, 16)
    assert fast.counters.calls_capture == 2
    fast.close()
    assert fast.report().capture_bytes == 0


# -- the gate


def test_a_refresh_under_a_closed_gate_leaves_the_old_generation() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    before = fast._sw_generation
    with monitor.cudagraph_capturing(False):
        with pytest.raises(errors.CapturingDisabled):
            fast.refresh()
        assert fast.state == "ready" and fast._sw_generation is before
        with fast.counters.expect(calls_capture=2):
            check(fast, module, 3, 16)
    assert fake.bytes and not any(one.freed for one in fake.captures)


def test_a_call_outside_under_a_closed_gate() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake, on_outside="eager")
    with monitor.cudagraph_capturing(False), fast.counters.expect(calls_eager=1, misses=1, captures=0, compilations=0):
        check(fast, module, 17)


# -- in the hands of others


def test_inside_somebody_elses_capture_the_program_runs() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    given = torch.randn(4, 8)
    with FakeBackend().session() as session, torch.no_grad(), fast.counters.expect(calls_capture=0):
        outer = session.capture(Job(lambda x: fast(x) + 1, (given,)))
    with fast.counters.expect(calls_capture=0, calls_program=3):
        for _ in range(3):
            given.copy_(torch.randn(4, 8))
            with torch.no_grad():
                outer.replay()
            torch.testing.assert_close(outer.result, module(given) + 1)
    with fast.counters.expect(calls_capture=1):
        check(fast, module, 4)


def test_under_transforms_the_original_runs() -> None:
    module, fake = Net(), FakeBackend()
    fast = ready(module, fake)
    x = torch.randn(4, 8)

    class Sees(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operators: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.operators.append(str(func))
            return func(*args, **(kwargs or {}))

    with fast.counters.expect(calls_capture=0, calls_program=0, calls_eager=2):
        with Sees() as sees:
            fast(x)
        assert any("gelu" in name for name in sees.operators)
        torch.testing.assert_close(torch.vmap(fast)(x), module(x))
    around = torch.compile(lambda x: fast(x) + 1, backend="eager", fullgraph=True)
    with torch.no_grad(), fast.counters.expect(calls_capture=0, calls_program=0):
        torch.testing.assert_close(around(x), module(x) + 1)


# -- phases


def test_what_a_warm_up_says(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sizewise"):
        fast = ready(Net(), FakeBackend())
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("Initial profiling/warmup run took ") for line in lines)
    (line,) = [line for line in lines if "is ready" in line]
    assert line == lines[-1] and line.startswith("sizewise: Net is ready: trace ")
    assert "compile " in line and "self-test " in line and "(3 captures, 0.5 KiB); padding: batch " in line
    assert fast.counters.calls_capture == fast.counters.calls_program == 0, "the profiling run is no call"


def test_the_profiling_run_makes_one_call_of_each_kind_and_refuses_to_compile() -> None:
    fake = FakeBackend()
    fast = compiled(Kinds(), fake)
    calls = [((torch.randn(rows, 8),), {"double": flag}) for rows, flag in ((4, False), (3, True))]
    seen: list[tuple[str, list[int]]] = []
    fast.warmup_many(calls, progress=lambda event: seen.append((event.name, [one.replays for one in fake.captures])))
    (before,), (after,) = ([counts for name, counts in seen if name == x] for x in ("profiling.start", "profiling"))
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 1, 0, 0, 1, 0]

    def compiles(event: Any) -> None:
        if event.name == "profiling.start":
            fast.counters.add("compilations")

    fast = compiled(Kinds(), fake)
    with pytest.raises(errors.CompiledInProfilingRun):
        fast.warmup_many(calls, progress=compiles)
    assert fast.state == "new" and len(fake.captures) == 12 and all(one.freed for one in fake.captures[6:])


def test_nothing_compiles_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every door to the tracer and the compilers is locked; calls of all sizes and wrong ones go on."""
    module = Net()
    fast = sizewise.compile(module.eval(), dynamic_shapes=SHAPES, on_outside="eager", cudagraph_capture_sizes=[2, 8])
    fast.warmup(torch.randn(3, 8))

    def locked(*_: Any, **__: Any) -> Any:
        raise AssertionError("something is compiled in service")

    for door in (
        "sizewise.warm.programs_for",
        "sizewise.plan.make_plan",
        "sizewise.build.Builder.build",
        "torch._inductor.compile_fx.compile_fx",
        "torch._inductor.codecache.CppCodeCache.load_async",
        "torch._dynamo.eval_frame._optimize",
        "sizewise.graphs.tape.backend.TapeSession.capture",
    ):
        monkeypatch.setattr(door, locked)
    quiet = {"traces": 0, "compilations": 0, "captures": 0, "cache_hits": 0, "cache_misses": 0}
    with fast.counters.expect(**quiet, calls_capture=8, calls_program=9, calls_eager=2):
        check(fast, module, *range(1, 18))
        module.layers[0].weight.data = torch.randn(16, 8)
        check(fast, module, 3, 17)
    with pytest.raises(AssertionError, match="something is compiled"):
        fast.refresh()


# -- static results


@pytest.mark.parametrize("kind", ["fake", "tape"])
def test_static_results_know_when_they_are_stale(kind: str) -> None:
    module = Net()
    fast = static(module, kind)
    for rows in (4, 3, 16, 1, 9):
        x = torch.randn(rows, 8)
        first = fast(x)
        assert is_current(first) and first.shape == (rows, 8)
        torch.testing.assert_close(check_current(first), module(x))
        view = first[:1]
        again = fast(torch.randn(2, 8))
        assert is_current(again) and not is_current(first) and not is_current(view)
        with pytest.raises(errors.StaleOutput, match="1 further replay"):
            check_current(first)
    assert fast.counters.calls_capture == 10 and fast.counters.calls_program == 0
    small, other = fast(torch.randn(3, 8)), fast(torch.randn(4, 8))
    assert small.data_ptr() == other.data_ptr(), "no copy"


def static(module: nn.Module, kind: str) -> Any:
    if kind == "fake":
        return ready(module, FakeBackend(), outputs="static")
    fast = sizewise.compile(
        module.eval(), dynamic_shapes=SHAPES, outputs="static", cudagraph_capture_sizes=SIZES, backend="eager"
    )
    return fast.warmup(torch.randn(3, 8))


@pytest.mark.parametrize("kind", ["fake", "tape"])
def test_static_results_as_arguments(kind: str) -> None:
    """In a tape results and arguments share memory: copying one argument in must not overwrite another."""

    class Mixes(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x - y).tanh(), (x * 2 + y).sin()

    module = Mixes()
    shapes = {"x": {0: Dim("batch", 1, 16)}, "y": {0: Dim("batch", 1, 16)}}
    options = Options(
        shapes,
        CompilationConfig(backend="eager", cudagraph_mode="FULL", cudagraph_capture_sizes=SIZES),
        outputs="static",
        backend_for=(lambda *_: FakeBackend()) if kind == "fake" else None,
    )
    fast = CompiledModule(module.eval(), options).warmup(torch.randn(3, 8), torch.randn(3, 8))
    for rows in (4, 3, 16):
        x, y = torch.randn(rows, 8), torch.randn(rows, 8)
        mine, wanted = (x, y), (x, y)
        for step in range(4):
            given = mine[::-1] if step % 2 else mine
            wanted = module(*(wanted[::-1] if step % 2 else wanted))
            mine = fast(*given)
            for one, other in zip(mine, wanted, strict=True):
                torch.testing.assert_close(one, other)
    assert fast.counters.calls_program == 0


def test_static_results_of_the_program_stay_current() -> None:
    module = Net()
    fast = ready(module, FakeBackend(), outputs="static", cudagraph_capture_sizes=[2, 4])
    x = torch.randn(9, 8)
    first = fast(x)
    fast(torch.randn(3, 8))
    fast(torch.randn(9, 8))
    assert is_current(first)
    torch.testing.assert_close(first, module(x))


def test_static_results_need_captures() -> None:
    with pytest.raises(sizewise.errors.state.BadOption, match="outputs"):
        ready(Net(), FakeBackend(), outputs="static", cudagraph_mode="NONE", cudagraph_capture_sizes=None)


def test_threads_with_static_results() -> None:
    """A result is either stale, which it knows, or right."""
    module, wrong, stale = Net(), [], []
    fast = static(module, "tape")

    @torch.no_grad()
    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(80):
            x = torch.randn(int(torch.randint(1, 17, (1,), generator=generator)), 8, generator=generator)
            result = fast(x)
            copied = result.clone()
            if not is_current(result):  # asked after it was read: nothing overwrote it before
                stale.append(1)
                continue
            wrong.extend([1] if compare(module(x), copied, depth=64) is not None else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(stale) < 240
