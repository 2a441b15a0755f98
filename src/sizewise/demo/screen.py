"""The demo on a terminal or in a pipe."""

from __future__ import annotations

from types import TracebackType

from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import wording
from .children import Event
from .results import LABELS, OWN, DemoResult, Machine, Run
from .runner import REPEATS, SHAPES
from .traffic import MAX_BATCH, MAX_TOKENS

_PHASES = {
    "trace.start": "tracing",
    "split.start": "splitting",
    "compile.start": "compiling",
    "split": "checking against eager",
}


_PARTS = {
    "trace": "trace",
    "machine": "machine",
    "compile": "compile",
    "link": "C++ still running",
    "self_test": "check",
}
"""The parts of a warm-up, and what the screen calls them."""


class Screen:
    """Prints each result when it is there. Without a terminal: plain text and no progress."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def intro(self, requests: int, machine: Machine) -> None:
        self._print(
            Text(f"Sizewise {machine.sizewise}: {requests} requests of changing size", style="bold"),
            Text(
                f"  MiniLM sentence encoder (22.7 M parameters), batch 1 to {MAX_BATCH}, "
                f"up to {MAX_TOKENS} tokens\n"
                f"  {machine.cpu}, {machine.cores} cores, {machine.threads} thread used\n"
                f"  torch {machine.torch}, Python {machine.python}\n"
                "  Each contestant runs in a fresh process with nothing compiled yet."
            ),
        )

    def prepared(self, seconds: float) -> None:
        self._print(Text(f"  Machine prepared for all in {seconds:.1f} s: instruction sets probed, headers compiled."))

    def own(self, run: Run) -> None:
        phases = ", ".join(
            f"{word} {run.phases_s[name]:.1f} s" for name, word in _PARTS.items() if run.phases_s.get(name, 0.0) >= 0.05
        )
        calls = len(run.calls)
        rows = {
            "first answer": f"after {wording.seconds(run.first_result_s)} ({phases})",
            "in service": f"{calls} requests, {wording.count_compilations(run)}, "
            f"slowest call {wording.milliseconds(run.worst_call_ms)}",
            "served by": wording.paths(run),
            "correct": f"within {wording.error(run.worst_error)} of eager, embeddings and hidden states",
        }
        table = Table.grid(padding=(0, 2))
        for name, value in rows.items():
            table.add_row(Text(f"  {name}"), Text(value))
        self._print(Text(""), Text("Sizewise", style="bold"), table, self._nearest(run))

    def _nearest(self, run: Run) -> Group:
        parts: list[Text | Table] = [Text("\nNearest sentences, from its embeddings", style="bold")]
        for nearest in run.nearest:
            parts.append(Text(f"  {nearest.query}"))
            # A grid keeps the second line of a long sentence in its column.
            grid = Table.grid(padding=(0, 2, 0, 0))
            for text, score in nearest.sentences:
                grid.add_row(Text(f"    {score:.2f}"), Text(text))
            parts.append(grid)
        return Group(*parts)

    def comparison(self, result: DemoResult) -> None:
        self._print(Text("\nSide by side", style="bold"), self._summary(result))
        title = f"\nMedian ms of {REPEATS} calls at one size, taking turns"
        self._print(Text(title, style="bold"), self._latency(result))
        for run in result.runs:
            for stall in wording.stalls(run):
                self._print(Text(f"  {run.label} compiled during {stall}"))
            if run.failure:
                self._print(Text(f"  {run.label} failed: {run.failure}", style="red"))

    def _summary(self, result: DemoResult) -> Table:
        table = self._table("", *(run.label for run in result.runs))
        table.add_row("first answer", *(wording.seconds(run.first_result_s) for run in result.runs))
        table.add_row("compilations in service", *(str(run.compilations) for run in result.runs))
        table.add_row("waited for compiler", *(wording.waited(run) for run in result.runs))
        table.add_row("slowest call", *(wording.milliseconds(run.worst_call_ms) for run in result.runs))
        table.add_row("largest difference", *(wording.error(run.worst_error) for run in result.runs))
        return table

    def _latency(self, result: DemoResult) -> Table:
        own, *peers = result.runs
        table = self._table("(batch, tokens)", own.label, "captured", *(run.label for run in peers))
        for shape in result.shapes:
            times = [own.latency_ms.get(shape), own.captured_ms.get(shape)]
            times += [run.latency_ms.get(shape) for run in peers]
            table.add_row(shape, *(wording.MISSING if ms is None else f"{ms:.1f}" for ms in times))
        return table

    def restarts(self, result: DemoResult) -> None:
        self._print(Text("\nKilled and started again", style="bold"))
        table = Table.grid(padding=(0, 2))
        for restart in result.restarts:
            for name, value in wording.restart(restart).items():
                table.add_row(Text(f"  {name}"), Text(value))
        self._print(table)

    def _table(self, first: str, *others: str) -> Table:
        # Box drawing is for eyes; a pipe gets columns.
        style = box.SIMPLE_HEAD if self._console.is_terminal else None
        table = Table(box=style, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
        table.add_column(first)
        for other in others:
            table.add_column(other, justify="right")
        return table

    def page_written(self, path: str) -> None:
        self._print(Text(f"\nThe page is at {path}"))

    def _print(self, *parts: Text | Table | Group) -> None:
        self._console.print(*parts, sep="\n", soft_wrap=not self._console.is_terminal)


class Silence(Screen):
    """For `--json`: nothing but the object is printed."""

    def _print(self, *parts: Text | Table | Group) -> None:
        pass


class Meter:
    """A progress bar per contestant; does nothing without a terminal. Call it with a worker's events."""

    def __init__(self, console: Console, requests: int) -> None:
        self._requests = requests
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def start(self, description: str, total: int | None = None) -> None:
        """A new bar in the place of the last one; without ``total`` it only shows that time passes."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._id = self._progress.add_task(description, total=total)

    def __call__(self, name: str, event: Event) -> None:
        label = LABELS.get(name, name)
        kind = event["event"]
        if kind == "phase" and event["name"] in _PHASES:
            self._describe(f"{label}: {_PHASES[event['name']]}")
        elif kind == "ready" and name != OWN:
            self._describe(f"{label}: first call")
        elif kind == "first":
            self._progress.update(self._id, total=self._requests)
            self._describe(f"{label}: serving")
        elif kind in ("call", "timing"):
            self._progress.advance(self._id)
        elif kind == "paths":
            self._describe(f"{label}: comparing with eager")

    def _describe(self, text: str) -> None:
        self._progress.update(self._id, description=text)

    def timings(self, contestants: int) -> None:
        self.start("Timing single sizes", total=len(SHAPES) * REPEATS * (contestants + 1))

    def __enter__(self) -> Meter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
