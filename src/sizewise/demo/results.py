"""What a demo measured, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

OWN = "sizewise"
LABELS = {OWN: "Sizewise", "torch.compile": "torch.compile", "eager": "eager"}


@dataclass(frozen=True)
class Call:
    """One request in service: ``t`` is seconds since service began."""

    number: int
    t: float
    batch: int
    seq: int
    ms: float
    compilations: int


@dataclass(frozen=True)
class Nearest:
    query: str
    sentences: list[tuple[str, float]]
    """The nearest sentences with their cosine similarity, best first."""


@dataclass(frozen=True)
class Run:
    """One contestant. A run that failed has a ``failure`` and whatever came before it."""

    name: str
    first_result_s: float | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    latency_ms: dict[str, float] = field(default_factory=dict)
    """Size, as ``(batch,seq)`` -> median."""
    captured_ms: dict[str, float] = field(default_factory=dict)
    """The same with a capture of each of these sizes, for a contestant that has captures."""
    max_abs_error: dict[str, float] = field(default_factory=dict)
    """``embeddings`` and ``hidden_states`` against eager in the same process, over all requests."""
    calls_by_path: dict[str, int] = field(default_factory=dict)
    nearest: list[Nearest] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    """Of the first answer and of each one in service."""
    failure: str = ""

    @property
    def label(self) -> str:
        return LABELS[self.name]

    @property
    def compilations(self) -> int:
        """In service, so after the first answer."""
        return sum(call.compilations for call in self.calls)

    @property
    def stalls(self) -> list[Call]:
        return [call for call in self.calls if call.compilations]

    @property
    def stalled_s(self) -> float:
        """Seconds requests waited in calls that compiled."""
        return sum(call.ms for call in self.stalls) / 1000

    @property
    def worst_call_ms(self) -> float | None:
        return max((call.ms for call in self.calls), default=None)

    @property
    def worst_error(self) -> float | None:
        return max(self.max_abs_error.values(), default=None)


@dataclass(frozen=True)
class Restart:
    """A contestant's process killed, and a fresh one in its place. One that failed has a ``failure``."""

    name: str
    first_answer_s: float | None = None
    """From the module, with its weights, being built."""
    from_process_start_s: float | None = None
    """The same answer, with Python, torch, transformers and the weights loaded."""
    answers: int = 0
    equal: int = 0
    """How many of the answers are those of before, bit for bit."""
    compilations: int = 0
    children: list[str] = field(default_factory=list)
    """Processes that were started since the module was built."""
    imported: list[str] = field(default_factory=list)
    """Modules of Dynamo and Inductor imported since then, and packages of theirs imported before."""
    imported_before: list[str] = field(default_factory=list)
    compilers: list[str] = field(default_factory=list)
    """C++ compilers that the process found."""
    killed_pid: int = 0
    killed_status: int = 0
    """The process that served before, and how it ended: -9 is SIGKILL."""
    bundle_bytes: int = 0
    save_s: float | None = None
    failure: str = ""

    @property
    def label(self) -> str:
        return LABELS[self.name]


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    threads: int
    torch: str
    transformers: str
    python: str
    sizewise: str
    date: str


@dataclass(frozen=True)
class DemoResult:
    requests: int
    seed: int
    machine: Machine
    prepare_s: float
    runs: list[Run]
    restarts: list[Restart] = field(default_factory=list)

    @property
    def own(self) -> Run:
        return self.runs[0]

    @property
    def peers(self) -> list[Run]:
        return self.runs[1:]

    @property
    def shapes(self) -> list[str]:
        return list(self.own.latency_ms)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "max_abs_error": self.own.worst_error,
            "compilations_after_warmup": self.own.compilations,
            "calls_by_path": self.own.calls_by_path,
            "compilations_in_service": {run.name: run.compilations for run in self.runs},
            "first_result_s": {run.name: run.first_result_s for run in self.runs},
            "worst_call_ms": {run.name: run.worst_call_ms for run in self.runs},
            "stalled_s": {run.name: run.stalled_s for run in self.runs},
            "latency_ms": {
                shape: {run.name: run.latency_ms[shape] for run in self.runs if shape in run.latency_ms}
                for shape in self.shapes
            },
            "captured_ms": self.own.captured_ms,
            "error_by_output": {run.name: run.max_abs_error for run in self.runs},
            "warmup_phases_s": self.own.phases_s,
            "machine": asdict(self.machine),
            "machine_preparation_s": self.prepare_s,
            "requests": self.requests,
            "seed": self.seed,
            "nearest": [asdict(nearest) for nearest in self.own.nearest],
            "restarts": {restart.name: asdict(restart) for restart in self.restarts},
            "failures": {run.name: run.failure for run in self.runs if run.failure},
            "calls": {run.name: [asdict(call) for call in run.calls] for run in self.runs},
        }
