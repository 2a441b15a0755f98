"""What every benchmark shares: interleaved rounds, medians, one table, JSON.

Times are CPU seconds of this process (one torch thread), because the machines are shared; where
coldness is the subject, they are CPU seconds of a fresh child process and its children.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Row:
    """One line of a table: ours against the baseline. ``ratio`` is baseline / ours: above 1 is faster."""

    measure: str
    ours: float
    baseline: float | None
    unit: str
    floor: float | None = None
    aim: float | None = None
    lower_is_better_limit: float | None = None
    """For rows without a baseline: the floor as a value that ``ours`` may not exceed."""

    @property
    def ratio(self) -> float | None:
        return self.baseline / self.ours if self.baseline is not None and self.ours else None

    @property
    def verdict(self) -> str:
        if self.lower_is_better_limit is not None:
            return "met" if self.ours <= self.lower_is_better_limit else "missed"
        if self.floor is None or self.ratio is None:
            return ""
        if self.aim is not None and self.ratio >= self.aim:
            return "aim met"
        return "floor met" if self.ratio >= self.floor else "missed"


@dataclass
class Result:
    """What a benchmark returns."""

    name: str
    title: str
    baseline: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)
    """A second table, of words: its header, and its lines."""

    def table(self) -> str:
        lines = [
            f"## {self.title}",
            "",
            f"| measure | Sizewise | {self.baseline} | ratio | floor | aim | |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            baseline = "" if row.baseline is None else f"{row.baseline:.4g} {row.unit}"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
            floor = f"{row.floor}x" if row.floor is not None else _plain(row.lower_is_better_limit, row.unit)
            aim = f"{row.aim}x" if row.aim is not None else ""
            cells = [row.measure, f"{row.ours:.4g} {row.unit}", baseline, ratio, floor, aim, row.verdict]
            lines.append(f"| {' | '.join(cells)} |")
        for number, cells in enumerate(self.words):
            lines += [] if number else [""]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
            lines += [] if number else [f"|{'---|' * len(cells)}"]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        fields = {key: data[key] for key in ("name", "title", "baseline", "notes")}
        rows = [Row(**{key: row[key] for key in Row.__dataclass_fields__}) for row in data["rows"]]
        return cls(rows=rows, words=data.get("words", []), **fields)

    def as_json(self) -> dict[str, Any]:
        rows = [{**asdict(row), "ratio": row.ratio, "verdict": row.verdict} for row in self.rows]
        return {**asdict(self), "rows": rows, "machine": machine()}


def _plain(limit: float | None, unit: str) -> str:
    return "" if limit is None else f"{limit:g} {unit}"


def machine() -> dict[str, Any]:
    import torch

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "date": datetime.date.today().isoformat(),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


def interleaved(functions: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, float]:
    """Median CPU seconds per call of each function, taken in turns so that noise hits all alike."""
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            started = time.process_time()
            for _ in range(calls):
                function()
            times[name].append((time.process_time() - started) / calls)
    return {name: statistics.median(taken) for name, taken in times.items()}


def fresh(module: str, *arguments: str, cache: str | None = None, programs: str | None = None) -> dict[str, Any]:
    """Run ``python -m module`` in a new process with empty caches, or the given ones; its JSON, and CPU seconds.

    ``cpu_s`` counts the process and everything it started (compilers included).
    """
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": cache or empty,
            "SIZEWISE_CACHE_DIR": programs or empty,
            "HF_HUB_OFFLINE": "1",
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    answer["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return answer


def median_of(answers: Sequence[dict[str, Any]], key: str = "cpu") -> dict[str, Any]:
    """The answer in the middle by ``key``: all its numbers are of one run."""
    return sorted(answers, key=lambda answer: float(answer[key]))[len(answers) // 2]


def taken_in_turns(module: str, contestants: Mapping[str, Sequence[str]], rounds: int) -> dict[str, dict[str, Any]]:
    """The median answer of fresh processes ``python -m module ARGUMENTS`` per contestant, one after the other."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, arguments in contestants.items():
            answers[name].append(fresh(module, *arguments))
    return {name: median_of(given) for name, given in answers.items()}


def pay_machine_costs() -> None:
    """Inductor's probe of the instruction set and its precompiled header: once per cache directory, for all alike."""
    import torch

    torch.compile(lambda x: (x + 1).sum(-1))(torch.randn(64, 64))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@contextmanager
def measured(answer: dict[str, Any]) -> Iterator[None]:
    """Puts ``wall`` and ``cpu`` seconds (children included) of the block into ``answer``."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    yield
    answer |= {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
