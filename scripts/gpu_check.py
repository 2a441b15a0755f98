"""Does what was written for CUDA work on this machine's GPU, and what does it bring? One table, in under five minutes.

    python scripts/gpu_check.py             # on a machine with a GPU; exit code 0 if every step passed, else 1
    python scripts/gpu_check.py --rehearse  # the same steps on the CPU with a stand-in for CUDA graphs

Needs this checkout, Python 3.11 or 3.12 and torch 2.11 to 2.14 with its Triton; no network and nothing installed of
Sizewise's other dependencies. Without pydantic the step that compiles a module is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.models import decoder  # noqa: E402
from sizewise import monitor  # noqa: E402
from sizewise.errors import capture as errors  # noqa: E402
from sizewise.graphs import (  # noqa: E402
    BatchDescriptor,
    CUDABackend,
    CUDAGraphWrapper,
    FakeBackend,
    Job,
    forward_context,
    is_current,
)

SIZES = (64, 32, 16, 8, 5, 3, 2, 1)


@dataclass
class Rig:
    """What the steps run on: a GPU, or the CPU with the fake."""

    rehearse: bool
    device: torch.device = field(init=False)

    def __post_init__(self) -> None:
        self.device = torch.device("cpu" if self.rehearse else "cuda")

    def backend(self, **fake: Any) -> Any:
        """``fake``: what only the stand-in has to be told."""
        return FakeBackend(**fake) if self.rehearse else CUDABackend()

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device)

    def synchronize(self) -> None:
        if not self.rehearse:
            torch.cuda.synchronize()

    def stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.rehearse else torch.cuda.stream(torch.cuda.Stream())

    def wrapped(self, runnable: Any, **options: Any) -> CUDAGraphWrapper:
        backend = options.pop("backend", None) or self.backend()
        return CUDAGraphWrapper(runnable, mode="FULL", backend=backend, **options)


class Failed(Exception):
    """A step found something wrong."""


def expect(truth: bool, what: str) -> None:
    if not truth:
        raise Failed(what)


def call(wrapper: CUDAGraphWrapper, *args: torch.Tensor, session: Any = None) -> Any:
    with forward_context("FULL", BatchDescriptor.of(batch=args[0].shape[0]), session=session):
        return wrapper(*args)


def close(seen: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference relative to the largest value. Raises Failed."""
    scale = wanted.abs().max().item()
    expect(seen.shape == wanted.shape and scale > 1e-3, f"{tuple(seen.shape)} for {tuple(wanted.shape)}, up to {scale}")
    difference = (seen - wanted).abs().max().item() / scale
    expect(difference < 1e-3, f"differs from eager mode by {difference:.1e}")
    return difference


# -- steps: each returns a few words, or raises


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.BatchNorm1d(16), nn.GELU(), nn.Flatten(), nn.Linear(256, 8))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32), nn.Softmax(-1))


def equal_to_eager(rig: Rig) -> str:
    def ids(rows: int) -> torch.Tensor:
        return torch.randint(0, 256, (rows, 7), device=rig.device)

    modules: list[tuple[nn.Module, Callable[[int], torch.Tensor]]] = [
        (mlp(), lambda rows: rig.random(rows, 32)),
        (conv(), lambda rows: rig.random(rows, 4, 16)),
        (decoder(2), ids),
    ]
    worst, replays = 0.0, 0
    for module, inputs in modules:
        module = module.eval().to(rig.device)
        wrapper = rig.wrapped(module)
        with wrapper._backend.session() as session:
            for rows in SIZES:
                call(wrapper, inputs(rows), session=session)
        monitor.set_cudagraph_capturing_enabled(False)
        for rows in random.sample(SIZES * 3, len(SIZES) * 3):
            given = inputs(rows)
            worst = max(worst, close(call(wrapper, given), module(given)))
            replays += 1
        monitor.set_cudagraph_capturing_enabled(True)
        expect(wrapper.counters.captures == len(SIZES) and not wrapper.counters.calls_program, repr(wrapper.counters))
        wrapper.release()
    return f"{len(modules)} modules, {len(SIZES)} sizes, {replays} replays; largest difference {worst:.1e}"


