"""What `sizewise explain` does, without the command line around it.

The packages that parse options take longer to load than an explanation to find. `quick` runs the command in its plain
forms without them; all else (help, mistakes in the options) is left to the application.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors.base import SizewiseError
from .explain_shown import Piece, pieces_of

if TYPE_CHECKING:
    from ..reference.explain import Answer
    from ..reference.store import Store

EXPLAINED, NOT_EXPLAINED = 0, 1
"""Exit codes."""
_FILE_NAME = re.compile(r"\.(?:txt|log|out|err|py|json|md)$|^\.+$", re.IGNORECASE)
_CODE = re.compile(r"sw[-_ ]?(\w{0,3}\d\w{0,3})", re.IGNORECASE | re.ASCII)


def quick(arguments: Sequence[str]) -> int | None:
    """Run ``explain WHAT [--json]`` and give its exit code; None for anything else."""
    if arguments[:1] != ["explain"]:
        return None
    what = [one for one in arguments[1:] if one != "--json"]
    if len(what) != 1 or (what[0].startswith("-") and what[0] != "-"):
        return None
    as_json = "--json" in arguments
    try:
        return run(what[0], as_json)
    except Unreadable:
        return None
    except BrokenPipeError:
        raise
    except Exception as problem:
        return _named(problem, as_json)


def _named(problem: Exception, as_json: bool) -> int:
    """Show a failure as every command does; its exit code."""
    import typer

    from .output import guarded

    def explain(json: bool) -> None:
        raise problem

    try:
        guarded(explain)(json=as_json)
    except typer.Exit as stop:
        return stop.exit_code
    return NOT_EXPLAINED


class Unreadable(Exception):
    """What was given is neither a name of an error nor a file that can be read."""


def run(what: str, as_json: bool) -> int:
    """Explain and print; the exit code. Raises Unreadable, IndexUnreadable (SW711)."""
    from ..reference.places import index_path
    from ..reference.store import readable

    problem: SizewiseError | None = None
    with ExitStack() as stack:
        try:
            with readable(path := index_path()):
                store = _open_index(stack, path)
        except SizewiseError as damage:
            store, problem = None, damage
        with readable(path):
            answer = answer_for(what, store)
    unknown = None if answer.match else unknown_code(what)
    if problem is not None and answer.match is None and not unknown:
        raise problem  # the answer may be in there
    if as_json:
        # Half a surrogate pair from a broken text has no place in UTF-8; JSON writes it as an escape.
        sys.stdout.write(json.dumps(answer.to_json(), indent=2) + "\n")
    else:
        show_pieces([(unknown, "bold")] if unknown else pieces_of(answer))
    if unknown:
        return NOT_EXPLAINED  # no index would know more
    if problem is not None:
        _tell(str(problem))
    elif store is None:
        _tell("There is no index: only Sizewise's own errors are known. Run `sizewise errors index` first.")
    return EXPLAINED if answer.match is not None else NOT_EXPLAINED


def _tell(what: str) -> None:
    sys.stderr.write(f"{what}\n")


def _open_index(stack: ExitStack, path: Path) -> Store | None:
    from ..reference.store import Store

    if not path.is_file():
        return None
    store = stack.enter_context(Store(path))
    return store if store.distributions() else None


def unknown_code(what: str) -> str:
    """What to say of a code of Sizewise that no error has; "" for what is no such code."""
    found = _CODE.fullmatch(what)
    if found is None:
        return ""
    from ..errors.registry import errors_by_code, unused_codes

    code, errors = f"SW{found[1].upper()}", errors_by_code()
    if code in unused_codes():
        return f"No match: {code} is {unused_codes()[code]}: no error of this version has it."
    first, last = min(errors), max(errors)
    if found[1].isdigit() and len(found[1]) == 3:
        near = [min(errors, key=lambda known: abs(int(known[2:]) - int(found[1])))]
    else:
        near = get_close_matches(code, errors, n=1)
    hint = f" Nearest: {near[0]} ({errors[near[0]].__name__})." if near else ""
    return f"No match: Sizewise has no error with the code {code}. Its codes go from {first} to {last}.{hint}"


def answer_for(what: str, store: Store | None) -> Answer:
    """The answer for a code, a name, a file, ``-`` for stdin, or a text. Raises Unreadable."""
    from ..reference.explain import explain, read_bounded

    if what == "-":
        return explain(read_bounded(sys.stdin.buffer), store)
    path = _file(what)
    if path is not None:
        try:
            with path.open("rb") as stream:
                return explain(read_bounded(stream), store)
        except OSError as problem:
            raise Unreadable(f"{what} cannot be read: {problem.strerror}") from problem
    if not what.strip() or re.search(r"\s", what.strip()):
        return explain(what, store)
    return _of_name(what, store)


def _of_name(what: str, store: Store | None) -> Answer:
    """The answer for one word: a name of errors, else a text. Raises Unreadable."""
    from ..reference.explain import Answer, explain, named, told_of_name

    found, advice = named(what, store), told_of_name(what, store)
    if len(found) > 1:
        # Which one is meant nobody can know.
        same = [replace(one, confidence=round(1 / len(found), 3)) for one in found]
        return Answer(None, same, None, store is not None, advice=advice)
    if found or advice:
        return Answer(found[0] if found else None, [], None, store is not None, advice=advice)
    if "/" in what or "\\" in what or _FILE_NAME.search(what):
        raise Unreadable(f"{what} is no file that can be read, and no error has this name")
    answer = explain(what, store)
    return answer if answer.match is not None else Answer(None, [], None, store is not None)


def _file(what: str) -> Path | None:
    """The file of this name, if there is one. Raises Unreadable for a folder."""
    if not what.strip():
        return None
    path = Path(what)
    try:
        if path.is_dir():
            raise Unreadable(f"{what} is a folder: name a file in it, a traceback or a log")
        return path if path.exists() else None
    except (OSError, ValueError):
        return None  # too long for a name, or with a zero byte


# -- what is shown


def show_pieces(pieces: Iterable[Piece]) -> None:
    """Print lines: with their styles on a terminal, plain elsewhere."""
    if not sys.stdout.isatty():
        for text, _ in pieces:
            sys.stdout.write(text.encode("utf-8", "replace").decode("utf-8") + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    for text, style in pieces:
        console.print(Text(text, style), soft_wrap=True)
