"""Ten processes that start together: with one empty cache between them, against each building for itself.

As a module with arguments (layers) this file is a process that is measured; with ``machine`` it fills Inductor's
folder with what is paid once per machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import harness


def run(quick: bool = False) -> harness.Result:
    count, layers, rounds = (3, 2, 1) if quick else (10, 4, 3)
    taken: dict[str, list[dict[str, Any]]] = {"together": [], "alone": [], "one": []}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        machine = place / "machine"
        harness.fresh("benchmarks.ten_processes", "machine", cache=str(machine))
        for number in range(rounds):
            for how, answers in taken.items():
                answers.append(_together(how, 1 if how == "one" else count, layers, machine, place / f"{how}{number}"))
    ours, theirs, one = (harness.median_of(answers, "wall") for answers in taken.values())
    rows = [
        harness.Row(f"{count} processes, CPU in all", ours["cpu"], theirs["cpu"], "s"),
        harness.Row(f"{count} processes, wall until the last has served", ours["wall"], theirs["wall"], "s"),
        harness.Row("programs traced in all", ours["traces"], theirs["traces"], ""),
        harness.Row(
            "pieces compiled in all, against one process that builds",
            ours["compilations"] / one["compilations"],
            None,
            "x",
            lower_is_better_limit=1.0,
        ),
        harness.Row("CPU in all, against one process that builds", ours["cpu"] / one["cpu"], None, "x"),
    ]
    notes = [
        f"A decoder of {layers} layers, hidden 64. The clock starts in all processes at once, after their imports and "
        "with their model built, and ends when each has its first output. CPU counts the C++ compilers. What is paid "
        f"once per machine is paid before. One torch thread each, {rounds} interleaved round(s), medians by wall time.",
        f"One process that builds takes {one['cpu']:.1f} s of CPU and {one['wall']:.1f} s. Of the {count} that share, "
        f"{ours['hits']} loaded what another one built.",
    ]
    title = f"{count} processes that start together on an empty cache"
    return harness.Result("ten_processes", title, "each for itself", rows, notes)


def _together(how: str, count: int, layers: int, machine: Path, place: Path) -> dict[str, Any]:
    """All processes of one contestant: CPU seconds and counts added up, and the longest wall time."""
    running = []
    for number in range(count):
        inductor = place / ("inductor" if how == "together" else f"inductor{number}")
        if not inductor.exists():
            shutil.copytree(machine, inductor)
        variables = {
            "TORCHINDUCTOR_CACHE_DIR": str(inductor),
            "SIZEWISE_CACHE_DIR": str(place / "programs"),
            "SIZEWISE_DISABLE_COMPILE_CACHE": "0" if how == "together" else "1",
        }
        running.append(_start(layers, variables))
    for process in running:
        _line(process)
    for process in running:
        _go(process)
    answers = [json.loads(_line(process)) for process in running]
    for process in running:
        process.communicate()
    shutil.rmtree(place)
    found = {name: sum(answer[name] for answer in answers) for name in ("cpu", "traces", "compilations", "hits")}
    return {**found, "wall": max(answer["wall"] for answer in answers)}


def _start(layers: int, variables: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ten_processes", str(layers)],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with {process.wait()}")
    return line


def child(layers: int) -> None:
    import torch

    import sizewise
    import sizewise.api
    import sizewise.warm
    from sizewise import Dim

    from .models import ATTENTION, decoder

    torch.set_num_threads(1)
    model, ids = decoder(layers), torch.randint(0, 256, (4, 16))
    _say({"ready": True})
    sys.stdin.readline()
    answer: dict[str, Any] = {}
    with harness.measured(answer), torch.no_grad():
        fast: Any = sizewise.compile(
            model,
            dynamic_shapes={"ids": {0: Dim("batch", 1, 64)}},
            splitting_ops=[ATTENTION],
            cudagraph_mode="NONE",
        )
        fast.warmup(ids)
        fast(ids)
    counters = fast.counters
    _say({**answer, "traces": counters.traces, "compilations": counters.compilations, "hits": counters.cache_hits})


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def machine() -> None:
    harness.pay_machine_costs()
    _say({})


if __name__ == "__main__":
    if sys.argv[1] == "machine":
        machine()
    else:
        child(int(sys.argv[1]))