def pool_memory(rig: Rig) -> str:
    wide = 64 if rig.rehearse else 4096
    layers = nn.Linear(64, wide), nn.GELU(), nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, 8)
    module = nn.Sequential(*layers).eval().to(rig.device)
    sizes = [32 * step for step in range(16, 0, -1)]
    held = []
    for some in (sizes[:1], sizes):
        wrapper = rig.wrapped(module)
        with wrapper._backend.session() as session:
            for rows in some:
                call(wrapper, rig.random(rows, 64), session=session)
        held.append(session.bytes)
        wrapper.release()
        expect(session.bytes == 0, f"{session.bytes} bytes are held after the release")
    one, many = held
    expect(0 < many < 2 * one, f"16 sizes hold {many} bytes, the largest alone {one}")
    return f"16 sizes {many / 2**10:.0f} KiB, the largest alone {one / 2**10:.0f} KiB: {many / one:.2f}x"


def given_back(rig: Rig) -> str:
    if rig.rehearse:
        return "not on a CPU"
    module = mlp().eval().to(rig.device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    wrapper = rig.wrapped(module)
    for rows in SIZES:
        call(wrapper, rig.random(rows, 32))
    during = torch.cuda.memory_reserved()
    wrapper.release()
    torch.cuda.empty_cache()
    after = torch.cuda.memory_reserved()
    # What cuBLAS keeps for the stream of a capture stays with torch.
    expect(after < during, f"reserved before {before}, with graphs {during}, after the release {after}")
    return f"reserved before {before / 2**20:.0f}, with graphs {during / 2**20:.0f}, after {after / 2**20:.0f} MiB"


def failed_capture(rig: Rig) -> str:
    module = mlp().eval().to(rig.device)
    good, bad = rig.wrapped(module), rig.wrapped(lambda x: x * x.sum().item())
    with good._backend.session() as session:
        call(good, rig.random(8, 32), session=session)
        try:
            call(bad, rig.random(8, 32), session=session)
        except errors.CaptureFailed as problem:
            cause = problem.fields["cause"]
        else:
            raise Failed("a capture with .item() in it went through")
        expect("aten._local_scalar_dense" in cause, f"the operator is not named: {cause}")
        call(good, rig.random(4, 32), session=session)
    for rows in (8, 4):
        given = rig.random(rows, 32)
        close(call(good, given), module(given))
    rig.synchronize()
    return f"refused: {cause[:80]}"


def out_of_memory(rig: Rig) -> str:
    floats = 0 if rig.rehearse else torch.cuda.mem_get_info()[1] // 2
    module, backend = mlp().eval().to(rig.device), rig.backend(out_of_memory_at=1)
    greedy = rig.wrapped(lambda x: x + torch.empty(floats, device=rig.device).sum(), backend=backend)
    try:
        call(greedy, rig.random(8, 32))
    except errors.CaptureFailed as problem:
        expect("out of memory" in problem.fields["cause"], problem.fields["cause"])
    else:
        raise Failed("twice the memory of the device was allocated")
    wrapper, given = rig.wrapped(module), rig.random(8, 32)
    close(call(wrapper, given), module(given))
    return "named, and the next capture works"


def illegal_times(rig: Rig) -> str:
    wrapper = rig.wrapped(mlp().eval().to(rig.device))
    with monitor.cudagraph_capturing(False):
        try:
            call(wrapper, rig.random(8, 32))
        except errors.CapturingDisabled:
            pass
        else:
            raise Failed("a capture went through a closed gate")
    inner = rig.backend()

    def nests(x: torch.Tensor) -> Any:
        with inner.session() as session:
            return session.capture(Job(torch.sin, (x,))).result

    try:
        call(rig.wrapped(nests), rig.random(8, 32))
    except errors.CaptureFailed as problem:
        expect("within another capture" in problem.fields["cause"], problem.fields["cause"])
    else:
        raise Failed("a capture within a capture went through")
    return "closed gate: SW601; nested: SW630"


def own_capture(rig: Rig) -> str:
    """Within a graph that the user captures, the wrapper is its runnable."""
    module = mlp().eval().to(rig.device)
    wrapper, given = rig.wrapped(module), rig.random(8, 32)
    call(wrapper, given)
    if rig.rehearse:
        with FakeBackend().session() as session:
            capture = session.capture(Job(lambda x: call(wrapper, x), (given,)))
        replay, result = capture.replay, capture.result
    else:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call(wrapper, given)
        replay = graph.replay
    before = wrapper.counters.calls_capture
    for _ in range(3):
        given.copy_(rig.random(8, 32))
        replay()
        close(result, module(given))
    expect(wrapper.counters.calls_capture == before, "a graph was replayed within a graph")
    return "runs the runnable"


def addresses(rig: Rig) -> str:
    module = mlp().eval().to(rig.device)
    wrapper, given = rig.wrapped(module, copy_inputs=False), rig.random(8, 32)
    call(wrapper, given)
    given.copy_(rig.random(8, 32))
    close(call(wrapper, given), module(given))
    try:
        call(wrapper, given.clone())
    except errors.InputAddressesDiffer:
        return "another address: SW631"
    raise Failed("an input at another address was not noticed")


def stale_results(rig: Rig) -> str:
    module = mlp().eval().to(rig.device)
    wrapper = rig.wrapped(module, outputs="static")
    given = rig.random(8, 32)
    first = call(wrapper, given)
    close(first, module(given))
    expect(is_current(first), "a result is stale at once")
    call(wrapper, rig.random(8, 32))
    expect(not is_current(first), "an overwritten result counts as current")
    return "noticed"


def weights(rig: Rig) -> str:
    module = mlp().eval().to(rig.device)
    wrapper, given = rig.wrapped(module), rig.random(8, 32)
    call(wrapper, given)
    module[0].weight.mul_(-1.5)
    close(call(wrapper, given), module(given))
    module[0].weight.data = rig.random(128, 32)
    close(call(wrapper, given), module(given))
    expect(wrapper.counters.stale == 1, repr(wrapper.counters))
    return "in place: replayed; moved: the runnable runs"


def threads(rig: Rig) -> str:
    module = mlp().eval().to(rig.device)
    wrapper, wrong = rig.wrapped(module), []
    call(wrapper, rig.random(8, 32))
    rig.synchronize()

    @torch.no_grad()
    def many() -> None:
        try:
            with rig.stream():
                for _ in range(50):
                    given = rig.random(8, 32)
                    close(call(wrapper, given), module(given))
        except Exception as problem:
            wrong.append(problem)

    workers = [threading.Thread(target=many) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(not wrong, f"{wrong[:1]}")
    return "3 threads on streams of their own, 150 calls"


def compiled_module(rig: Rig) -> str:
    """`sizewise.compile` as its users call it; the rehearsal captures with the stand-in."""
    try:
        import pydantic  # noqa: F401
    except ImportError:
        return "left out: pydantic is not installed"
    from sizewise import CompilationConfig, CompiledModule, Dim
    from sizewise.module import Options

    os.environ.setdefault("SIZEWISE_DISABLE_COMPILE_CACHE", "1")
    module = mlp().eval().to(rig.device)
    settings = CompilationConfig(
        backend="eager" if rig.rehearse else "inductor", cudagraph_mode="FULL", cudagraph_capture_sizes=list(SIZES)
    )
    shapes = {"input": {0: Dim("batch", 1, max(SIZES) * 2)}}
    stand_in = (lambda kind, warmups: rig.backend()) if rig.rehearse else None
    fast = CompiledModule(module, Options(shapes, settings, backend_for=stand_in))
    fast.warmup(rig.random(7, 32))
    monitor.set_cudagraph_capturing_enabled(False)
    worst, rows = 0.0, random.sample(range(1, max(SIZES) + 1), max(SIZES))
    for size in rows:
        given = rig.random(size, 32)
        worst = max(worst, close(fast(given), module(given)))
    report = fast.report()
    expect(fast.counters.captures == len(SIZES), f"{report.captures}")
    padded = report.padding["batch"]["verdict"]
    expect(fast.counters.calls_capture == len(rows), f"{fast.counters}; {report.padding}")
    given = rig.random(max(SIZES) * 2, 32)
    close(fast(given), module(given))
    expect(fast.counters.calls_program == 1, f"above the largest capture: {fast.counters}")
    held = report.capture_bytes
    fast.close()
    expect(fast.report().capture_bytes == 0, "memory is held after close()")
    return f"{len(SIZES)} captures, {held / 2**10:.0f} KiB; padding {padded}; {len(rows)} sizes, difference {worst:.1e}"


STEPS: tuple[Callable[[Rig], str], ...] = (
    equal_to_eager,
    pool_memory,
    given_back,
    failed_capture,
    out_of_memory,
    illegal_times,
    own_capture,
    addresses,
    stale_results,
    weights,
    threads,
    compiled_module,
)


# -- the benchmark


def contestants(rig: Rig, model: nn.Module, ids: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Each is compiled and, where it captures, captured here."""
    backend = "eager" if rig.rehearse else "inductor"
    plain = torch.compile(model, backend=backend, dynamic=False)
    overhead = torch.compile(model, backend=backend, dynamic=False, mode="reduce-overhead")
    with torch.no_grad():
        plain(ids)
    wrapper = rig.wrapped(plain)
    made: dict[str, Callable[[], Any]] = {
        "eager": lambda: model(ids),
        "torch.compile": lambda: plain(ids),
        'torch.compile(mode="reduce-overhead")': lambda: overhead(ids),
        "CUDAGraphWrapper over torch.compile": lambda: call(wrapper, ids),
    }
    wanted = model(ids)
    for run in made.values():
        for _ in range(4):
            close(run(), wanted)
    return made


def benchmark(rig: Rig) -> list[tuple[str, str, str]]:
    layers, rounds, calls = (2, 3, 2) if rig.rehearse else (12, 30, 20)
    model = decoder(layers).to(rig.device)
    ids = torch.randint(0, 256, (2, 1), device=rig.device)
    made = contestants(rig, model, ids)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, run in made.items():
            rig.synchronize()
            started = time.perf_counter()
            for _ in range(calls):
                run()
            rig.synchronize()
            seconds[name].append((time.perf_counter() - started) / calls)
    medians = {name: statistics.median(values) * 1e6 for name, values in seconds.items()}
    what = f"{layers} layers, hidden 64, batch 2"
    return [
        (f"{what}: {name}", f"{median:.0f} us", f"{medians['eager'] / median:.2f}x eager mode's speed")
        for name, median in medians.items()
    ]


# -- the table


def machine(rig: Rig) -> list[tuple[str, str, str]]:
    rows = [
        ("date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), ""),
        ("versions", f"torch {torch.__version__}, Python {platform.python_version()}", platform.platform()),
    ]
    if rig.rehearse:
        return [*rows, ("GPU", "none", "rehearsal on the CPU with a stand-in; times mean nothing")]
    props = torch.cuda.get_device_properties(rig.device)
    seen = f"CUDA {torch.version.cuda}, compute {props.major}.{props.minor}, {props.total_memory / 2**30:.0f} GiB"
    return [*rows, ("GPU", props.name, seen)]


def attempt(name: str, work: Callable[[], list[tuple[str, str, str]]]) -> tuple[bool, list[tuple[str, str, str]]]:
    """(passed, rows); what was raised is shown on stderr."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    monitor.set_cudagraph_capturing_enabled(True)
    try:
        with torch.no_grad():
            return True, work()
    except Exception as problem:
        traceback.print_exc()
        words = " ".join(str(problem).split())[:200].replace("|", "/")
        return False, [(name, "FAILED", f"{type(problem).__name__}: {words}")]


def main(arguments: Sequence[str] | None = None, steps: Sequence[Callable[[Rig], str]] = STEPS) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with a stand-in for CUDA graphs")
    rig = Rig(parser.parse_args(arguments).rehearse)
    if not rig.rehearse and not torch.cuda.is_available():
        print("no CUDA device here; `--rehearse` runs the steps on the CPU", file=sys.stderr)
        return 1
    if rig.rehearse:
        torch.set_num_threads(1)
    started = time.perf_counter()
    torch.manual_seed(0)
    random.seed(0)
    rows, passed = machine(rig), True
    for step in steps:
        name = step.__name__.replace("_", " ")
        fine, found = attempt(name, lambda step=step, name=name: [(name, "passed", step(rig))])
        passed, rows = passed and fine, rows + found
    fine, found = attempt("benchmark", lambda: benchmark(rig))
    passed, rows = passed and fine, rows + found
    rows.append(("all", "passed" if passed else "FAILED", f"{time.perf_counter() - started:.0f} s"))
    print("| step | outcome | |\n|---|---|---|")
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
