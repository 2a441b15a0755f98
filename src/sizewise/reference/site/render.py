"""The pages as HTML. Needs jinja2, from the extra ``serve``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ..conditions import says_something
from ..titles import says_words
from .catalogue import Catalogue
from .entry import Entry
from .face import Face
from .links import Links
from .projects import tracker
from .related import Relative

ASSETS = Path(__file__).parent / "assets"
MESSAGE_LENGTH = 200
"""Characters of a message that search in the browser knows."""
_HOLE = re.compile(r"(\{[^{}]*\})")
_CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Line:
    """A line of source; ``raises`` marks the one a page is about."""

    number: int
    text: str
    raises: bool


class Renderer:
    """Renders the pages of one catalogue. ``made``: when the data set was made, as RFC 3339 has it."""

    def __init__(self, catalogue: Catalogue, made: str) -> None:
        self._catalogue, self._made = catalogue, made

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=PackageLoader(__package__),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(holes=holes, prose=prose, source_lines=source_lines)
        environment.tests.update(telling=says_something, worded=says_words)
        return environment

    def error(self, entry: Entry, related: Sequence[Relative], links: Links) -> str:
        """The page of an error."""
        return self._render(
            "error.html",
            links,
            entry=entry,
            record=entry.record,
            related=related,
            date=(entry.record.analyzedAt or self._made)[:10],
        )

    def home(self, links: Links, query: str = "", found: Sequence[Face] = ()) -> str:
        """The first page; with what a query found, where scripts do not run."""
        groups: dict[str, list[Entry]] = {}
        for entry in self._catalogue.own():
            groups.setdefault(entry.groups[0], []).append(entry)
        return self._render(
            "index.html",
            links,
            groups=groups,
            packages=self._catalogue.packages(),
            total=len(self._catalogue),
            query=query,
            found=found,
        )

    def refusal(self, links: Links, title: str, message: str) -> str:
        """The page for an address that has none."""
        return self._render("refusal.html", links, title=title, message=message)

    def report(self, links: Links) -> str:
        """The page that says where to report what is wrong."""
        names = self._catalogue.packages()
        return self._render("report.html", links, trackers={name: tracker(name) for name in names})

    def _render(self, template: str, links: Links, **values: Any) -> str:
        made = self._made[:10]
        return self._environment.get_template(template).render(links=links, made=made, **values)


def search_script(catalogue: Catalogue) -> str:
    """The errors as the browser searches them: JSON inside a script, which loads from a disk as well."""
    rows = [_row(face) for face in catalogue.faces]
    return f"window.sizewiseErrors = {json.dumps(rows, separators=(',', ':'))};\n"


def _row(face: Face) -> list[str]:
    message = " ".join(face.message.split())
    row = [face.id, face.code or "", face.error_class or "", face.package, message[:MESSAGE_LENGTH]]
    # The title only where it is another text.
    return row if face.title == message else [*row, face.title]


def holes(message: str) -> Markup:
    """A template with its holes marked; doubled braces are no holes."""
    masked = message.replace("{{", "\0").replace("}}", "\1")
    parts = [
        Markup('<var class="hole">{}</var>').format(_unmasked(part)) if number % 2 else escape(_unmasked(part))
        for number, part in enumerate(_HOLE.split(masked))
    ]
    return Markup("").join(parts)


def _unmasked(text: str) -> str:
    return text.replace("\0", "{{").replace("\1", "}}")


def prose(text: str) -> Markup:
    """A written text: escaped, what stands in backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def source_lines(entry: Entry) -> Iterator[Line]:
    """The window of source that a record has, line by line."""
    record = entry.record
    # Lines end with "\n" alone: `str.splitlines` would cut at form feeds as well, and count more of them.
    texts = record.sourceCode.removesuffix("\n").split("\n")
    for number, text in enumerate(texts, record.sourceCodeStart):
        yield Line(number, text.rstrip("\r"), bool(entry.sites) and number == record.lineNumber)
