"""The demo from its options to its output."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path

from rich.console import Console

from . import machine, requirements
from .results import LABELS, OWN, DemoResult
from .runner import PEERS, Runner
from .screen import Meter, Screen, Silence


def run_demo(*, requests: int, seed: int, peers: bool, html: Path | None, json: bool) -> None:
    """Raises MissingExtra (SW702), CannotWrite (SW704), or what Sizewise's own process raised."""
    requirements.check_packages(page=html is not None)
    if html is not None:
        requirements.check_writable(html)
    console = Console(stderr=json)
    screen = Silence(console) if json else Screen(console)
    result = _measure(requests, seed, peers, screen, console)
    if html is not None:
        from .page import render

        requirements.write(html, render(result))
        screen.page_written(str(html))
    if json:
        sys.stdout.write(json_format.dumps(result.as_dict(), indent=2) + "\n")


def _measure(requests: int, seed: int, peers: bool, screen: Screen, console: Console) -> DemoResult:
    screen.intro(requests, machine.describe())
    with Meter(console, requests) as meter, Runner(requests, seed, meter) as runner:
        meter.start("Preparing the machine: instruction sets and headers")
        screen.prepared(runner.prepare())
        meter.start(f"{LABELS[OWN]}: loading")
        runs = [runner.run(OWN)]
        screen.own(runs[0])
        for peer in PEERS if peers else ():
            meter.start(f"{LABELS[peer]}: loading")
            runs.append(runner.run(peer))
        meter.timings(len(runs))
        runs = runner.time_shapes(runs)
        meter.start("Killed and started again")
        result = runner.result(runs, runner.restart(runs))
    screen.comparison(result)
    screen.restarts(result)
    return result
