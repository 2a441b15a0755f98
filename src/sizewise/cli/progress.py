"""What a warm-up is doing, on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..events import Event

_DOING = {
    "trace": "tracing",
    "split": "splitting the graph",
    "machine": "finding out the instruction set",
    "link": "waiting for C++ compilers",
    "self_test": "checking against eager",
}


class Wording:
    """The events of a warm-up as one line that says what is being done now."""

    def of(self, event: Event) -> str | None:
        """The line to show from now on, or None where it stays."""
        name, _, start = event.name.partition(".")
        if start == "start" and name == "compile":
            return f"compiling piece {event.fields['piece']} for sizes {event.fields['sizes']}"
        if start == "start":
            return _DOING.get(name)
        return None


@contextlib.contextmanager
def warmup_progress() -> Iterator[Callable[[Event], None] | None]:
    """A subscriber that draws on stderr, or None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        wording = Wording()

        def subscriber(event: Event) -> None:
            line = wording.of(event)
            if line is not None:
                bar.update(task, description=line)

        yield subscriber
