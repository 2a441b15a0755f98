"""Explains errors of the installed torch that public calls really raise; right is what the traceback says.

For each error, the frame that raised it (file and function) is compared with the record that is found in an index of
the same torch: in the whole traceback, and in its last lines alone. Errors that the installed Python sources do not
raise themselves (C++, the interpreter) are left out of the shares; of them, a record is a wrong answer.

    python -m benchmarks.explain_truth [--list] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import linecache
import os
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .harness import Result, Row

NOT_RIGHT = 5.0
"""Most that may be answered with another record or not at all, per cent."""
QUICK = 60

# Functions that raise for the one that calls them: what they are told is that one's error.
HELPERS = {
    ("torch/__init__.py", "_check_with"), ("torch/__init__.py", "_check"), ("torch/__init__.py", "_check_value"),
    ("torch/__init__.py", "_check_index"), ("torch/__init__.py", "_check_type"),
    ("torch/__init__.py", "_check_is_size"),
    ("torch/__init__.py", "_check_not_implemented"), ("torch/__init__.py", "_check_tensor_all"),
    ("torch/__init__.py", "_check_tensor_all_with"), ("torch/_dynamo/exc.py", "unimplemented"),
    ("torch/_dynamo/exc.py", "unimplemented_with_warning"), ("torch/_dynamo/exc.py", "raise_observed_exception"),
    ("torch/_dynamo/exc.py", "raise_type_error"), ("torch/_dynamo/exc.py", "raise_value_error"),
    ("torch/_dynamo/utils.py", "raise_args_mismatch"),
}  # fmt: skip
_RAISES = re.compile(r"\s*(?:raise\b|assert\b|(?:el)?if .*: *raise\b|return .*\braise)")
_RAISES_AGAIN = re.compile(
    r"\s*raise(?:\s+[a-z_]\w*(?:\.(?:with_traceback|remove_dynamo_frames)\(.*)?(?:\s+from\b.*)?)?\s*(?:#.*)?$"
)
_TAKES_OVER = re.compile(r"\s*raise (\w+)\.with_traceback\((?!\1\b)\w+\.__traceback__")


@dataclass
class Outcome:
    """One error. ``origin``: raised by torch's Python, raised again there, or by something else."""

    number: int
    error: str
    message: str
    origin: str
    path: str
    function: str
    found: str
    right: bool
    found_without_frames: str
    right_without_frames: bool

    @property
    def place(self) -> tuple[str, str, str]:
        return self.path, self.function, self.message[:40]


