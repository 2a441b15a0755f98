"""Sizewise's own errors: known by their code, or by their class where the text was cut before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..._version import __version__ as VERSION
from ...errors.base import SizewiseError
from ...errors.own import PACKAGE, raise_sites, record_of
from ...errors.page import PAGES, page_of
from ...errors.record import Record, record_id, slug_of
from ...errors.registry import errors_by_code
from ..store import Site
from .chains import last_of_each
from .told import Frame, Paste, Told
from .wording import Said, fit

__all__ = ["VERSION", "Own", "find", "named"]

PLACES = 4
"""As many of the lines that raise an error are looked at, where the text names none."""


@dataclass(frozen=True)
class Own:
    """An error: its record, the lines that may have raised it, why it is the answer, how many lines raise it."""

    record: Record
    sites: tuple[Site, ...]
    why: list[str]
    total: int


WORDED = 12
"""Letters and digits of an error's own words that have to stand beside a code that stands elsewhere in a message."""
_IN_BRACKETS = re.compile(r"\[(SW\d{3})\]")
_CODE = re.compile(r"sw-?(\d{3})", re.IGNORECASE)


def find(paste: Paste) -> tuple[Own, Told | None] | None:
    """The error that a text ends with, by its code or by its class with its module; and where it is told.

    A code counts where it stands as Sizewise writes it, alone, or beside its error's class or words.
    """
    errors = errors_by_code()
    by_class = {f"{error.__module__}.{error.__name__}": error for error in errors.values()}
    for told in reversed(last_of_each(paste.told)):
        for code in reversed(_IN_BRACKETS.findall(told.message)):
            if code in errors and _means(told, errors[code]):
                return _own(errors[code], [f"code: {code}"], told.frames), told
        if told.error_class in by_class:
            return _own(by_class[told.error_class], [f"class: {told.error_class}"], told.frames), told
    return None


def _means(told: Told, error: type[SizewiseError]) -> bool:
    """Whether the error's code in a message is more than a name in brackets."""
    code, message = error.code, told.message.strip()
    if message == f"[{code}]" or told.short_class == error.__name__ or message.startswith(f"{error.__name__}: "):
        return True
    if any(line.endswith(f"[{code}] sizewise explain {code}") for line in map(str.rstrip, message.splitlines())):
        return True
    fitted = fit(error.message, Said.of(message))
    return fitted is not None and fitted.form != "words" and fitted.literal >= WORDED


def named(name: str) -> list[Own]:
    """The errors with this code, id, slug, class name, or another name that a page gives; classes may share a name."""
    errors = errors_by_code()
    if found := _CODE.fullmatch(name):
        error = errors.get(f"SW{found[1]}")
        return [_own(error, [f"code: {error.code}"])] if error else []
    same = [error for error in errors.values() if name in _names(error)]
    if same:
        return [_own(error, ["name"]) for error in same]
    for path in sorted(PAGES.glob("*.toml")):
        # Few pages give other names: not worth the reading of them all.
        if path.stem in errors and name in path.read_text(encoding="utf-8"):
            page = page_of(path.stem)
            if page is not None and name in page.aliases:
                return [_own(errors[path.stem], ["another name of it"])]
    return []


def _names(error: type[SizewiseError]) -> tuple[str, ...]:
    dotted = f"{error.__module__}.{error.__name__}"
    return error.__name__, dotted, slug_of(error.message), _id(error)


def _id(error: type[SizewiseError]) -> str:
    return record_id("sizewise", error.__module__, error.__name__, "raise", error.__name__, error.message, 0)


def _own(error: type[SizewiseError], why: list[str], frames: Sequence[Frame] = ()) -> Own:
    record = record_of(error)
    sites = [(site.path, site.line) for site in raise_sites(error)]
    wanted = {(frame.parts[-1], frame.line) for frame in frames if frame.parts}
    # One class may be raised in several places: the traceback says which.
    named = [one for one in sites if (one[0].rpartition("/")[2], one[1]) in wanted]
    places = named[:1] or sites[:PLACES] or [(record.filePath, record.lineNumber)]
    kept = tuple(Site(path, line, *_surroundings(path, line)) for path, line in places)
    return Own(record, kept, why, max(1, len(sites)))


def _surroundings(path: str, line: int) -> tuple[str, str]:
    """(qualified name of the function, source of the innermost ``if``) around a line of the package."""
    names: list[str] = []
    condition = ""
    node: ast.AST | None = ast.parse((PACKAGE.parent / path).read_text(encoding="utf-8"))
    while node is not None:
        node = next((child for child in ast.iter_child_nodes(node) if _holds(child, line)), None)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
            condition = ""
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)
            inside = node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
            condition = test if inside else f"not ({test})"
    return ".".join(names), condition


def _holds(node: ast.AST, line: int) -> bool:
    if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
        return False
    if isinstance(node, ast.match_case):
        return node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
    return node.lineno <= line <= (node.end_lineno or 0)
