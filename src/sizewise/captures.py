"""The captures of one warm-up: every size that is wanted, each compared with the program; then padding."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from .built import Built, Target
from .calls import Call
from .config.captures import is_decode
from .config.modes import CUDAGraphMode
from .counters import Counters
from .dispatch import Entry
from .errors import call as call_errors
from .errors import capture as errors
from .events import Timeline, logger
from .graphs.backend import CannotCapture, Capture, GraphBackend, Job, Session
from .graphs.bucket import MISSED, Bucket, Form, refuse_views_of_inputs
from .graphs.buckets import Buckets, LazyBuckets, NotNow
from .graphs.piecewise import PieceSessions, PiecewiseCapture
from .graphs.turns import Turns
from .graphs.window import inside_capture
from .monitor import cudagraph_capturing_enabled
from .program import Padding
from .traced import Traced
from .verify.padding import tested
from .verify.samples import in_range, sizes_in_words
from .verify.state import ModuleState, NoState
from .verify.tolerance import compare, sum_depth
from .verify.values import Values
from .verify.worth import measure
from .wanted import Wanted, wanted

__all__ = ["CaptureOutcome", "Captures", "Wanted", "capture", "wanted"]


@dataclass(frozen=True)
class CaptureOutcome:
    """One size that was wanted: ``captured``; or, and why, ``padded`` (a larger capture serves it) or ``program``."""

    sizes: Mapping[str, int]
    outcome: str
    why: str = ""
    bytes: int = 0
    live: tuple[str, ...] = ()
    mode: str = ""
    """How it was, or was to be, captured: FULL or PIECEWISE; NONE where the mode captures no such sizes."""
    pieces: int = 0
    """How many captures one replay of a PIECEWISE one is of."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Captures:
    """What came of it: for each program what serves its sizes (None: nothing was captured)."""

    buckets: Sequence[Buckets | None]
    outcomes: Sequence[CaptureOutcome] = ()
    padding: Mapping[str, Padding] = field(default_factory=dict)
    sessions: Sequence[Session | PieceSessions] = ()
    retire: Sequence[Callable[[], None]] = ()
    """What gives up the captures of each program."""

    @property
    def bytes(self) -> int:
        """Of memory that all of them hold now."""
        return sum(session.bytes for session in self.sessions)

    def release(self) -> None:
        """Give all up, each session's when the call that replays in it, if any, is through. Programs serve then."""
        for retire in self.retire:
            retire()


def capture(
    target: Target, built: Built, asked: Wanted, backend: GraphBackend, counters: Counters, timeline: Timeline
) -> Captures:
    """Capture what is ``asked`` for every program of ``built``. The module's state is put back.

    Whatever is raised, what was captured before it is given up.

    Raises:
        CaptureRefused (SW621): a listed size cannot be captured, and ``partial`` does not allow that.
        CapturingDisabled (SW601): the gate is closed.
    """
    began = time.perf_counter()
    outcomes: list[CaptureOutcome] = []
    made: list[_Capturing] = []
    try:
        with timeline.phase("capture"):
            for entry in built.entries:
                one = _Capturing(target, entry, _values(entry, built), asked, backend, counters, timeline, outcomes)
                made.append(one)
                one.run()
    except BaseException:
        for one in made:
            one.retire()
        raise
    padding = {name: verdict for one in made for name, verdict in one.padding.items()}
    sessions = [held for one in made if one.session is not None for held in (one.session, one.pieces)]
    captures = Captures([one.found for one in made], outcomes, padding, sessions, [one.retire for one in made])
    captured = sum(outcome.outcome == "captured" for outcome in outcomes)
    seconds = time.perf_counter() - began
    if captured:
        logger.info(
            "Graph capturing finished in %.2f secs, took %.2f MiB (%d captures)",
            seconds,
            captures.bytes / 2**20,
            captured,
        )
    return captures


def _values(entry: Entry, built: Built) -> Call | None:
    """The example of an entry's program, with its values; None where it was loaded without one."""
    key = entry.program.traced.call.key()
    return next((call for call in built.examples if call.key() == key), None)


