"""The same calls through several ways of running a model, measured beside each other."""

from __future__ import annotations

import copy
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.utils import counters as dynamo_counters
from torch._inductor.utils import fresh_cache

from ..calls import Call
from ..config.compilation import CompilationConfig
from ..dims import Dim, DimSpec
from ..module import CompiledModule
from ..verify.exact import ExactReference
from ..verify.samples import sample, sizes_in_words
from ..verify.tolerance import compare, sum_depth, tensors_of
from .blame import cause_of
from .compile import warmed_up
from .targets import Target, example_fails


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
        per_call_ratio(peer.milliseconds, stock.milliseconds) if stock else None,
        worst / max(stock.milliseconds) if stock else None,
    )
    return {**dict(zip(_NUMBERS, values, strict=True)), "failed": ""}


def per_call_ratio(times: list[float], others: list[float]) -> float:
    """The median over calls of one time / the other for the same call.

    Not the ratio of medians: with sizes this different, two slow calls move a median to another size.
    """
    return statistics.median(first / second for first, second in zip(times, others, strict=True))


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
        built: Any = fast.built
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
        self.module = model if isinstance(model, torch.nn.Module) else None
        self.depth = sum_depth(self.module)
        self.exact = ExactReference(self.module)

    def is_rounding(self, call: Call, reference: Any, seen: Any) -> bool:
        difference = compare(reference, seen, self.depth)
        if difference is not None and math.isfinite(difference.relative):
            # How far eager itself is off decides, which costs a run in float64.
            difference = compare(reference, seen, self.depth, exact=self.exact(call))
        return difference is None


def relative_difference(reference: Any, seen: Any) -> float:
    """The largest difference over all floating-point tensors, each relative to the RMS of its reference.

    NaN and infinities in the same places count as equal, in other places as infinitely different.
    """
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
    own = _own_state(target)
    started = time.perf_counter()
    fast = warmed_up(own, config)
    counters = fast.counters
    peer = Peer("sizewise", fast, lambda: counters.traces + counters.compilations + counters.captures)
    fast(*target.args, **target.kwargs)
    peer.first_result_s = time.perf_counter() - started
    return peer, fast


def _stock(target: Target) -> Peer:
    torch._dynamo.reset()
    compiled = torch.compile(_own_state(target).model, dynamic=True)
    return Peer("compile", compiled, lambda: int(dynamo_counters["stats"]["unique_graphs"]))


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
    with fresh_cache():
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, dynamic=True)(torch.zeros(3))
        yield


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


# -- the calls


def _random_calls(
    example: Call, spec: DimSpec, dims: dict[str, Dim], related: set[tuple[str, str]], count: int, seed: int
) -> Iterator[tuple[str, Call]]:
    """``count`` calls of sizes drawn evenly from each dim's range, with what they are in words."""
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        sizes = {name: draw.randint(dim.min, dim.max) for name, dim in dims.items()}
        for first, second in related:
            # The module takes these two only when they are equal.
            lowest, highest = max(dims[first].min, dims[second].min), min(dims[first].max, dims[second].max)
            sizes[first] = sizes[second] = draw.randint(lowest, highest)
        yield sizes_in_words(sizes), sample(example, spec, sizes, generator)
