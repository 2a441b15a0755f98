"""Sizewise's own errors as entries."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..._version import __version__
from ...errors.base import SizewiseError
from ...errors.own import PACKAGE, raise_sites, record_of
from ...errors.page import page_of
from ...errors.registry import errors_by_code
from ..store import Site
from .entry import Entry

NAME = "sizewise"


def own_entries() -> Iterator[Entry]:
    """Every error of the registry, in the order of the codes; those without a page have what the class says."""
    conditions = lru_cache(maxsize=None)(_conditions)
    for code, error in errors_by_code().items():
        record, page = record_of(error), page_of(code)
        sites = tuple(
            Site(site.path, site.line, site.qualname, conditions(site.path).get(site.line, ""))
            for site in raise_sites(error)
        )
        yield Entry(
            record=record,
            package=NAME,
            version=__version__,
            sites=sites,
            groups=(_branch(error), NAME),
            aliases=(code, record.slug, *(page.aliases if page else ())),
            related=tuple(page.related) if page else (),
            remedy=error.remedy,
            fields=page.fields if page else {},
            setup=page.code.setup.strip() if page else "",
        )


def _branch(error: type[SizewiseError]) -> str:
    return next((base.__name__ for base in error.__mro__[1:] if base.__base__ is SizewiseError), error.__name__)


def _conditions(path: str) -> dict[int, str]:
    """Line -> the source of the innermost ``if`` around it, in one file of the package."""
    found: dict[int, str] = {}
    tree = ast.parse((PACKAGE.parent / path).read_text(encoding="utf-8"))
    # Breadth first: an inner condition comes later and replaces the outer one.
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            found.update(dict.fromkeys(_lines_of(node.body), test))
            found.update(dict.fromkeys(_lines_of(node.orelse), f"not ({test})"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # What decides whether a function is defined does not decide what it raises.
            for line in _lines_of([node]):
                found.pop(line, None)
    return found


def _lines_of(body: Sequence[ast.stmt]) -> range:
    return range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1) if body else range(0)
