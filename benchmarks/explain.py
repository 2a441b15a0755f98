"""Explaining pasted errors: right answers, wrong answers, rightful silence, and what indexing and a process cost.

Indexes the installed torch, and vLLM's sources where they are installed or where VLLM_SOURCES names their folder (the
unpacked wheel is enough, nothing of it is imported); cases of packages that are not there are left out. An answer is
right where one of the record's sites has the expected file and function, where the expectation names no function and
the file agrees, where the message is the record's template with at least 20 letters of it, or where the error is known
to have moved to that place since the version of the report.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sizewise.reference.explain import Answer, Match, explain
from sizewise.reference.explain.evidence import ENOUGH, variants
from sizewise.reference.explain.paste import read
from sizewise.reference.explain.wording import fit
from sizewise.reference.store import Store

from .harness import Result, Row, cpu_seconds

ROOT = Path(__file__).resolve().parent.parent
SETS = {name: ROOT / "tests" / "data" / f"errors-{name}.jsonl" for name in ("dev", "own")}
"""Reports of users, with other versions than the installed ones; and errors written down from the sources."""
MOVED = {"vllm-project/vllm#2418": ("vllm/v1/core/kv_cache_utils.py:_check_enough_kv_cache_memory",)}
"""Report -> where the same error stands in the versions that this was written with."""
GONE = frozenset({"vllm-project/vllm#7624", "vllm-project/vllm#2184", "vllm-project/vllm#12656"})
"""Reports of errors whose words are nowhere in the sources of vLLM 0.32: silence is the best answer there is."""
FIRST, WRONG, MILLISECONDS = 20.0, 5.0, 300.0
"""Most that may be missed at the first place and answered wrongly (per cent), and most a process may take."""
INDEX_SECONDS, INDEX_MEGABYTES = 20.0, 500.0
"""Most that indexing torch may take."""
TRACEBACK = """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/fx/proxy.py", line 493, in to_bool
    raise TraceError(
torch.fx.proxy.TraceError: symbolically traced variables cannot be used as inputs to control flow
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one case. ``place``: 1 for the answer, 2 and on for the alternatives, 0 where it is in none."""

    case: Mapping[str, Any]
    answered: bool
    place: int

    @property
    def answerable(self) -> bool:
        return self.case["expected"] is not None

    @property
    def wrong(self) -> bool:
        return self.answered and self.place != 1

    @property
    def kind(self) -> str:
        if not self.answered:
            return "missed" if self.answerable else "rightly silent"
        return "right" if self.place == 1 else "wrong"


def run(quick: bool = False) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "SIZEWISE_CACHE_DIR": folder,
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rows = _index("torch", environment)
        more = os.environ.get("VLLM_SOURCES") or (find_spec("vllm") and "vllm")
        if more:
            _index(more, environment)
        with Store(Path(folder) / "errors.sqlite") as store:
            judged, notes = _judge_all(store)
        rows += judged + _process_rows(3 if quick else 9, environment)
    return Result("explain", "Explaining pasted errors", "-", rows, notes)


def _index(package: str, environment: Mapping[str, str]) -> list[Row]:
    """Index one package in a process of its own: CPU seconds and peak memory."""
    command = [sys.executable, "-m", "sizewise", "errors", "index", package]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as child:
        told = child.stderr.read() if child.stderr else b""
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command[2:])} failed:\n{told.decode(errors='replace')[-2000:]}")
    seconds, megabytes = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return [
        Row(f"indexing {package}, CPU", seconds, None, "s", lower_is_better_limit=INDEX_SECONDS),
        Row(f"indexing {package}, peak memory", megabytes, None, "MiB", lower_is_better_limit=INDEX_MEGABYTES),
    ]


def _judge_all(store: Store) -> tuple[list[Row], list[str]]:
    indexed = {one.name: one.version for one in store.distributions()}
    rows: list[Row] = []
    notes = [f"Index: {', '.join(f'{name} {version}' for name, version in indexed.items())}."]
    for name, file in SETS.items():
        cases = [case for case in _cases(file) if case["pkg"] in indexed]
        outcomes = [judge(case, store) for case in cases]
        rows += _rows(name, outcomes)
        notes += ["", *_per_origin(name, outcomes)]
    return rows, notes


def _cases(file: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip())


def judge(case: Mapping[str, Any], store: Store) -> Outcome:
    """Ask for one case."""
    answer: Answer = explain(case["text"], store)
    found = [answer.match, *answer.alternatives]
    right = [number for number, match in enumerate(found, 1) if match is not None and is_right(case, match, store)]
    return Outcome(case, answer.match is not None, min((place for place in right if place <= 5), default=0))


def is_right(case: Mapping[str, Any], match: Match, store: Store) -> bool:
    """Whether a record is the error of the case, by the rule above."""
    if case["expected"] is None:
        return False
    places = [case["expected"], *case.get("moved", ()), *MOVED.get(case["source"], ())]
    for stored in store.get([match.record.id]):
        if any(_agrees(place, site.path, site.qualname) for place in places for site in stored.sites):
            return True
    return _says_the_template(case["text"], match.record.errorMessage)


def _agrees(place: str, path: str, qualname: str) -> bool:
    file, _, function = place.split(" ")[0].partition(":")
    if function:
        same_file = file.rpartition("/")[2] == path.rpartition("/")[2]
        return same_file and qualname.rpartition(".")[2].lstrip("_") == function.lstrip("_")
    return path == file or path.startswith(f"{file}/") or path.endswith(f"/{file}")


def _says_the_template(text: str, template: str) -> bool:
    for told in read(text).told:
        for said in variants(told):
            fitted = fit(template, said)
            if fitted is not None and fitted.form != "words" and fitted.literal >= ENOUGH:
                return True
    return False


def _rows(name: str, outcomes: Sequence[Outcome]) -> list[Row]:
    answerable = [one for one in outcomes if one.answerable]
    there = [one for one in answerable if one.case["source"] not in GONE]
    silent = [one for one in outcomes if not one.answerable]

    def share(hits: int, of: Sequence[Outcome]) -> float:
        return 100 * hits / max(1, len(of))

    def row(what: str, hits: int, of: Sequence[Outcome], limit: float | None = None) -> Row:
        return Row(f"{name}: {what} ({hits} of {len(of)})", share(hits, of), None, "%", lower_is_better_limit=limit)

    rows = [row("not right at the first place", sum(one.place != 1 for one in answerable), answerable, FIRST)]
    if len(there) < len(answerable):
        what = "the same, of those that the installed sources still have"
        rows.append(row(what, sum(one.place != 1 for one in there), there, FIRST))
    return [
        *rows,
        row("not among the first five", sum(not one.place for one in answerable), answerable),
        row("wrong answers", sum(one.wrong for one in outcomes), outcomes, WRONG),
        row("answered though no Python source has it", sum(one.answered for one in silent), silent),
    ]


def _per_origin(name: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    kinds = ("right", "missed", "wrong", "rightly silent")
    yield f"| {name} | {' | '.join(kinds)} |"
    yield "|---" * (len(kinds) + 1) + "|"
    counted = Counter((one.case["origin"], one.kind) for one in outcomes)
    for origin in dict.fromkeys(one.case["origin"] for one in outcomes):
        yield f"| {origin} | {' | '.join(str(counted[origin, kind]) for kind in kinds)} |"
    missed = [f"{one.case['n']} ({one.kind})" for one in outcomes if one.kind in ("missed", "wrong")]
    yield ""
    yield f"Not right: {', '.join(missed) or 'none'}."


def _process_rows(rounds: int, environment: Mapping[str, str]) -> list[Row]:
    """CPU time of whole processes, with bytecode as an installed package has it."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "traceback.txt"
        file.write_text(TRACEBACK)
        for what, argument in {"a code": "SW401", "a pasted traceback": str(file)}.items():
            taken = [_milliseconds(argument, environment) for _ in range(rounds + 1)][1:]
            name = f"CPU time of a whole process, {what}"
            rows.append(Row(name, statistics.median(taken), None, "ms", lower_is_better_limit=MILLISECONDS))
    return rows


def _milliseconds(argument: str, environment: Mapping[str, str]) -> float:
    started = cpu_seconds()
    command = [sys.executable, "-m", "sizewise", "explain", argument]
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"sizewise explain {argument} failed:\n{done.stderr.decode(errors='replace')[-2000:]}")
    return 1000 * (cpu_seconds() - started)
