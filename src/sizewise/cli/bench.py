"""`sizewise bench`: calls whose sizes change, through Sizewise, eager mode and torch.compile.

The JSON answer:

    {"target": str, "torch": str, "threads": int, "seed": int, "calls": int, "cold": bool,
     "dims": {name: {"min": int, "max": int}},
     "peers": {"sizewise" | "eager" | "compile": {
        "first_result_s": float,               warm-up or compilation, and the first answer
        "compilations_in_service": int,        after the first answer
        "worst_ms": float, "median_ms": float, "p95_ms": float,
        "largest_relative_difference": float,  from eager, relative to the RMS of eager's result
        "beyond_rounding": int,                calls whose difference is more than rounding
        "median_vs_compile": float | null,     this median / torch.compile's; null without that peer
        "worst_vs_compile": float | null,
        "failed": str}}}                       '' or why the peer was left out, then the numbers are null
"""

from __future__ import annotations

import copy
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from .blame import cause_of
from .compile import warmed_up
from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code
from .settings import Assignments, Backend, config_from
from .targets import Target, TargetArgument, example_fails, load_target

if TYPE_CHECKING:
    from ..calls import Call
    from ..config.compilation import CompilationConfig
    from ..dims import Dim
    from ..module import CompiledModule

PEERS = ("eager", "compile")


