"""The second half: the process that serves is killed, and a fresh one takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .children import ENDINGS, Child, Event
from .failures import died, failure_of
from .results import OWN, Restart

SERVED_BEFORE = 5
"""Answers that the process gives before it is killed, on its way to the next one."""


def save_and_kill(child: Child, bundle: Path) -> Restart:
    """Have Sizewise's worker save its programs and serve; kill it while it does.

    Raises:
        UnexpectedProblem (SW708), or the worker's own error.
    """
    saved = _ask(child, {"save": str(bundle)}, "saved")
    child.order({"serve": True})
    for _ in range(SERVED_BEFORE):
        _expect(child, "served")
    status = child.kill()
    return Restart(
        OWN, killed_pid=child.pid, killed_status=status, bundle_bytes=bundle.stat().st_size, save_s=saved["seconds"]
    )


def _ask(child: Child, order: dict[str, Any], wanted: str) -> Event:
    child.order(order)
    return _expect(child, wanted)


def _expect(child: Child, wanted: str) -> Event:
    while (event := child.next_event()) is not None:
        if event["event"] == wanted:
            return event
        if event["event"] in ENDINGS:
            break
    raise failure_of(OWN, [event] if event else [], child) or died(OWN, child)


def start_again(
    before: Restart,
    job: dict[str, Any],
    cache: Path,
    digests: list[str],
    listener: Callable[[str, Event], None],
    compiler: bool = True,
) -> Restart:
    """``before`` with what a fresh process did; a peer that fails is one with a ``failure``.

    Raises:
        SizewiseError: Sizewise itself failed, with the error of its process.
    """
    found, events = before, []
    began = time.monotonic()
    with Child({**job, "again": True}, cache, compiler) as child:
        for event in child.events():
            events.append(event)
            listener(before.name, event)
            if event["event"] == "first":
                since_start = time.monotonic() - began
                found = replace(found, first_answer_s=event["seconds"], from_process_start_s=since_start)
            elif event["event"] == "again":
                found = _with_answers(found, event, digests)
        failure = failure_of(before.name, events, child)
    if failure is not None and before.name == OWN:
        raise failure
    return replace(found, failure=str(failure or ""))


def _with_answers(found: Restart, event: Event, digests: list[str]) -> Restart:
    facts = {name: value for name, value in event.items() if name not in ("event", "digests")}
    seen = event["digests"]
    equal = sum(one == other for one, other in zip(seen, digests, strict=False))
    return replace(found, answers=len(seen), equal=equal, **facts)
