"""Runs the contestants, each in a fresh process with an empty compile cache, never two at a time."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from . import machine, restarts
from .children import Child, Event
from .corpus import load_sentences
from .failures import died, failure_of
from .results import OWN, Call, DemoResult, Nearest, Restart, Run
from .traffic import make_traffic

PEERS = ("torch.compile", "eager")
SHAPES = ((1, 8), (1, 32), (4, 16), (16, 32))
REPEATS = 9
EXAMPLE_BATCH = 4
"""Sentences in the first batch, which every contestant answers first: several, of different lengths. A
first batch of one would make torch.compile compile for batch 1 first, and again for all others."""

Listener = Callable[[str, Event], None]
"""Gets the contestant's name and each event of its worker."""


class Runner:
    """`prepare` once, `run` each contestant, then `time_shapes`, then `restart`.

    Leaving the context ends the workers and removes their caches.
    """

    def __init__(self, requests: int, seed: int, listener: Listener) -> None:
        self.requests = requests
        self.seed = seed
        self._listener = listener
        lengths = [sentence.words for sentence in load_sentences()]
        self._traffic = make_traffic(lengths, requests, seed)
        self._example = _spread(lengths, EXAMPLE_BATCH)
        self._prepare_s = 0.0
        self._children: dict[str, Child] = {}
        self._stack = ExitStack()
        scratch = tempfile.TemporaryDirectory(prefix="sizewise-demo-", ignore_cleanup_errors=True)
        self._scratch = Path(self._stack.enter_context(scratch))

    def prepare(self) -> float:
        """What Inductor needs once per machine; the seconds it took. A failure shows again in `run`."""
        started = time.perf_counter()
        job = {"contestant": "machine", "snapshot": str(self._snapshot)}
        with Child(job, self._directory("machine")) as child:
            for event in child.events():
                self._listener("machine", event)
        self._prepare_s = time.perf_counter() - started
        return self._prepare_s

    def run(self, name: str) -> Run:
        """One contestant's figures but for the timings; a peer that fails is a run with a ``failure``.

        Raises:
            SizewiseError: Sizewise itself failed, with the error of its process; UnexpectedProblem
                (SW708) where that process left none of Sizewise's.
        """
        cache = self._directory(name)
        if self._snapshot.exists():
            shutil.copytree(self._snapshot, cache, dirs_exist_ok=True)
        events: list[Event] = []
        child = self._stack.enter_context(Child(self._job(name), cache))
        for event in child.events():
            events.append(event)
            self._listener(name, event)
        run, failure = collect(name, events), failure_of(name, events, child)
        if failure is None:
            self._children[name] = child
        elif name == OWN:
            raise failure
        return replace(run, failure=str(failure or ""))

    def time_shapes(self, runs: list[Run]) -> list[Run]:
        """The runs with their median latency by size.

        The workers take turns, one call each: minutes apart, a busy machine changes more than the
        contestants differ.
        """
        turns = [(name, False) for name in self._children] + [(OWN, True)]
        latency: dict[tuple[str, bool], dict[str, float]] = {turn: {} for turn in turns}
        for batch, seq in SHAPES:
            times: dict[tuple[str, bool], list[float]] = {turn: [] for turn in turns}
            for _ in range(REPEATS):
                for turn in turns:
                    times[turn].append(self._time_once(*turn, batch, seq))
            for turn, found in times.items():
                latency[turn][f"({batch},{seq})"] = median(found)
        return [
            replace(
                run,
                latency_ms=latency.get((run.name, False), {}),
                captured_ms=latency.get((run.name, True), {}),
            )
            for run in runs
        ]

    def _time_once(self, name: str, captured: bool, batch: int, seq: int) -> float:
        child = self._children[name]
        child.order({"time": [batch, seq], "captured": SHAPES if captured else None})
        event = child.next_event()
        if event is None or event["event"] != "timing":
            raise died(name, child)
        self._listener(name, event)
        return float(event["ms"])

    def restart(self, runs: list[Run]) -> list[Restart]:
        """Every worker killed, Sizewise's while it serves; then a fresh process of those that keep what they built.

        Raises:
            SizewiseError: Sizewise itself failed.
        """
        own = restarts.save_and_kill(self._children[OWN], self._scratch / "minilm.sizewise")
        for child in self._children.values():
            child.kill()
        found = []
        for run in runs:
            if run.name == OWN:
                job = {**self._job(OWN), "bundle": str(self._scratch / "minilm.sizewise")}
                empty = self._directory("restarted")
                found.append(restarts.start_again(own, job, empty, run.digests, self._listener, compiler=False))
            elif run.name == "torch.compile" and run.name in self._children:
                # With its own folder, which is warm now, and all compilers in reach.
                job, warm = self._job(run.name), self._scratch / run.name
                found.append(restarts.start_again(Restart(run.name), job, warm, run.digests, self._listener))
        return found

    def result(self, runs: list[Run], restarts: list[Restart]) -> DemoResult:
        return DemoResult(self.requests, self.seed, machine.describe(), self._prepare_s, runs, restarts)

    @property
    def _snapshot(self) -> Path:
        return self._scratch / "snapshot"

    def _directory(self, name: str) -> Path:
        directory = self._scratch / name
        directory.mkdir()
        return directory

    def _job(self, name: str) -> dict[str, Any]:
        return {"contestant": name, "requests": self._traffic, "example": self._example}

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _spread(lengths: list[int], count: int) -> list[int]:
    """Sentences from short to middling length, so that the batch holds real padding."""
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index])
    return [by_length[(step + 1) * len(by_length) // (count + 2)] for step in range(count)]


def collect(name: str, events: list[Event]) -> Run:
    """One contestant's run from its worker's events."""
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        fields = {key: value for key, value in event.items() if key != "event"}
        by_kind.setdefault(event["event"], []).append(fields)

    def last(kind: str, field: str, default: Any) -> Any:
        return by_kind[kind][-1][field] if kind in by_kind else default

    phases: dict[str, float] = {}
    for phase in by_kind.get("phase", []):
        if phase["seconds"]:
            phases[phase["name"]] = phases.get(phase["name"], 0.0) + phase["seconds"]
    return Run(
        name=name,
        first_result_s=last("first", "seconds", None),
        phases_s=phases,
        calls=[Call(**call) for call in by_kind.get("call", [])],
        max_abs_error=last("checked", "max_abs_error", {}),
        calls_by_path=last("paths", "paths", {}),
        nearest=[
            Nearest(row["query"], [(text, score) for text, score in row["sentences"]])
            for row in by_kind.get("nearest", [])
        ],
        digests=last("answers", "digests", []),
    )