def bench(
    target: TargetArgument,
    calls: Annotated[int, typer.Option("--calls", min=1, help="Calls after the first one.")] = 60,
    seed: Annotated[int, typer.Option("--seed", help="Decides the sizes and the values.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="torch's threads; torch's own choice if absent.")
    ] = None,
    peers: Annotated[
        str, typer.Option("--peers", help="What to compare with: eager, compile, both with a comma.")
    ] = "eager,compile",
    warm_cache: Annotated[
        bool, typer.Option("--warm-cache", help="Let both use Inductor's cache as it is on this machine.")
    ] = False,
    backend: Backend = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Time calls of changing sizes, beside eager mode and torch.compile(dynamic=True).

    Every peer gets the same calls in turn. Each compiler starts with a cache of
    its own that holds nothing of the model; what the first compilation in any
    process costs is paid before.

    Exit code 1: a result differs from eager's by more than rounding.

    \b
    Example:
      sizewise bench app.py:make --calls 20 --threads 1
    """
    import torch

    chosen = _chosen(peers)
    config = config_from(backend, assignments)
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_target(target)
    with users_code():
        measured = measure(loaded, config, chosen, calls, seed, cold=not warm_cache)
    answer = {
        "target": target,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "calls": calls,
        "cold": not warm_cache,
        "dims": {name: {"min": dim.min, "max": dim.max} for name, dim in measured.dims.items()},
        "peers": measured.as_data(),
    }
    if as_json:
        show_json(answer)
    else:
        _show(answer)
    if answer["peers"]["sizewise"]["beyond_rounding"]:
        raise typer.Exit(ANSWER_IS_NO)


def _chosen(peers: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in peers.split(",") if name.strip()))
    for name in names:
        if name not in PEERS:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(PEERS)}; Sizewise itself always takes part",
                param_hint="--peers",
            )
    return names


@dataclass
class Peer:
    """One way to run the model, and what was measured of it."""

    name: str
    run: Callable[..., Any]
    compilations: Callable[[], int] = lambda: 0
    first_result_s: float = math.nan
    in_service: int = 0
    milliseconds: list[float] = field(default_factory=list)
    difference: float = 0.0
    beyond_rounding: int = 0
    failed: str = ""

    def call(self, call: Call) -> tuple[Any, float]:
        """The result for a copy of ``call``, and the seconds it took."""
        import torch

        own = call.with_values({leaf.path: leaf.value.clone() for leaf in call.tensors()})
        args, kwargs = own.args, own.kwargs
        _wait()
        with torch.no_grad():
            started = time.perf_counter()
            result = self.run(*args, **kwargs)
            _wait()
        return result, time.perf_counter() - started

    def serve(self, call: Call) -> Any:
        """One call after the first; None when it fails, which ends the part of any peer but Sizewise."""
        before = self.compilations()
        try:
            result, seconds = self.call(call)
        except Exception as problem:
            if self.name == "sizewise":
                raise
            self.failed = cause_of(problem)
            return None
        self.milliseconds.append(1000 * seconds)
        self.in_service += self.compilations() - before
        return result


@dataclass(frozen=True)
class Measured:
    dims: dict[str, Dim]
    peers: list[Peer]

    def as_data(self) -> dict[str, dict[str, Any]]:
        stock = next((peer for peer in self.peers if peer.name == "compile" and not peer.failed), None)
        return {peer.name: _numbers(peer, stock) for peer in self.peers}


_NUMBERS = (
    "first_result_s",
    "compilations_in_service",
    "worst_ms",
    "median_ms",
    "p95_ms",
    "largest_relative_difference",
    "beyond_rounding",
    "median_vs_compile",
    "worst_vs_compile",
)


def _numbers(peer: Peer, stock: Peer | None) -> dict[str, Any]:
    if peer.failed:
        return {**dict.fromkeys(_NUMBERS), "failed": peer.failed}
    worst, median = max(peer.milliseconds), statistics.median(peer.milliseconds)
    values = (
        peer.first_result_s,
        peer.in_service,
        worst,
        median,
        percentile(peer.milliseconds, 95),
        peer.difference,
        peer.beyond_rounding,
        median / statistics.median(stock.milliseconds) if stock else None,
        worst / max(stock.milliseconds) if stock else None,
    )
    return {**dict(zip(_NUMBERS, values, strict=True)), "failed": ""}


def percentile(values: list[float], percent: int) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def measure(
    target: Target, config: CompilationConfig | None, names: list[str], calls: int, seed: int, cold: bool
) -> Measured:
    """Run the same calls through Sizewise and the named peers, in turn.

    Raises:
        ExampleFails (SW707): eager mode fails on the example or on a size in range.
        What the warm-up raises.
    """
    with ExitStack() as stack:
        if cold:
            stack.enter_context(_fresh_cache())
        ours, fast = _sizewise(target, config)
        if cold:
            # Nothing of Sizewise's is compiled from here on: this is the other compiler's.
            stack.enter_context(_fresh_cache())
        built = fast._sw_generation.built
        example = built.entries[0].program.traced.call
        eager = Peer("eager", target.model)
        peers = [ours, *(eager if name == "eager" else _stock(target) for name in names)]
        for peer in peers[1:]:
            _first(peer, example, target)
        dims = {dim.name: dim for axes in built.spec.values() for dim in axes.values()}
        related = {a.relation for e in built.entries for a in e.program.traced.assumptions if a.relation}
        _serve(target, peers, eager, _random_calls(example, built.spec, dims, related, calls, seed))
    return Measured(dims, peers)


def _serve(target: Target, peers: list[Peer], eager: Peer, calls: Iterator[tuple[str, Call]]) -> None:
    judge = Judge(target.model)
    for turn, (sizes, call) in enumerate(calls):
        start = turn % len(peers)
        # Nobody always runs behind the same neighbour.
        order = peers[start:] + peers[:start]
        results = {peer.name: peer.serve(call) for peer in order if not peer.failed}
        reference = results.get("eager")
        if reference is None:
            reference = _eagers(target, eager, sizes, call)
        for peer in order:
            if not peer.failed and peer is not eager:
                seen = results[peer.name]
                peer.difference = max(peer.difference, relative_difference(reference, seen))
                peer.beyond_rounding += not judge.is_rounding(call, reference, seen)


def _eagers(target: Target, eager: Peer, sizes: str, call: Call) -> Any:
    """Eager's result, where it takes no part or failed: then by name."""
    try:
        return eager.call(call)[0]
    except Exception as problem:
        raise example_fails(target, f"a sample of {sizes}", problem) from problem


class Judge:
    """Whether a result is eager's but for rounding, by the rule of `sizewise.verify.tolerance`."""

    def __init__(self, model: Any) -> None:
        import torch

        from ..verify.tolerance import sum_depth

        self.module = model if isinstance(model, torch.nn.Module) else None
        self.depth = sum_depth(self.module)
        self.wide: Any = None

    def is_rounding(self, call: Call, reference: Any, seen: Any) -> bool:
        from ..verify.tolerance import compare

        difference = compare(reference, seen, self.depth)
        if difference is not None and math.isfinite(difference.relative):
            # How far eager itself is off decides, which costs a run in float64.
            difference = compare(reference, seen, self.depth, exact=self._in_float64(call))
        return difference is None

    def _in_float64(self, call: Call) -> Any:
        """The exact result, or None where the model does not run in float64 and the stricter rule stays."""
        import torch

        if self.module is None:
            return None
        values = {
            leaf.path: leaf.value.double() if leaf.value.is_floating_point() else leaf.value.clone()
            for leaf in call.tensors()
        }
        wide = call.with_values(values)
        try:
            if self.wide is None:
                self.wide = copy.deepcopy(self.module).double()
            with torch.no_grad():
                return self.wide(*wide.args, **wide.kwargs)
        except Exception:
            return None


def relative_difference(reference: Any, seen: Any) -> float:
    """The largest difference over all floating-point tensors, each relative to the RMS of its reference.

    NaN and infinities in the same places count as equal, in other places as infinitely different.
    """
    from ..verify.tolerance import tensors_of

    worst = 0.0
    others = dict(tensors_of(seen))
    for path, first in tensors_of(reference):
        second = others.get(path)
        if not first.is_floating_point() or not first.numel():
            continue
        if second is None or second.shape != first.shape:
            return math.inf
        worst = max(worst, _relative(first.double(), second.double()))
    return worst


def _relative(first: Any, second: Any) -> float:
    finite = first.isfinite()
    if not bool((finite == second.isfinite()).all()):
        return math.inf
    if not bool(finite.any()):
        return 0.0
    rms = float(first[finite].square().mean().sqrt()) or 1.0
    return float((first - second)[finite].abs().max()) / rms


# -- the peers


def _sizewise(target: Target, config: CompilationConfig | None) -> tuple[Peer, CompiledModule]:
    started = time.perf_counter()
    fast = warmed_up(_own_state(target), config)
    counters = fast.counters
    peer = Peer("sizewise", fast, lambda: counters.traces + counters.compilations + counters.captures)
    fast(*target.args, **target.kwargs)
    peer.first_result_s = time.perf_counter() - started
    return peer, fast


def _stock(target: Target) -> Peer:
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    compiled = torch.compile(_own_state(target).model, dynamic=True)
    return Peer("compile", compiled, lambda: int(counters["stats"]["unique_graphs"]))


def _first(peer: Peer, example: Call, target: Target) -> None:
    try:
        _, peer.first_result_s = peer.call(example)
    except Exception as problem:
        if peer.name == "eager":
            raise example_fails(target, "its example inputs", problem) from problem
        peer.failed = cause_of(problem)


def _own_state(target: Target) -> Target:
    """The target with buffers of its own, so that peers do not see each other's state; weights are shared."""
    if not hasattr(target.model, "parameters"):
        return target
    shared = {id(parameter): parameter for parameter in target.model.parameters()}
    model = copy.deepcopy(target.model, shared)
    return Target(target.text, model, target.args, target.kwargs, target.dynamic_shapes)


@contextmanager
def _fresh_cache() -> Iterator[None]:
    """An Inductor cache, on disk and in this process, that holds nothing of any model.

    One tiny function is compiled in it: what the first compilation anywhere costs, whoever's it is
    (imports, a look at the processor, precompiled headers), is no merit of who comes second.

    Private API: ``torch._inductor.utils.fresh_cache``. Checked on torch 2.13.0.
    """
    import torch
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, dynamic=True)(torch.zeros(3))
        yield


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


# -- the calls


def _random_calls(
    example: Call, spec: Any, dims: dict[str, Dim], related: set[tuple[str, str]], count: int, seed: int
) -> Iterator[tuple[str, Call]]:
    """``count`` calls of sizes drawn evenly from each dim's range, with what they are in words."""
    import torch

    from ..verify.samples import sample, sizes_in_words

    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        sizes = {name: draw.randint(dim.min, dim.max) for name, dim in dims.items()}
        for first, second in related:
            # The module takes these two only when they are equal.
            lowest, highest = max(dims[first].min, dims[second].min), min(dims[first].max, dims[second].max)
            sizes[first] = sizes[second] = draw.randint(lowest, highest)
        yield sizes_in_words(sizes), sample(example, spec, sizes, generator)


# -- the answer


def _show(answer: dict[str, Any]) -> None:
    dims = ", ".join(f"{name} {dim['min']} to {dim['max']}" for name, dim in answer["dims"].items())
    cache = "cold caches" if answer["cold"] else "the cache as it was"
    show(
        f"{answer['target']}: {answer['calls']} calls, {dims or 'no size changes'}; "
        f"torch {answer['torch']}, {answer['threads']} threads, {cache}, seed {answer['seed']}"
    )
    columns = (
        "",
        "first result",
        "compilations\nin service",
        "worst call",
        "95 %",
        "median",
        "median vs\ntorch.compile",
        "largest\ndifference",
    )
    show(table(columns, [_row(name, peer) for name, peer in answer["peers"].items()], numbers=True))
    for name, peer in answer["peers"].items():
        if peer["failed"]:
            show(f"{_LABELS[name]} failed: {peer['failed']}")
        elif peer["beyond_rounding"]:
            show(f"{_LABELS[name]}: {peer['beyond_rounding']} results differ from eager's beyond rounding")


_LABELS = {"sizewise": "Sizewise", "eager": "eager", "compile": "torch.compile"}


def _row(name: str, peer: dict[str, Any]) -> list[str | Text]:
    label = Text(_LABELS[name], style="bold" if name == "sizewise" else "")
    if peer["failed"]:
        return [label, "failed", *[""] * 6]
    ratio = peer["median_vs_compile"]
    return [
        label,
        f"{peer['first_result_s']:.2f} s",
        str(peer["compilations_in_service"]),
        f"{peer['worst_ms']:.1f} ms",
        f"{peer['p95_ms']:.2f} ms",
        f"{peer['median_ms']:.2f} ms",
        f"{ratio:.2f} x" if ratio is not None else "-",
        f"{peer['largest_relative_difference']:.1e}",
    ]
