"""Numbers in words, the same on the terminal and on the page."""

from __future__ import annotations

from .results import Run

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
