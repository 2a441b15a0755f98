"""From one call to programs that may serve: trace, split, compile, join, test. Data flows one way.

Nothing here keeps state; what is built is returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from . import ambient
from .built import Built, Outcome, Target
from .caller import BuiltProgram, build_caller
from .calls import Call
from .compilers import Background, compiler_named
from .config.compilation import CompilationConfig
from .config.resolve import Resolved
from .counters import Counters
from .diagnose import refuse_shared_example
from .dims import Dim, DimSpec, dims_of
from .dispatch import MISS, Entry, make_entry
from .errors import SizewiseError
from .errors import build as errors
from .errors import trace as trace_errors
from .events import Timeline
from .guards import Snapshot, plan_places
from .guards import in_words as guards_in_words
from .integrations import transformers as transformers_integration
from .passes import PASSES, apply_passes
from .piecewise import OnceLog, PiecewiseBackend
from .program import Program, StepName, Variant, load_caller
from .ranges import Range
from .split import Piece, split
from .structure import structural_key
from .trace import TracedGraph, trace_all, twin_of
from .trace.dynamo import release
from .trace.graph import check_compilers_conditions
from .traced import GraphInput, Traced
from .traced.paths import MODULE, module_path
from .verify.layouts import with_layout_checks
from .verify.observe import Observation, observe
from .verify.padding import proved
from .verify.selftest import self_test
from .verify.sharing import excess, sharing
from .verify.state import ModuleState, in_words, own_copy
from .verify.tolerance import tensors_of

ANALYSED = 33
"""The second size, where the dim has it, at which operators are followed for what filling up does to them."""
_REPORT = 'report the module, with CompilationConfig(backend="eager") tried as well.'


class Builder:
    """Builds programs for the calls of one warm-up; distinct pieces are shared between all of them."""

    def __init__(
        self, target: Target, spec: DimSpec, resolved: Resolved, counters: Counters, timeline: Timeline
    ) -> None:
        self.target = target
        self.spec = spec
        self.resolved = resolved
        self.config: CompilationConfig = resolved.config
        self.counters = counters
        self.timeline = timeline
        self.backends: dict[tuple[Any, ...], PiecewiseBackend] = {}
        self.log = OnceLog()
        self.state = ambient.read(target.device_type)
        self._background: Background | None = None
        self._snapshots: dict[int, tuple[Traced, Snapshot]] = {}

    def build(self, calls: list[Call]) -> Built:
        """Programs for each call; the calls have different keys.

        Raises:
            TraceError, BuildError: as the parts raise them.
        """
        built = Built([], self.spec, self.resolved, state=self.state)
        # In this order: leaving inference mode turns gradients on. What is made here has to be usable outside.
        with torch.inference_mode(False), torch.no_grad(), self._compilers():
            for call in calls:
                entries, outcomes = self._build_call(call)
                built.entries += entries
                built.outcomes += outcomes
        return built

    @contextmanager
    def _compilers(self) -> Iterator[None]:
        """C++ compilers may run in the background."""
        self._background = Background()
        if self.config.backend == "inductor":
            self._background.start(self.config.inductor_compile_config)
        try:
            yield
        finally:
            self._background.close()
            self._background = None

    def _build_call(self, call: Call) -> tuple[list[Entry], list[Outcome]]:
        """The programs of one call. Dims the compiler cannot take unbacked are traced again as backed ones."""
        observed: Observation | None = None
        backed: frozenset[str] = frozenset()
        while True:
            try:
                traces = self._trace(call, backed)
            except trace_errors.NotTraceable as problem:
                if observed is not None:
                    raise
                # A model may set itself up at its first forward: run that, then try once more.
                observed = self._observe_or(problem, call)
                continue
            observed = observed or self._observe(call)
            if observed.random:
                operator = "(which one is not known; the generator's state changed)"
                raise trace_errors.RandomOperator(owner=self.target.owner, operator=operator, where="")
            try:
                entries, outcomes = self._build_traces(traces, observed)
                refuse_shared_example(entries[0].program, call)
                return entries, outcomes
            except errors.CompileFailed as problem:
                named = _unbacked_dims_in(problem, traces) - backed
                if not named or str(self.config.dynamic_shapes_config.type) != "auto":
                    raise
                backed |= named

    def _observe(self, call: Call) -> Observation:
        with self.timeline.phase("observe"):
            return observe(self._run_eager, call, self.target.module, self.target.owner)

    def _observe_or(self, problem: Exception, call: Call) -> Observation:
        try:
            return self._observe(call)
        except errors.EagerFails:
            raise problem from problem.__cause__

    def _build_traces(self, traces: list[TracedGraph], observed: Observation) -> tuple[list[Entry], list[Outcome]]:
        entries: list[Entry] = []
        outcomes: list[Outcome] = []
        for traced in traces:
            program = self._program(traced, observed)
            if self.config.self_test:
                outcomes += self._self_test(with_layout_checks(program))
            self._judge_padding(program)
            entries.append(self._entry(program))
            release(traced.graph, traced.context)
        return entries, outcomes

    def _judge_padding(self, program: BuiltProgram) -> None:
        """What can be proved about filling calls up, while the graphs are there; captures use it."""
        if not self.config.self_test or program.effects.written:
            return
        for name, dim in program.traced.dims.items():
            low = min(max(dim.min, 2), dim.max)
            high = min(dim.max, max(ANALYSED, 2 * low))
            if low < high:
                with self.timeline.phase("rows", dim=name):
                    program.padding[name] = proved(program, self.target.module, name, (low, high))

    def _entry(self, program: Program) -> Entry:
        replaced = self.target.original if self.target.method == "forward" else None
        key = id(program.traced)
        if key not in self._snapshots:
            # The traced graph is kept beside it, so that its id stays its own.
            module, traced = self.target.module, program.traced
            plan = plan_places(traced, module, replaced)
            self._snapshots[key] = traced, Snapshot(traced.owner, plan, module, traced.scope, replaced)
        _, snapshot = self._snapshots[key]
        target = self.target
        return make_entry(program, target.module, target.signature, snapshot, target.device_type, self.state)

    def _trace(self, call: Call, backed: frozenset[str]) -> list[TracedGraph]:
        module = self.target.module
        twin = twin_of(module, lambda memo: transformers_integration.adapt(module, memo))
        if self.target.prepare_twin is not None:
            self.target.prepare_twin(twin)
        with self.timeline.phase("trace", call=str(call.shapes())):
            kind = str(self.config.dynamic_shapes_config.type)
            traces = trace_all(twin, call, self.spec, self.target.owner, self.target.method, kind, backed)
        self.counters.add("traces", len(traces))
        return traces

    def _program(self, traced: TracedGraph, observed: Observation) -> BuiltProgram:
        with self.timeline.phase("split"):
            splitting_ops = self.config.splitting_ops or []
            steps = split(traced, splitting_ops, self.resolved.sources["splitting_ops"] == "set")
            apply_passes(steps, PASSES)
        ranges = self._ranges(traced)
        if self._background is not None:
            with self.timeline.phase("machine"):
                self._background.machine()
        keys = [self._key(step, traced, ranges) if isinstance(step, Piece) else step.operator for step in steps]
        names = [StepName(key, isinstance(step, Piece)) for step, key in zip(steps, keys, strict=True)]
        backends = [
            self._backend(step, key, traced, ranges)
            for step, key in zip(steps, keys, strict=True)
            if isinstance(step, Piece)
        ]
        with self.timeline.phase("link"):
            for backend in dict.fromkeys(backends):
                backend.finish()
        size_names = list(traced.dims)
        copied: dict[str, str] = {}
        while True:
            source, scope, weights, arguments = build_caller(traced, steps, self.target.module, size_names, copied)
            program = BuiltProgram(
                traced,
                names,
                weights,
                size_names,
                arguments,
                source,
                effects=observed.effects,
                watched=_looked_at(traced, weights),
                guard_lines=partial(guards_in_words, traced.guards),
                steps=steps,
                backends=backends,
                scope=scope,
            )
            program.variants = [self._variant(program, interval) for interval in ranges]
            wanted = self._copies(program, observed)
            if wanted.keys() <= copied.keys():
                return program
            copied = wanted | copied

    def _copies(self, program: Program, observed: Observation) -> dict[str, str]:
        """The results to hand out as copies: those that share memory where eager's do not, because a compiler left
        out a copy that seemed to do nothing, and those that are not contiguous where eager's are."""
        example = program.traced.call
        call = example.with_values({leaf.path: own_copy(leaf.value) for leaf in example.tensors()})
        state = ModuleState(self.target.module, observed.effects.written_parameters)
        try:
            result = self._entry(program).call(*call.args, **call.kwargs)
            shared = excess(observed.sharing, sharing(result, call, self.target.module))
            scattered = {path for path, tensor in tensors_of(result) if not tensor.is_contiguous()}
        except Exception as problem:
            if self.config.self_test:
                return {}  # the self-test says what is wrong, and at which size
            if isinstance(problem, SizewiseError):
                raise  # every call would be refused as well
            raise errors.ProgramFails(
                owner=self.target.owner, sizes="the example's sizes", cause=in_words(problem), hint=_REPORT
            ) from problem
        finally:
            state.restore()
        return dict.fromkeys(scattered & observed.contiguous, "contiguous") | dict.fromkeys(shared, "clone")

    def _ranges(self, traced: TracedGraph) -> list[Range]:
        """The ranges and exact sizes of the first dim; without dims, one range for everything."""
        first = next(iter(traced.dims.values()), None)
        if first is None:
            return [Range(1, 1)]
        # Endpoints lie in the declared range; a trace may cover a part of it (size 1 apart).
        whole = dims_of(self.spec).get(first.name, first)
        intervals = [
            Range(max(start, first.min), min(end, first.max))
            for start, end in self.config.compile_ranges(whole.max, whole.min)
            if start <= first.max and end >= first.min
        ]
        sizes = [Range(n, n) for n in self.config.compile_sizes or [] if isinstance(n, int) and n in first]
        return [*sizes, *(interval for interval in intervals if interval not in sizes)]

    def _key(self, piece: Piece, traced: TracedGraph, ranges: list[Range]) -> str:
        """What has to be equal for two pieces to be compiled as one, beside the ranges."""
        # With several ranges it matters which symbol they are about; with one, only the structure does.
        about = f" by {self._first_symbol(traced)}" if len(ranges) > 1 else ""
        return structural_key(piece.graph, traced.symbols) + about

    def _backend(self, piece: Piece, piece_key: str, traced: TracedGraph, ranges: list[Range]) -> PiecewiseBackend:
        """The compiled piece, from an equal one where there is one."""
        key = (piece_key, tuple(ranges))
        found = self.backends.get(key)
        if found is not None:
            return found
        exact = [interval.start for interval in ranges if interval.is_single_size()]
        backend = PiecewiseBackend(
            piece.graph,
            compile_sizes=exact,
            compile_ranges=[interval for interval in ranges if not interval.is_single_size()],
            config=self.config,
            sym_shape_indices=piece.sym_shape_indices,
            compiler=compiler_named(self.config.backend, self._background),
            symbol=self._first_symbol(traced),
            name=str(piece.index),
            log=self.log,
        )
        for interval in ranges:
            with self.timeline.phase("compile", piece=piece.index, sizes=str(interval)):
                backend.compile_range(interval, finish=False)
            self.counters.add("compilations")
            check_compilers_conditions(traced, _dims_in(traced, interval))
        self.backends[key] = backend
        return backend

    def _first_symbol(self, traced: TracedGraph) -> Any:
        """The symbol of the first declared dim: ranges and sizes are about it."""
        first = next(iter(traced.dims), None)
        return next((symbol for symbol, name in traced.symbols.names.items() if name == first), None)

    def _variant(self, program: BuiltProgram, interval: Range) -> Variant:
        pieces = [backend.range_entries[interval].runnable for backend in program.backends]
        label = f"{self.target.owner} {interval}"
        return Variant(interval, load_caller(program.source, program.scope, pieces, label))

    def _run_eager(self, call: Call) -> Any:
        return self.target.original(*call.args, **call.kwargs)

    def _self_test(self, program: BuiltProgram) -> list[Outcome]:
        entry = self._entry(program)

        def run_program(call: Call) -> Any:
            result = entry.call(*call.args, **call.kwargs)
            if result is MISS:
                raise errors.NotEqualToEager(
                    owner=self.target.owner,
                    sizes=str(call.shapes()),
                    path="the call",
                    difference="the entry check refuses a size in range",
                    hint="",
                )
            return result

        with self.timeline.phase("self_test"):
            written = program.effects.written_parameters
            ranges = [variant.sizes for variant in program.variants]
            return self_test(self.target.module, program.traced, self._run_eager, run_program, written, ranges)


