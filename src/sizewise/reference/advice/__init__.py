"""Advice on errors that have no record, because no Python source has their text: what torch's C++ code raises.

Each entry is known by a pattern at the start of the message and by the class. It is never a record: it has no line.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "cpp.toml"


@dataclass(frozen=True)
class Code:
    """The code of an entry; an empty text is not there. ``needs`` is ``cuda`` where it runs on such a device only."""

    setup: str = ""
    before: str = ""
    after: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Advice:
    """What is known of an error without a record. ``origin``: the code that raises it, in words."""

    title: str
    """What the error says, as the text has it or as its source names it."""
    package: str
    read_in: str
    """The version that was looked at."""
    origin: str
    documentation: str
    solutions: tuple[str, ...]
    why: str
    example_fix: str | None = None
    link: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "package": {"name": self.package, "version": self.read_in},
            "origin": self.origin,
            "documentation": self.documentation or None,
            "solutions": list(self.solutions),
            "exampleFix": self.example_fix,
            "why": [self.why],
            "link": self.link,
        }


@dataclass(frozen=True)
class Written:
    """One entry of the file."""

    package: str
    read_in: str
    pattern: str
    """A regular expression that a message starts with."""
    classes: list[str]
    """The last names of the classes it is raised as."""
    documentation: str
    solutions: list[str]
    code: Code = field(default_factory=Code)

    def says(self, error_class: str | None, message: str) -> bool:
        """Whether a message is of this error. The class may have its module, or be None where it is not told."""
        name = (error_class or "").rpartition(".")[2]
        return (not name or name in self.classes) and re.match(self.pattern, message) is not None

    def example_fix(self) -> str | None:
        """Before and after, as one text; None without both."""
        code = self.code
        if not (code.before and code.after):
            return None
        return f"{code.setup.strip()}\n\n# before\n{code.before.strip()}\n\n# after\n{code.after.strip()}".strip()


@functools.cache
def entries() -> tuple[Written, ...]:
    """Every entry, in the order of the file. Raises TypeError for a key that no entry has or that one lacks."""
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    common = {name: value for name, value in content.items() if name != "error"}
    return tuple(_entry({**common, **one}) for one in content["error"])


def _entry(content: dict[str, Any]) -> Written:
    code = Code(**content.pop("code", {}))
    return Written(code=code, **{**content, "documentation": " ".join(content["documentation"].split())})


def advice_for(error_class: str | None, message: str) -> Advice | None:
    """The advice on a C++ error by its message, or None where nobody wrote any."""
    text = message.lstrip()
    found = next((entry for entry in entries() if entry.says(error_class, text)), None)
    if found is None:
        return None
    return Advice(
        title=text.split("\n")[0],
        package=found.package,
        read_in=found.read_in,
        origin="torch's C++ code: the traceback ends at the Python line that called it",
        documentation=found.documentation,
        solutions=_texts(found.solutions),
        why="pattern: the message starts with these words",
        example_fix=found.example_fix(),
    )


def _texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(text.split()) for text in texts)