@dataclass
class Raised:
    """Where an error came from."""

    origin: str
    path: str
    function: str
    inner: tuple[str, str] = ("", "")
    """The innermost file and function, where an error took over the traceback of an older one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain_truth", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every error and what was found for it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the outcomes")
    options = parser.parse_args()
    outcomes = raise_and_explain()
    if options.list:
        for one in outcomes:
            mark = "ok " if one.right else "BAD" if one.origin == "python" or one.found else "-  "
            print(mark, one.number, one.origin, f"{one.path}:{one.function}", "->", one.found, "|", one.message[:110])
    print(*summary(outcomes), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")


def _different(outcomes: list[Outcome]) -> list[Outcome]:
    return list({one.place: one for one in reversed(outcomes)}.values())


def summary(outcomes: list[Outcome]) -> list[str]:
    """The figures, a line each. Of errors raised at one place with one message only the first counts."""
    different = _different(outcomes)
    ours = [one for one in different if one.origin == "python"]
    others = [one for one in different if one.origin != "python"]
    lines = [f"{len(outcomes)} errors raised, {len(ours)} different ones by torch's own Python"]
    for name, right, found in (
        ("whole traceback", [one.right for one in ours], [bool(one.found) for one in ours]),
        (
            "message alone",
            [one.right_without_frames for one in ours],
            [bool(one.found_without_frames) for one in ours],
        ),
    ):
        share = sum(right) / max(1, len(ours))
        wrong = sum(found) - sum(right)
        lines.append(f"{name}: {share:.1%} right, {wrong} wrong, {len(ours) - sum(found)} without an answer")
    answered = sum(bool(one.found) for one in others)
    lines.append(f"raised again or by C++ and the interpreter: {len(others)}, of which {answered} got a record")
    return lines


def run(quick: bool = False) -> Result:
    outcomes = raise_and_explain(QUICK if quick else None)
    ours = [one for one in _different(outcomes) if one.origin == "python"]
    rows = []
    for what, right, found in (
        ("whole traceback", [one.right for one in ours], [bool(one.found) for one in ours]),
        (
            "last lines alone",
            [one.right_without_frames for one in ours],
            [bool(one.found_without_frames) for one in ours],
        ),
    ):
        share = 100 / max(1, len(ours))
        missed, wrong = len(ours) - sum(right), sum(found) - sum(right)
        limit = NOT_RIGHT if what == "whole traceback" else None
        rows.append(Row(f"{what}: not right ({missed})", share * missed, None, "%", lower_is_better_limit=limit))
        rows.append(Row(f"{what}: wrong ({wrong})", share * wrong, None, "%"))
    return Result("explain_truth", "Explaining errors that torch really raised", "-", rows, summary(outcomes)[:1])


def raise_and_explain(limit: int | None = None) -> list[Outcome]:
    """Raise all errors (or the first ``limit``) and explain each."""
    from sizewise.reference.scan.distributions import find_sources
    from sizewise.reference.scan.index import index
    from sizewise.reference.store import Store

    raised = list(itertools.islice(errors(), limit))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "errors.sqlite"
        index(find_sources("torch"), path)
        with Store(path) as store:
            return [outcome(number, error, store) for number, error in raised]


def errors() -> Iterator[tuple[int, BaseException]]:
    """(number, error) of every call that raises one."""
    import torch

    from .truth import compiled, eager, traced, values

    torch._dynamo.config.verbose = True  # keeps the frames of the compiler in its errors
    groups = (
        eager.modules, eager.training, values.values, compiled.graph_breaks, traced.tracing, traced.spread,
    )  # fmt: skip
    calls = [call for group in groups for call in group()]
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        for number, call in enumerate(calls):
            error = _error_of(call)
            if error is not None:
                yield number, error


def _error_of(call: Callable[[], Any]) -> BaseException | None:
    import torch

    try:
        call()
    except Exception as problem:
        return problem
    finally:
        torch._dynamo.reset()
    return None


def outcome(number: int, error: BaseException, store: Any) -> Outcome:
    """Explain one error and compare."""
    from sizewise.reference.explain import explain

    truth = where_raised(error)
    text = "".join(traceback.format_exception(error))
    alone = "".join(traceback.format_exception_only(error))
    found, right = _compared(explain(text, store, own=False), truth, store)
    found_alone, right_alone = _compared(explain(alone, store, own=False), truth, store)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    first = str(error).strip().split("\n")[0][:200]
    return Outcome(
        number, name, first, truth.origin, truth.path, truth.function, found, right, found_alone, right_alone
    )


def _compared(answer: Any, truth: Raised, store: Any) -> tuple[str, bool]:
    if answer.match is None:
        return "", False
    record = answer.match.record
    site = answer.match.site
    (stored,) = store.get([record.id])
    places = {(one.path, one.qualname.rpartition(".")[2]) for one in stored.sites}
    return f"{site.path}:{site.qualname}", bool(places & {(truth.path, truth.function), truth.inner})


def where_raised(error: BaseException) -> Raised:
    """The frame that raises, without helpers, and whether torch's Python does it.

    It is the innermost one, unless a frame around it raises an error that took over an older traceback.
    """
    frames = list(_frames(error.__traceback__))
    inner = _without_helpers(frames)[-1][:2]
    for number, (path, _, line) in enumerate(frames):
        new = _TAKES_OVER.match(line) or not _RAISES_AGAIN.match(line)
        if path.startswith("torch/") and _RAISES.match(line) and new:
            frames = frames[: number + 1]
            break
    path, function, line = frames[-1]
    origin = "python" if path.startswith("torch/") and _RAISES.match(line) else "other"
    if origin == "python" and _RAISES_AGAIN.match(line) and not _TAKES_OVER.match(line):
        origin = "again"
    path, function, _ = _without_helpers(frames)[-1]
    return Raised(origin, path, function, inner)


def _without_helpers(frames: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    while len(frames) > 1 and frames[-1][:2] in HELPERS:
        frames = frames[:-1]
    return frames


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, str, str]]:
    import torch

    root = os.path.dirname(os.path.dirname(torch.__file__))
    while trace is not None:
        code = trace.tb_frame.f_code
        name = code.co_filename
        path = Path(name).relative_to(root).as_posix() if name.startswith(root) else name
        yield path, code.co_name, linecache.getline(name, trace.tb_lineno)
        trace = trace.tb_next


if __name__ == "__main__":
    main()