def _looked_at(traced: Traced, weights: Sequence[GraphInput]) -> list[GraphInput]:
    """The module's tensors that the trace asked for dtype, shape or strides, but that the graph does not read."""
    read = {item.path for item in weights}
    found: dict[str, GraphInput] = {}
    for guard in traced.guards:
        path = guard.path
        if guard.kind != "TENSOR_MATCH" or path is None or path.root != MODULE:
            continue
        name = module_path(path.steps)
        if name not in read and all(kind in ("attr", "item") for kind, _ in path.steps):
            found[name] = GraphInput("attribute", name, name, path.steps)
    return list(found.values())


def _dims_in(traced: TracedGraph, interval: Range) -> dict[str, Dim]:
    """The dims of a trace, the first one narrowed to the range that is compiled."""
    dims = dict(traced.dims)
    first = next(iter(dims), None)
    if first is not None:
        dims[first] = Dim(first, interval.start, interval.end)
    return dims


def _unbacked_dims_in(problem: Exception, traces: list[TracedGraph]) -> frozenset[str]:
    """The dims whose unbacked symbols a compiler's error names as sizes it had to know."""
    text = str(problem.__cause__ or problem)
    if "data-dependent" not in text:
        return frozenset()
    names = {str(symbol): name for traced in traces for symbol, name in traced.symbols.names.items()}
    return frozenset(names[word] for word in re.findall(r"\bu\d+\b", text) if word in names)
