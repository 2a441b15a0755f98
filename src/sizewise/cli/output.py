"""Everything the commands print, and what they exit with.

The answer goes to stdout, everything else to stderr, so that ``--json`` leaves one JSON object on
stdout whatever the user's model prints.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, TextIO

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import env
from ..errors import SizewiseError
from ..errors import command as errors
from . import BROKEN_PIPE
from .blame import cause_of, place_of

ANSWER_IS_NO = 1
NAMED_FAILURE = 3
"""Exit codes; `BROKEN_PIPE` and `INTERRUPTED` of the package are the others."""

PIPE_WIDTH = 120
"""Rich's 80 columns where there is no terminal would cut paths into pieces."""

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of text.")]
"""The option every command has, under the parameter name ``json``."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Rich would exit with 1 at once.
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    """A console that styles on a terminal and is plain in a pipe."""
    return _Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)


def show(what: Any) -> None:
    """Print a string (as it is) or a rich renderable on stdout."""
    text = Text(what) if isinstance(what, str) else what
    console(sys.stdout).print(text, soft_wrap=isinstance(what, str))


def show_json(data: Any) -> None:
    """Print ``data`` as JSON; NaN and infinities become null, which JSON has no numbers for."""
    sys.stdout.write(json.dumps(_finite(data), default=str, indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]], *, numbers: bool = False) -> Table:
    """A table; cells are text as it is, without markup. ``numbers`` aligns all but the first column right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if numbers and index else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """Around code of the user: what it prints goes to stderr, since stdout is the command's answer."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every failure named: printed, as JSON if asked for, and exit code 3."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        try:
            _named(command, arguments)
        except BrokenPipeError:
            # typer would exit with 1, which means "the answer is no" here.
            raise typer.Exit(BROKEN_PIPE) from None

    return run


def _named(command: Callable[..., None], arguments: dict[str, Any]) -> None:
    as_json = bool(arguments.get("json"))
    try:
        _set_up_logging()
        command(**arguments)
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except SizewiseError as error:
        _show_error(error, as_json)
        raise typer.Exit(NAMED_FAILURE) from None
    except Exception as problem:
        traceback.print_exc(file=sys.stderr)
        _show_error(_unexpected(command.__name__, problem), as_json)
        raise typer.Exit(NAMED_FAILURE) from None


def _set_up_logging() -> None:
    level = env.log_level()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("sizewise").setLevel(level)


def _unexpected(command: str, problem: Exception) -> errors.UnexpectedProblem:
    todo = "this is a bug in Sizewise: report it with the traceback above and the output of `sizewise doctor`"
    return errors.UnexpectedProblem(command=command, where=place_of(problem), cause=cause_of(problem), todo=todo)


def _show_error(error: SizewiseError, as_json: bool) -> None:
    if as_json:
        show_json({"error": error_as_data(error)})
        return
    text = Text.assemble(("Error: ", "bold red"), str(error))
    text.highlight_words(["What to do:"], style="bold")
    console(sys.stderr).print(text, soft_wrap=True)


def error_as_data(error: SizewiseError) -> dict[str, Any]:
    """``code``, ``class``, ``message`` (with what to do) and ``fields`` (as text where JSON has no word)."""
    return {
        "code": error.code,
        "class": type(error).__name__,
        "message": str(error),
        "fields": {name: _plain(value) for name, value in error.fields.items()},
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else str(value)
