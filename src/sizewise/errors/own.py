"""The records of Sizewise's own errors: class, template, page and the line that raises it, joined."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import SizewiseError
from .page import Page, page_of
from .record import Record, pattern_of, record_id, slug_of

PACKAGE = Path(__file__).parent.parent
WINDOW = 18
"""Lines of source shown before and after the line that raises."""


@dataclass(frozen=True)
class RaiseSite:
    """Where the package makes an error. ``path`` starts with ``sizewise/``; lines count from 1."""

    path: str
    line: int
    qualname: str


def record_of(error: type[SizewiseError]) -> Record:
    """The record of a concrete error class."""
    site = next(raise_sites(error), RaiseSite(_relative(Path(_file_of(error))), 1, error.__name__))
    lines = (PACKAGE.parent / site.path).read_text().splitlines()
    first, last = max(1, site.line - WINDOW), min(len(lines), site.line + WINDOW)
    page = page_of(error.code)
    return Record(
        id=record_id("sizewise", error.__module__, error.__name__, "raise", error.__name__, error.message, 0),
        repo=None,
        slug=slug_of(error.message),
        errorMessage=error.message,
        messagePattern=pattern_of(error.message),
        errorClass=error.__name__,
        errorCode=error.code,
        filePath=site.path,
        lineNumber=site.line,
        sourceCode="\n".join(lines[first - 1 : last]) + "\n",
        sourceCodeStart=first,
        sourceCodeEnd=last,
        **(_written(page) if page is not None else {}),
    )


def _written(page: Page) -> dict[str, Any]:
    return {
        "severity": page.severity,
        "documentation": page.documentation,
        "triggerScenarios": page.trigger,
        "commonSituations": page.common_situations,
        "solutions": list(page.solutions),
        "exampleFix": page.code.example_fix(),
        "handlingStrategy": page.handling_strategy,
        "validationCode": page.code.validation.strip() or None,
        "typeGuard": page.code.type_guard.strip() or None,
        "tryCatchPattern": page.code.catch.strip() or None,
        "preventionTips": list(page.prevention_tips),
        "tags": list(page.tags),
        "backgroundTag": page.background or None,
    }


def raise_sites(error: type[SizewiseError]) -> Iterator[RaiseSite]:
    """Every place in the package that makes an error of this class."""
    branch = error.__module__.rsplit(".", 1)[-1]
    call = f"{error.__name__}("
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "errors":
            continue
        text = path.read_text()
        if call in text:
            yield from _sites_in(ast.parse(text), _relative(path), branch, error.__name__)


def _sites_in(tree: ast.Module, path: str, branch: str, name: str) -> Iterator[RaiseSite]:
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == branch
    }
    direct = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == branch
        for alias in node.names
        if alias.name == name
    }
    for node, qualname in _walk(tree, ()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in direct:
            yield RaiseSite(path, node.lineno, qualname)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            owner = node.func.value
            # `errors.X` by an alias of the branch, or `errors.branch.X`.
            last = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if last in aliases or last == branch:
                yield RaiseSite(path, node.lineno, qualname)


def _walk(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        inner = names
        if isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            inner = (*names, child.name)
        yield child, ".".join(inner)
        yield from _walk(child, inner)


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix()


def _file_of(error: type[SizewiseError]) -> str:
    return str(PACKAGE.parent / f"{error.__module__.replace('.', '/')}.py")
