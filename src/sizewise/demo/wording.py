"""Numbers in words, the same on the terminal and on the page."""

from __future__ import annotations

import signal

from .results import OWN, Restart, Run

MISSING = "-"


def milliseconds(ms: float | None) -> str:
    if ms is None:
        return MISSING
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"


def seconds(s: float | None) -> str:
    return MISSING if s is None else milliseconds(s * 1000)


def error(value: float | None) -> str:
    return MISSING if value is None else "0" if value == 0 else f"{value:.1e}"


def compilations(run: Run) -> str:
    if not run.calls:
        return MISSING
    if not run.compilations:
        return "0"
    return f"{run.compilations} ({seconds(run.stalled_s)} waited)"


def waited(run: Run) -> str:
    return seconds(run.stalled_s) if run.stalls else "0"


def count_compilations(run: Run) -> str:
    return f"{run.compilations} compilation{'' if run.compilations == 1 else 's'}"


def paths(run: Run) -> str:
    return ", ".join(f"{path} {count}" for path, count in run.calls_by_path.items() if count) or "none"


def stalls(run: Run) -> list[str]:
    """One phrase for each call that waited for a compiler."""
    return [
        f"request {call.number} (batch {call.batch}, {call.seq} tokens): {milliseconds(call.ms)}" for call in run.stalls
    ]


def restart(found: Restart) -> dict[str, str]:
    """What was done and seen, row by row."""
    return _own_restart(found) if found.name == OWN else {found.label: _peers_restart(found)}


def _own_restart(found: Restart) -> dict[str, str]:
    how = "SIGKILL" if found.killed_status == -signal.SIGKILL else f"status {found.killed_status}"
    compilers = ", ".join(found.compilers) or "no C++ compiler on its PATH"
    return {
        "saved": f"a bundle of {found.bundle_bytes / 1e6:.1f} MB in {seconds(found.save_s)}, its proof included",
        "killed": f"process {found.killed_pid} while it served ({how})",
        "started": f"a fresh process: {compilers}, empty caches, SIZEWISE_REQUIRE_WARM=1",
        "first answer": _first_answer(found),
        "answers": f"{found.equal} of {found.answers} equal to those before, bit for bit",
        "compiled": f"{_count(found.compilations, 'compilation')}, {_count(len(found.children), 'child process')}, "
        f"{_imported(found)}",
    }


def _first_answer(found: Restart) -> str:
    return (
        f"{seconds(found.first_answer_s)} after the module was built; "
        f"{seconds(found.from_process_start_s)} after the process was started"
    )


def _peers_restart(found: Restart) -> str:
    if found.failure:
        return f"failed: {found.failure}"
    return f"{_first_answer(found)}, with its compilers and a warm cache"


def _imported(found: Restart) -> str:
    if found.imported:
        return f"{_count(len(found.imported), 'module')} of Dynamo and Inductor imported"
    words = "Dynamo and Inductor not imported"
    return (
        f"{words} for it (transformers had imported {' and '.join(found.imported_before)})"
        if (found.imported_before)
        else words
    )


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
