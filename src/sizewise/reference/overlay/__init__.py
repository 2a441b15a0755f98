"""What a person wrote about errors of the installed stack: the TOML files of this folder.

An entry belongs to what an error says, not to a line: to a distribution, the last name of the error's class, and a
template whose holes are emptied (``{}``). ``match`` says how templates are compared: ``whole`` (the default),
``start`` or ``part``. An empty template that matches at the start means every error of a class that says one thing.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors.record import holes_emptied

FOLDER = Path(__file__).parent
MATCHES = ("whole", "start", "part")


@dataclass(frozen=True)
class Code:
    """The code of an entry; an empty text is not there.

    Where ``runs`` is set, the tests run ``setup`` and then ``before``, which raises the error, and ``setup`` and then
    each of the others, which end. ``raises`` names the class of what is raised where that is not the record's.
    ``needs`` is ``cuda`` where all but ``before`` and ``validation`` need such a device.
    """

    setup: str = ""
    before: str = ""
    after: str = ""
    validation: str = ""
    type_guard: str = ""
    catch: str = ""
    runs: bool = False
    raises: str = ""
    needs: str = ""

    def example_fix(self) -> str | None:
        """Before and after, as one text; None without both."""
        if not (self.before and self.after):
            return None
        return f"{self.setup.strip()}\n\n# before\n{self.before.strip()}\n\n# after\n{self.after.strip()}".strip()


@dataclass(frozen=True)
class Written:
    """One entry. ``file``, ``function`` and ``read_in``: where its writer read the condition, and in which version."""

    package: str
    error_class: str
    """The last name of the class, ``AssertionError`` for an assert; "" for a message that is only logged."""
    template: str
    file: str
    function: str
    read_in: str
    documentation: str
    trigger: str
    literals: list[str]
    """Texts that stand in the file as they are here, and tell the error from others."""
    solutions: list[str]
    tags: list[str]
    match: str = "whole"
    versions: str = ""
    """In which versions the error stands, where it does not in all."""
    common_situations: str = ""
    handling_strategy: str = ""
    prevention_tips: list[str] = field(default_factory=list)
    background: str = ""
    aliases: list[str] = field(default_factory=list)
    code: Code = field(default_factory=Code)

    def matches(self, template: str) -> bool:
        """Whether a record with this template, holes emptied, is meant."""
        if self.match == "start":
            return template.startswith(self.template)
        return self.template in template if self.match == "part" else self.template == template

    def fields(self) -> Mapping[str, Any]:
        """The written fields by their names in the record, those alone that are there; ``aliases`` and ``setup``."""
        stands = f" Stands in {self.versions}." if self.versions else ""
        said = {
            "documentation": self.documentation + stands,
            "triggerScenarios": self.trigger,
            "commonSituations": self.common_situations,
            "solutions": self.solutions,
            "exampleFix": self.code.example_fix(),
            "handlingStrategy": self.handling_strategy,
            "validationCode": self.code.validation.strip(),
            "typeGuard": self.code.type_guard.strip(),
            "tryCatchPattern": self.code.catch.strip(),
            "preventionTips": self.prevention_tips,
            "tags": self.tags,
            "backgroundTag": self.background,
            "aliases": self.aliases,
            "setup": self.code.setup.strip(),
        }
        return MappingProxyType({name: value for name, value in said.items() if value})


def read_file(path: Path) -> list[Written]:
    """The entries of one file. Raises TypeError for a key that no entry has or that one lacks."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    common = {name: value for name, value in content.items() if name != "error"}
    return [_entry({**common, **one}) for one in content["error"]]


def _entry(content: dict[str, Any]) -> Written:
    template = holes_emptied(content.pop("template"))
    code = Code(**content.pop("code", {}))
    texts = {name: " ".join(value.split()) for name, value in content.items() if isinstance(value, str)}
    return Written(template=template, code=code, **{**content, **texts})


@functools.cache
def entries() -> tuple[Written, ...]:
    """Every entry, in the order of the files' names."""
    return tuple(entry for path in sorted(FOLDER.glob("*.toml")) for entry in read_file(path))


@functools.cache
def _by_class() -> Mapping[tuple[str, str], tuple[Written, ...]]:
    found: dict[tuple[str, str], tuple[Written, ...]] = {}
    for entry in entries():
        key = (entry.package, entry.error_class)
        found[key] = (*found.get(key, ()), entry)
    return MappingProxyType(found)


def entry_for(package: str, error_class: str | None, template: str) -> Written | None:
    """The entry about an error, or None. ``error_class`` may have its module, ``template`` names in its holes."""
    known = _by_class().get((package, (error_class or "").rpartition(".")[2]))
    if not known:
        return None
    emptied = holes_emptied(template)
    return next((entry for entry in known if entry.matches(emptied)), None)


def written_for(package: str, error_class: str | None, template: str) -> Mapping[str, Any]:
    """The written fields of an error by their names, with ``aliases`` and ``setup``; empty where nobody wrote."""
    entry = entry_for(package, error_class, template)
    return entry.fields() if entry else MappingProxyType({})
