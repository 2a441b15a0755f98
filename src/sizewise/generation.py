"""What serves calls: made by a warm-up, immutable, and swapped as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from .built import Built
from .counters import Counters
from .dispatch import MISS, Entry
from .errors import state as errors
from .events import Event, Timeline
from .monitor import profiling_run

if TYPE_CHECKING:
    from .captures import Captures


@dataclass(frozen=True)
class Generation:
    """What serves calls. Immutable: a call reads the one reference to it once."""

    built: Built
    calls: tuple[Callable[..., Any], ...]
    captures: Captures | None = None

    def refuse_stale(self) -> None:
        """Raises Stale (SW503) where the module is no longer what every program was built for."""
        for entry in self.built.entries:
            entry.check_module()
            entry.weights.fetch()

    def is_stale(self) -> bool:
        """Whether the module is no longer what every program was built for."""
        try:
            self.refuse_stale()
        except errors.Stale:
            return True
        return False

    def release(self) -> None:
        """Give its captures up; a call that still has it runs its programs."""
        if self.captures is not None:
            self.captures.release()


def make_generation(
    built: Built, captures: Captures | None, module: nn.Module, counters: Counters, timeline: Timeline
) -> Generation:
    """``built`` and ``captures`` in service, after one call of each kind, which are not counted as calls.

    Raises CompiledInProfilingRun (SW635), and what these calls raise; the captures are given up then.
    """
    buckets: Sequence[Any] = captures.buckets if captures is not None else [None] * len(built.entries)
    count = counters.adder("calls_program")
    try:
        serving = [entry.serving(found, count) for entry, found in zip(built.entries, buckets, strict=True)]
        if built.examples:
            trial = [
                entry.serving(found.uncounted() if found is not None else None, int)
                for entry, found in zip(built.entries, buckets, strict=True)
            ]
            with profiling_run(counters), timeline.phase("profiling"):
                _call_once(built, trial, module)
    except BaseException:
        if captures is not None:
            captures.release()
        raise
    return Generation(built, tuple(entry.call for entry in serving), captures)


def _call_once(built: Built, entries: Sequence[Entry], module: nn.Module) -> None:
    """One call of each example, as in service. What it writes is put back."""
    from .verify.state import ModuleState, NoState

    for example in built.examples:
        entry = next((each for each in entries if each.program.traced.call.key() == example.key()), None)
        if entry is None:
            continue
        effects, call = entry.program.effects, example
        state = ModuleState(module, effects.written_parameters) if effects.writes_module else NoState(module)
        if effects.written:
            call = example.with_values({leaf.path: leaf.value.clone() for leaf in example.tensors()})
        try:
            for each in entries:
                if each.call(*call.args, **call.kwargs) is not MISS:
                    break
        finally:
            state.restore()


PHASES = {
    "load": "load",
    "trace": "trace",
    "compile": "compile",
    "self_test": "self-test",
    "capture": "capture",
}
"""The phases that the line at the end of a warm-up names."""


def ready_line(owner: str, events: Sequence[Event], captures: Captures | None) -> str:
    """What a warm-up took and what came of it; ``events`` are its own."""
    seconds: dict[str, float] = {}
    for event in events:
        if event.name in PHASES:
            seconds[event.name] = seconds.get(event.name, 0.0) + event.seconds
    parts = [f"{PHASES[name]} {seconds[name]:.1f} s" for name in PHASES if name in seconds]
    if captures is not None and "capture" in seconds:
        done = sum(each.outcome == "captured" for each in captures.outcomes)
        held = captures.bytes
        memory = f"{held / 2**20:.1f} MiB" if held >= 2**20 else f"{held / 2**10:.1f} KiB"
        parts[-1] += f" ({done} capture{'' if done == 1 else 's'}, {memory})"
    line = f"sizewise: {owner} is ready: {', '.join(parts) or 'from the cache'}"
    padding = captures.padding if captures is not None else {}
    if padding:
        line += f"; padding: {', '.join(f'{name} {verdict.verdict}' for name, verdict in padding.items())}"
    return line
