"""Sizewise's own errors: known by their code, or by their class where the text was cut before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from ..._version import __version__ as VERSION
from ...errors.base import SizewiseError
from ...errors.own import PACKAGE, raise_sites, record_of
from ...errors.page import PAGES, page_of
from ...errors.record import Record, record_id, slug_of
from ...errors.registry import errors_by_code
from ..store import Site
from .told import Frame, Paste

__all__ = ["VERSION", "Own", "find", "named"]

Own = tuple[Record, Site, list[str]]
"""The record, where it was raised, and why it is the answer."""
_CODE = re.compile(r"sw-?(\d{3})", re.IGNORECASE)


def find(paste: Paste) -> Own | None:
    """The error whose code stands last in a text, or whose class with its module is told last."""
    errors = errors_by_code()
    for code in paste.codes:
        if code in errors:
            return _own(errors[code], [f"code: {code}"], _frames(paste))
    by_class = {f"{error.__module__}.{error.__name__}": error for error in errors.values()}
    for told in reversed(paste.told):
        if told.error_class in by_class:
            return _own(by_class[told.error_class], [f"class: {told.error_class}"], told.frames)
    return None


def _frames(paste: Paste) -> Sequence[Frame]:
    return next((told.frames for told in reversed(paste.told) if told.frames), ())


def named(name: str) -> list[Own]:
    """The errors with this code, id, slug, class name, or another name that a page gives; classes may share a name."""
    errors = errors_by_code()
    if found := _CODE.fullmatch(name):
        error = errors.get(f"SW{found[1]}")
        return [_own(error, [f"code: {error.code}"])] if error else []
    same = [error for error in errors.values() if name in (error.__name__, slug_of(error.message), _id(error))]
    if same:
        return [_own(error, ["name"]) for error in same]
    for path in sorted(PAGES.glob("*.toml")):
        # Few pages give other names: not worth the reading of them all.
        if path.stem in errors and name in path.read_text(encoding="utf-8"):
            page = page_of(path.stem)
            if page is not None and name in page.aliases:
                return [_own(errors[path.stem], ["another name of it"])]
    return []


def _id(error: type[SizewiseError]) -> str:
    return record_id("sizewise", error.__module__, error.__name__, "raise", error.__name__, error.message, 0)


def _own(error: type[SizewiseError], why: list[str], frames: Sequence[Frame] = ()) -> Own:
    record = record_of(error)
    path, line = record.filePath, record.lineNumber
    wanted = {(frame.parts[-1], frame.line) for frame in frames if frame.parts}
    if wanted:
        # One class may be raised in several places: the traceback says which.
        sites = ((site.path, site.line) for site in raise_sites(error))
        path, line = next((one for one in sites if (one[0].rpartition("/")[2], one[1]) in wanted), (path, line))
    qualname, condition = _surroundings(path, line)
    return record, Site(path, line, qualname, condition), why


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
