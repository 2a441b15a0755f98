"""`sizewise compile`: warm a target up and say what was built."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from json import loads
from typing import TYPE_CHECKING

from .output import AsJson, show, show_json, table, users_code
from .progress import warmup_progress
from .settings import Assignments, Backend, config_from
from .targets import Target, TargetArgument, check_example, load_target

if TYPE_CHECKING:
    from ..config.compilation import CompilationConfig
    from ..module import CompiledModule
    from ..report import Report


def compile(
    target: TargetArgument,
    backend: Backend = None,
    assignments: Assignments = None,
    json: AsJson = False,
) -> None:
    """Trace, compile and check a model for all its sizes, and print the report.

    Nothing is kept: this says whether and how a model compiles, and how long
    that takes. With --json the answer is the report's own JSON, with the target.

    Example: sizewise compile app.py:make --backend eager
    """
    config = config_from(backend, assignments)
    loaded = load_target(target)
    report = warmed_up(loaded, config).report()
    if json:
        show_json({"target": target, **loads(report.to_json())})
        return
    show(f"{target}: {report.owner} is {report.state}")
    show(table(("", "what was built"), _rows(report)))


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
    rows = [("pieces", f"{pieces.total} total, {pieces.distinct} distinct, {pieces.compiled} compiled")]
    for name, dim in report.dims.items():
        rows.append((f"dim {name}", f"{dim['min']} to {dim['max']}, {dim['policy']}"))
    equal = sum(size["verdict"] == "equal" for size in report.sizes)
    rows.append(("checked", f"{equal} of {len(report.sizes)} sizes equal to eager"))
    for size in report.sizes:
        if size["verdict"] != "equal":
            rows.append((f"size {size['sizes']}", f"{size['verdict']}: {size['why']}"))
    for phase in ("trace", "machine", "split", "compile", "link", "self_test", "warmup"):
        rows.append((f"{phase} time", f"{report.seconds(phase):.2f} s"))
    counted = [f"{name} {count}" for name, count in report.counters.items() if count]
    rows.append(("counters", ", ".join(counted) or "none"))
    return rows
