"""`sizewise doctor`: what of this machine Sizewise needs, and what it found.

The JSON answer:

    {"healthy": bool, "rows": [{"name": str, "status": "ok" | "warn" | "fail", "seen": str, "todo": str}]}
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from . import machine, toolchain
from .checkup import FAIL, OK, WARN, Row, examine
from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code

_STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compile and check a small model, which takes a while.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check this machine: Python, torch, compiler, threads, GPU, caches, memory.

    Exit code 1: something fails that Sizewise cannot work without.

    Example: sizewise doctor --deep
    """
    with users_code():
        rows = examine([*CHECKS, mini_compile] if deep else CHECKS)
    healthy = all(row.status != FAIL for row in rows)
    if json:
        show_json({"healthy": healthy, "rows": [asdict(row) for row in rows]})
    else:
        cells = [(row.name, Text(row.status, _STYLES[row.status]), row.seen, row.todo) for row in rows]
        show(table(("", "", "seen", "what to do"), cells))
    if not healthy:
        raise typer.Exit(ANSWER_IS_NO)


def mini_compile() -> Row:
    """A two-layer model through all of Sizewise, with an empty cache, checked against eager mode."""
    import torch
    from torch._inductor.utils import fresh_cache

    from .. import api
    from ..dims import Dim
    from ..verify.tolerance import compare

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
    started = time.perf_counter()
    with fresh_cache(), torch.no_grad():
        fast: Any = api.compile(model, dynamic_shapes={"input": {0: Dim("batch", 1, 8)}}, name="the doctor's model")
        fast.warmup(torch.randn(2, 16))
        calls = [torch.randn(size, 16) for size in (1, 3, 8)]
        differences = [compare(model(call), fast(call)) for call in calls]
    seconds = time.perf_counter() - started
    wrong = next((difference for difference in differences if difference is not None), None)
    if wrong is not None:
        return Row("mini compile", FAIL, f"{wrong.path} {wrong.what}", "report this as a bug in Sizewise")
    return Row("mini compile", OK, f"a two-layer model is equal to eager mode; {seconds:.1f} s")


CHECKS: tuple[Callable[[], Row], ...] = (
    machine.python,
    machine.torch_version,
    machine.switches,
    toolchain.compiler,
    toolchain.python_headers,
    toolchain.openmp,
    toolchain.inductor_cache,
    machine.instruction_set,
    machine.threads,
    machine.gpu,
    machine.memory,
    machine.sizewise_variables,
    machine.optional_packages,
    machine.network,
)
