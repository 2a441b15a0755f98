"""`sizewise compile`: warm a target up and say what was built."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..saved.bundle import check_writable
from ..saved.threads import checked_threads
from .output import AsJson, show, show_json, table, users_code
from .progress import warmup_progress
from .settings import Assignments, Backend, config_from
from .targets import Target, TargetArgument, check_example, load_target

if TYPE_CHECKING:
    from ..config.compilation import CompilationConfig
    from ..module import CompiledModule
    from ..report import Report


Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write a bundle here, for sizewise.load.")]

Threads = Annotated[
    str | None,
    typer.Option("--threads", metavar="N,N,...", help="With --output: the numbers of threads the bundle serves with."),
]


def compile(
    target: TargetArgument,
    backend: Backend = None,
    assignments: Assignments = None,
    output: Output = None,
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Trace, compile and check a model for all its sizes, and print the report.

    What is built is kept in the cache, where the next process finds it; with
    --output also in a bundle, for sizewise.load, which serves with as many
    threads as torch uses here, or with --threads. Programs that are in the cache
    are not built again (SIZEWISE_DISABLE_COMPILE_CACHE=1 builds them all the
    same). With --json the answer is the report's own JSON, with the target.

    Example: sizewise compile app.py:make -o model.sizewise
    """
    counts = _counts(threads, output)
    config = config_from(backend, assignments)
    if output is not None:
        # Before minutes of work that could not be kept.
        check_writable(output)
    loaded = load_target(target)
    fast = warmed_up(loaded, config)
    report = fast.report()
    written = None if output is None else fast.save(output, threads=counts)
    if json:
        bundle = {} if written is None else {"output": str(written), "bytes": written.stat().st_size}
        show_json({"target": target, **loads(report.to_json()), **bundle})
        return
    show(f"{target}: {report.owner} is {report.state}")
    show(table(("", "what was built"), _rows(report)))
    if written is not None:
        threads = " or ".join(map(str, counts or [_threads_here()]))
        one = "" if threads == "1" else "s"
        size = written.stat().st_size / 1e6
        show(f"written to {written}: {size:.1f} MB, for sizewise.load in processes with {threads} thread{one}")


def _threads_here() -> int:
    import torch

    return torch.get_num_threads()


def _counts(threads: str | None, output: Path | None) -> list[int] | None:
    """Raises typer.BadParameter, BadOption (SW510)."""
    if threads is None:
        return None
    if output is None:
        raise typer.BadParameter("it is about the bundle that --output writes", param_hint="--threads")
    try:
        counts = [int(count) for count in threads.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{threads!r} is no list of numbers, as in 1,2,4", param_hint="--threads") from None
    return checked_threads(counts)


def warmed_up(target: Target, config: CompilationConfig | None) -> CompiledModule:
    """The target compiled and warmed up, with progress on a terminal.

    Raises:
        ExampleFails (SW707): the model itself fails on its example.
        TraceError, BuildError, ConfigError: why it cannot be served.
    """
    from .. import api

    fast: CompiledModule = api.compile(target.model, dynamic_shapes=target.dynamic_shapes, config=config)
    check_example(target)
    with users_code(), warmup_progress() as progress, _without_torchs_traceback():
        return fast.warmup_many([(target.args, target.kwargs)], progress=progress)


@contextlib.contextmanager
def _without_torchs_traceback() -> Iterator[None]:
    """torch logs a traceback of what it cannot trace, beside the exception that becomes a named error."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _rows(report: Report) -> list[tuple[str, str]]:
    pieces = report.pieces
    counts = f"{pieces.total} total, {pieces.distinct} distinct, {pieces.compiled} compiled{report.then}"
    rows = [("from", report.source), ("pieces", counts)]
    for name, dim in report.dims.items():
        rows.append((f"dim {name}", f"{dim['min']} to {dim['max']}, {dim['policy']}"))
    equal = sum(size["verdict"] == "equal" for size in report.sizes)
    rows.append(("checked", f"{equal} of {len(report.sizes)} sizes equal to eager{report.then}"))
    for size in report.sizes:
        if size["verdict"] != "equal":
            rows.append((f"size {size['sizes']}", f"{size['verdict']}: {size['why']}"))
    for phase in ("trace", "machine", "split", "compile", "link", "self_test", "warmup"):
        rows.append((f"{phase} time", f"{report.seconds(phase):.2f} s"))
    rows.append(("cache", "all programs were there" if report.cache["hit"] else report.cache["why"]))
    counted = [f"{name} {count}" for name, count in report.counters.items() if count]
    rows.append(("counters", ", ".join(counted) or "none"))
    return rows
