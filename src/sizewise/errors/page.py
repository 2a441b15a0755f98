"""What a person wrote about one of Sizewise's errors: a TOML file per code, in ``pages``.

Code in a page is run by the tests: ``setup`` and then ``bad`` raises the page's error; ``setup`` and then each of
``fixed``, ``validation``, ``type_guard`` and ``catch`` runs to its end.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent / "pages"


@dataclass(frozen=True)
class Code:
    """The code of a page. ``setup`` comes before each of the others; an empty one is not there."""

    setup: str
    bad: str
    fixed: str
    validation: str
    catch: str
    type_guard: str = ""

    def example_fix(self) -> str:
        """Before and after, as one text."""
        return f"{self.setup.strip()}\n\n# before\n{self.bad.strip()}\n\n# after\n{self.fixed.strip()}".strip()


@dataclass(frozen=True)
class Page:
    """The written part of an error's record; `record.Record` says what each field is."""

    documentation: str
    trigger: str
    common_situations: str
    solutions: list[str]
    handling_strategy: str
    prevention_tips: list[str]
    related: list[str]
    tags: list[str]
    fields: Mapping[str, str]
    """Field of the message -> its type and what it is: ``"int: the size that was seen"``."""
    code: Code
    background: str = ""
    severity: str = "error"
    aliases: list[str] = field(default_factory=list)
    """Other ids and slugs under which the page is found."""


def page_of(code: str) -> Page | None:
    """The page of a code, or None where there is none."""
    path = PAGES / f"{code}.toml"
    return read_page(path) if path.is_file() else None


def read_page(path: Path) -> Page:
    """Read one page. Raises TypeError for a key that no page has, as tests want to know."""
    content: dict[str, Any] = tomllib.loads(path.read_text())
    code = Code(**content.pop("code"))
    texts = {name: " ".join(value.split()) for name, value in content.items() if isinstance(value, str)}
    return Page(code=code, fields=content.pop("fields", {}), **{**content, **texts})