class _Capturing:
    """The captures of one program."""

    def __init__(
        self,
        target: Target,
        entry: Entry,
        example: Call | None,
        wanted: Wanted,
        backend: GraphBackend,
        counters: Counters,
        timeline: Timeline,
        outcomes: list[CaptureOutcome],
    ) -> None:
        """``outcomes`` is added to, also by captures that are made later."""
        self.target, self.entry, self.example, self.wanted = target, entry, example, wanted
        self.backend, self.counters, self.timeline = backend, counters, timeline
        self.program = entry.program
        self.traced: Traced = entry.program.traced
        self.outcomes = outcomes
        self.padding: dict[str, Padding] = {}
        self.chosen = False
        self.session: Session | None = None
        self.turns = Turns()
        self.found: Buckets | None = None
        self.form = _form(entry, wanted.pads)
        # The captures' own names of the module's tensors: what is assigned to `.data` later is not seen through them.
        self.weights = [tensor.detach() for tensor in entry.weights.fetch()]
        self.pieces = PieceSessions(backend)
        self.values = Values(self.program, self.example, self.weights)

    def run(self) -> None:
        """Afterwards ``found`` is what serves the program's sizes; None where nothing was captured."""
        with torch.inference_mode(False), torch.no_grad(), self.backend.session() as session, self.pieces.window():
            self.session, self.turns = session, Turns(session)
            self.found = self._buckets(session)
        if self.found is None:
            session.release()
            self.pieces.release()

    def retire(self) -> None:
        """Give up what was captured, when the call that replays, if any, is through."""
        self.turns.retire(self._free)

    def _free(self) -> None:
        if self.found is not None:
            self.found.drop()
        if self.session is not None:
            self.session.release()
        self.pieces.release()

    def _buckets(self, session: Session) -> Buckets | None:
        sizes = [each for each in self.wanted.sizes if _is_about(self.traced, each) and self._is_captured(each)]
        sizes.sort(key=lambda each: math.prod(each.values()), reverse=True)
        why = self._unfit()
        effects, module = self.program.effects, self.target.module
        state = ModuleState(module, effects.written_parameters) if effects.writes_module else NoState(module)
        if self.wanted.lazy and not effects.writes_module and not why:
            return self._lazy(session, sizes, state)
        buckets: list[Bucket] = []
        first = len(self.outcomes)
        try:
            if not why and self._may_choose(sizes):
                sizes, buckets = self._choose(session, sizes, state)
            for each in sizes:
                bucket = None if why else self._capture(session, each, state)
                if bucket is not None:
                    buckets.append(bucket)
                elif why:
                    self._without(each, why)
            if not buckets and not self.wanted.strict:
                return None
            self._judge(buckets, state)
        finally:
            state.restore()
        padded = frozenset(name for name, verdict in self.padding.items() if verdict.safe)
        refuse = self._refusal if self.wanted.strict else None
        count, least = self.counters.adder("calls_capture"), self.program.worth if self.chosen else None
        found = Buckets(self.program.size_names, buckets, padded, count, refuse, least, self.wanted.decode)
        self._say_padded(found, first)
        return found

    def _say_padded(self, found: Buckets, first: int) -> None:
        """Sizes without a capture of their own that another one serves; ``first`` is this program's first outcome."""
        for index, outcome in enumerate(self.outcomes[first:], first):
            holding = None if outcome.outcome == "captured" else found.holding(outcome.sizes)
            if holding is not None:
                why = f"{outcome.why}; its calls are filled up to {sizes_in_words(holding.sizes)}"
                self.outcomes[index] = replace(outcome, outcome="padded", why=why)

    def _may_choose(self, sizes: Sequence[Mapping[str, int]]) -> bool:
        """Whether sizes that are not worth it may be left out."""
        wanted, effects = self.wanted, self.program.effects
        free = not (wanted.listed or wanted.strict or wanted.decode or effects.writes_module)
        return free and self.example is not None and len(self.program.size_names) == 1 and len(sizes) > 1

    def _choose(
        self, session: Session, sizes: Sequence[Mapping[str, int]], state: ModuleState
    ) -> tuple[list[Mapping[str, int]], list[Bucket]]:
        """The sizes worth capturing beside the smallest, which is captured first to see what a replay saves."""
        (dim,) = self.program.size_names
        *others, smallest = sizes
        bucket = self._capture(session, smallest, state)
        if bucket is None:
            return others, []
        with self.timeline.phase("worth"):
            serve = bucket.function(smallest)
            ascending = [each[dim] for each in reversed(sizes)]
            try:
                values = self.values.fresh(smallest, state).arguments
                at = partial(self._at, state=state)
                found = measure(ascending, smallest[dim], lambda: serve(self.weights, *values), at)
            except Exception:
                # Some size takes no values that are known: which sizes are worth it is not, and each is tried.
                return others, [bucket]
        self.chosen = True
        self.program.worth = dict(found.least) or {0: 0}  # no size is 0: a bundle has to know that none was worth it
        if smallest[dim] in found.without:
            self.outcomes.pop()
            bucket.capture.release()
        for size, too_little in found.without.items():
            self._without({dim: size}, too_little)
        return [each for each in others if each[dim] in found.least], [bucket] if found.least else []

    def _at(self, size: int, state: ModuleState) -> Callable[[], Any]:
        """The program on fresh values of that size of its one dim."""
        sizes = {self.program.size_names[0]: size}
        arguments = self.values.fresh(sizes, state).arguments
        variant = self.program.variant_for(size)
        return lambda: variant.call(list(self.weights), size, *arguments)

    def _is_captured(self, sizes: Mapping[str, int]) -> bool:
        """Whether the mode captures such batches; else that is the outcome."""
        if self.wanted.mode_at(sizes) is not CUDAGraphMode.NONE:
            return True
        why = f"{self.wanted.mode.name} captures decode batches only"
        self.outcomes.append(CaptureOutcome(sizes, "program", why, mode="NONE"))
        return False

    def _lazy(self, session: Session, sizes: Sequence[Mapping[str, int]], state: ModuleState) -> Buckets:
        """What captures a size when a call first needs it."""
        self._judge([], state)
        padded = frozenset(name for name, verdict in self.padding.items() if verdict.safe)
        count = self.counters.adder("calls_capture")
        worth = {} if self.wanted.decode else self.program.worth
        if worth and not self.wanted.listed and len(self.program.size_names) == 1:
            (dim,) = self.program.size_names
            sizes = [each for each in sizes if each[dim] in worth]

        def capture_now(point: Mapping[str, int]) -> Bucket | None:
            if not cudagraph_capturing_enabled or inside_capture() or self.turns.retired:
                raise NotNow
            with torch.inference_mode(False), torch.no_grad(), self.pieces.window():
                return self._capture(session, point, state)

        return LazyBuckets(self.program.size_names, sizes, padded, count, capture_now, worth, self.wanted.decode)

    def _refusal(self, sizes: Mapping[str, int]) -> Callable[..., Any]:
        """What raises in the place of a replay."""
        captured = "; ".join(sizes_in_words(each.sizes) for each in self.outcomes if each.outcome == "captured")
        exact = [
            f"{name} is not filled up: {verdict.why}" for name, verdict in self.padding.items() if not verdict.safe
        ]
        seen = f"captured are {captured or 'no sizes'}{'; ' if exact else ''}{'; '.join(exact)}"

        def refuse(*_: Any) -> Any:
            raise call_errors.NotCaptured(owner=self.traced.owner, sizes=sizes_in_words(sizes), captured=seen)

        return refuse

    def _unfit(self) -> str:
        """Why no size of this program is captured, or ''."""
        written = sorted(self.program.effects.written)
        return f"it writes to its argument {written[0]}" if written else ""

    def _capture(self, session: Session, sizes: Mapping[str, int], state: ModuleState) -> Bucket | None:
        began, captured = time.perf_counter(), None
        try:
            with self.timeline.phase("capture.size", sizes=dict(sizes)):
                captured, job = self._recorded(session, sizes, state)
                refuse_views_of_inputs(captured, job.inputs)
                bucket = Bucket(captured, self.form, sizes, self.weights, self.turns, self.wanted.static)
                state.restore()
                problem = self._differs(bucket, sizes, state)
        except CannotCapture as reason:
            problem = str(reason)
        except Exception as reason:
            problem = f"{type(reason).__name__}: {next(iter(str(reason).splitlines()), '')}"
        if problem or captured is None:
            if captured is not None:
                captured.release()
            self._without(sizes, problem)
            return None
        self.counters.add("captures")
        self._with(sizes, captured, time.perf_counter() - began)
        return bucket

    def _recorded(self, session: Session, sizes: Mapping[str, int], state: ModuleState) -> tuple[Capture, Job]:
        """A capture made with the first values that the program takes.

        Raises CannotCapture, and what the program raises for the last values that are tried.
        """
        problem: Exception = CannotCapture("there are no values to try it with")
        for arguments in self.values.tame(sizes):
            job = Job(
                self.program.variant_for(next(iter(sizes.values()), None)).call,
                tuple(arguments),
                (self.weights, *(sizes[name] for name in self.program.size_names)),
                tuple(self.weights),
                label=f"{self.traced.owner} {sizes_in_words(sizes)}",
            )
            try:
                return self._captured(session, job, sizes), job
            except CannotCapture:
                raise
            except Exception as reason:
                # Values at another size than the example's are guesses, which an operator may not like.
                problem = reason
                state.restore()
        raise problem

    def _captured(self, session: Session, job: Job, sizes: Mapping[str, int]) -> Capture:
        """Raises CannotCapture."""
        if self.wanted.mode_at(sizes) is CUDAGraphMode.FULL:
            return session.capture(job)
        # Pieces replay when they are captured, and another thread may be in a replay.
        while not self.turns.acquire(False):
            if self.turns.retired:
                raise CannotCapture("the captures were given up meanwhile")
            time.sleep(0.001)
        try:
            return self.pieces.capture(job, self.program.source, self.traced.template)
        finally:
            self.turns.release()
            if self.turns.ending:
                self.turns.finish()

    def _with(self, sizes: Mapping[str, int], captured: Capture, seconds: float) -> None:
        mode, why = self.wanted.mode_at(sizes), ""
        pieces = captured.pieces if isinstance(captured, PiecewiseCapture) else 0
        if pieces == 1 and not any(not step.is_piece for step in self.program.step_names):
            why = "nothing splits the program: its one piece is all of it, as with FULL"
        outcome = CaptureOutcome(sizes, "captured", why, captured.bytes, captured.live, mode.name, pieces, seconds)
        self.outcomes.append(outcome)

    def _differs(self, bucket: Bucket, sizes: Mapping[str, int], state: ModuleState) -> str:
        """Where a replay gives something else than the program on fresh values, in words."""
        run = self.values.fresh(sizes, state)
        serve = bucket.function(sizes)
        seen = serve(list(self.weights), *run.arguments)
        while seen is MISSED:  # a call of another thread replays, if sizes are captured during service
            if self.turns.retired:
                raise CannotCapture("the captures were given up meanwhile")
            time.sleep(0.001)
            seen = serve(list(self.weights), *run.arguments)
        depth = sum_depth(self.target.module)
        found = compare(run.result, seen, depth) or compare(run.after, state.current(), depth, path="tensors")
        state.restore()
        return "" if found is None else f"its replay is not equal to the program: {found.path} {found.what}"

    def _without(self, sizes: Mapping[str, int], why: str) -> None:
        if self.wanted.listed and not self.wanted.partial:
            raise errors.CaptureRefused(owner=self.traced.owner, sizes=sizes_in_words(sizes), why=why)
        self.outcomes.append(CaptureOutcome(sizes, "program", why, mode=self.wanted.mode_at(sizes).name))

    def _judge(self, buckets: Sequence[Bucket], state: ModuleState) -> None:
        """Which dims may be filled up to the next captured size."""
        for name in self.program.size_names:
            with self.timeline.phase("padding", dim=name):
                found = self.padding[name] = self._verdict(name, buckets, state)
                if found.verdict == "tested" and self.wanted.pads:
                    found = Padding("refused", "it was tried with pads of its own, which are not kept with a program")
                self.program.padding[name] = found
                if found.verdict == "tested" and self.wanted.proof:
                    self.padding[name] = Padding("refused", "require_proof is set, and it is tested only")

    def _verdict(self, name: str, buckets: Sequence[Bucket], state: ModuleState) -> Padding:
        if self.example is None:
            # From a bundle: what was known where it was saved holds here as well, which its manifest was checked for.
            return self.program.padding.get(name, Padding("refused", "there is no example to try it with"))
        # Decode batches and others are captured in ways of their own.
        kinds: list[Sequence[Bucket]] = [
            [bucket for bucket in buckets if self._is_decode(bucket) is kind] for kind in (True, False)
        ]
        low = self.traced.dims[name].min
        tried = [kind for kind in kinds if any(bucket.sizes[name] > low for bucket in kind)] or [buckets]
        found = [tested(self.entry, self.example, name, kind, self.weights, state) for kind in tried]
        return next((verdict for verdict in found if not verdict.safe), found[0])

    def _is_decode(self, bucket: Bucket) -> bool:
        return is_decode(self.wanted.decode, bucket.sizes)


def _form(entry: Entry, pads: Mapping[str, Any]) -> Form:
    traced = entry.program.traced
    return Form(
        traced.template,
        tuple(entry.program.arguments),
        {path: {axis: dim.name for axis, dim in axes.items()} for path, axes in traced.spec.items()},
        tuple(item.path for item in entry.program.weight_inputs),
        {leaf.path: pads[leaf.path] for leaf in traced.call.tensors() if leaf.path in pads},
    )


def _is_about(traced: Traced, sizes: Mapping[str, int]) -> bool:
    """Whether a program serves these sizes."""
    return set(sizes) == set(traced.dims) and in_range(traced, sizes)
