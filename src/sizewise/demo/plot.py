"""The geometry of the timeline: every call of every contestant, on a logarithmic axis of time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .results import DemoResult, Run
from .wording import milliseconds, seconds


@dataclass(frozen=True)
class Mark:
    x: float
    y: float
    kind: str
    """``call``, ``compiled`` (a call that waited for a compiler) or ``first`` (the first answer)."""
    label: str


@dataclass(frozen=True)
class Series:
    name: str
    index: int
    line: str
    """Points of an SVG polyline through the calls in service."""
    marks: list[Mark]


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Plot:
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    service: float
    """Where service begins; left of it are the first answers."""
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    series: list[Series]


def make_plot(result: DemoResult, width: int, height: int) -> Plot:
    """The plot for a drawing of that size; text in it is 12 units high."""
    left, right, top, bottom = 52.0, width - 12.0, 12.0, height - 44.0
    # The first answers get a column of their own: they are no requests in service.
    service = left + 56
    low, high = _decades(result)
    last = max(2, result.requests)

    def x(number: int) -> float:
        return round(service + 12 + (number - 1) / (last - 1) * (right - service - 18), 1)

    def y(ms: float) -> float:
        share = (math.log10(max(ms, 10**low)) - low) / (high - low)
        return round(bottom - share * (bottom - top), 1)

    def series(index: int, run: Run) -> Series:
        marks = [
            Mark(
                x(call.number),
                y(call.ms),
                "compiled" if call.compilations else "call",
                f"{run.label}, request {call.number}, batch {call.batch}, {call.seq} tokens: "
                f"{milliseconds(call.ms)}{', compiled' if call.compilations else ''}",
            )
            for call in run.calls
        ]
        line = " ".join(f"{mark.x},{mark.y}" for mark in marks)
        if run.first_result_s is not None:
            at = left + 14 * (index + 1)
            label = f"{run.label}, first answer after {seconds(run.first_result_s)}"
            marks.insert(0, Mark(at, y(run.first_result_s * 1000), "first", label))
        return Series(run.label, index, line, marks)

    return Plot(
        width,
        height,
        left,
        right,
        top,
        bottom,
        service,
        [Tick(x(number), str(number)) for number in _numbers(last, 4 if width < 500 else 8)],
        [Tick(y(10.0**power), _power(power)) for power in range(low, high + 1)],
        [series(index, run) for index, run in enumerate(result.runs)],
    )


def _decades(result: DemoResult) -> tuple[int, int]:
    """Powers of ten, in ms, around everything that is drawn."""
    times = [call.ms for run in result.runs for call in run.calls]
    times += [run.first_result_s * 1000 for run in result.runs if run.first_result_s is not None]
    positive = [ms for ms in times if ms > 0] or [1.0]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return low, max(high, low + 1)


def _power(power: int) -> str:
    return f"{10 ** (power - 3)} s" if power >= 3 else f"{10**power if power >= 0 else 10.0**power} ms"


def _numbers(last: int, wanted: int) -> list[int]:
    """1 and about ``wanted`` round request numbers."""
    raw = last / wanted
    magnitude = 10 ** math.floor(math.log10(max(raw, 1)))
    step = next(s * magnitude for s in (1, 2, 5, 10) if s * magnitude >= raw)
    return sorted({1, *range(step, last + 1, step)})
