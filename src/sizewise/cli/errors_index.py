"""`sizewise errors index`: read installed packages and remember what errors they raise.

The JSON answer:

    {"packages": [{"name": str, "version": str, "scope": str, "files": int, "skipped": {reason: int},
                   "records": int, "sites": int, "seconds": float, "path": str, "note": str}]}
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..reference.places import index_path
from ..reference.scan.distributions import Sources, find_sources
from ..reference.scan.index import Progress as Tell
from ..reference.scan.index import Report
from ..reference.scan.index import index as read_and_write
from ..reference.store import discard_damaged, writable
from .output import AsJson, console, show, show_json, table

BY_DEFAULT = ("torch", "vllm", "transformers")


def index(
    packages: Annotated[
        list[str] | None,
        typer.Argument(
            help="Installed packages, or paths to unpacked sources. torch, vllm and transformers by default."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Read packages' sources and write the errors they raise into the index that `sizewise explain` uses.

    Nothing is imported or run. Without packages: those of torch, vllm and transformers that are installed.

    Example: sizewise errors index torch ./vllm-sources
    """
    # All of them first: a misspelt name is told before a minute of work.
    found = [find_sources(package) for package in packages or _installed()]
    with writable(path := index_path()):
        if discard_damaged(path):
            _note("The index was damaged. It is made anew: packages that it had and that are not named here are gone.")
        reports = [_index(sources) for sources in found]
    if json:
        show_json({"packages": [asdict(report) for report in reports]})
    else:
        rows = [_cells(report) for report in reports]
        show(table(("", "version", "files", "records", "sites", "seconds"), rows, numbers=True))
    for note in dict.fromkeys(report.note for report in reports if report.note):
        _note(note)


def _note(text: str) -> None:
    console(sys.stderr).print(f"Note: {text}", soft_wrap=True, markup=False)


def _installed() -> list[str]:
    present = []
    for name in BY_DEFAULT:
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.distribution(name)
            present.append(name)
    return present


def _cells(report: Report) -> tuple[str, ...]:
    skipped = sum(report.skipped.values())
    files = f"{report.files} ({skipped} skipped)" if skipped else str(report.files)
    return (report.name, report.version, files, str(report.records), str(report.sites), f"{report.seconds:.1f}")


def _index(sources: Sources) -> Report:
    with progress_line(f"reading {sources.name} {sources.version}") as tell:
        return read_and_write(sources, index_path(), tell)


@contextlib.contextmanager
def progress_line(what: str) -> Iterator[Tell | None]:
    """A function to call with (done, in all), drawn on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
