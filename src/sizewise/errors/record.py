"""The record of an error: what a page, a JSON file and ``exception.record`` say about it.

The names are those of the JSON schema of error records, version 2. Fields that only a writer can fill are None or
empty where nobody wrote them; they are never filled with words that say nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

SLUG_LENGTH = 50
TITLE_LENGTH = 60
_HOLE = re.compile(r"\{[^{}]*\}")
_TOKEN = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]")


@dataclass(frozen=True)
class Record:
    """One error, by its template. Positions are those of its first site; lines count from 1."""

    id: str
    """16 hex digits; see `record_id`."""
    repo: str | None
    slug: str
    errorMessage: str
    """The template; what is filled in stands as ``{expression}``."""
    messagePattern: str
    """A regular expression that a message of this error matches as a whole."""
    errorClass: str | None
    filePath: str
    lineNumber: int
    sourceCode: str = ""
    sourceCodeStart: int = 1
    sourceCodeEnd: int = 1
    errorCode: str | None = None
    errorType: str = "exception"
    httpStatus: int | None = None
    severity: str = "error"
    githubUrl: str | None = None
    documentation: str | None = None
    triggerScenarios: str | None = None
    commonSituations: str | None = None
    solutions: list[str] = field(default_factory=list)
    exampleFix: str | None = None
    handlingStrategy: str | None = None
    validationCode: str | None = None
    typeGuard: str | None = None
    tryCatchPattern: str | None = None
    preventionTips: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    backgroundTag: str | None = None
    analyzedSha: str | None = None
    analyzedAt: str | None = None
    schemaVersion: int = 2

    def to_json(self) -> dict[str, Any]:
        """The record as the schema has it, ready for ``json.dumps``."""
        return asdict(self)


def slug_of(template: str) -> str:
    """A template as a part of an address: at most 50 characters of a to z, 0 to 9 and single hyphens."""
    text = re.sub(r"[^a-z0-9]+", "-", template.lower()).strip("-")
    return text[:SLUG_LENGTH].strip("-") or "error"


def pattern_of(template: str) -> str:
    """The regular expression of a template: literal text, and anything where something is filled in.

    ``{{`` and ``}}`` are literal braces, as in `str.format`.
    """
    tokens = _TOKEN.findall(template)
    parts: list[str] = []
    for place, token in enumerate(tokens, 1):
        if token[0] == "{" and token[-1] == "}":
            parts.append(r"[\s\S]*?" if place < len(tokens) else r"[\s\S]*")
        else:
            parts.append(re.escape(token[0] if token in ("{{", "}}") else token))
    return "".join(parts)


def holes_emptied(template: str) -> str:
    """A template without what its holes say, so that a renamed variable leaves the id as it is."""
    return _HOLE.sub("{}", template.replace("{{", "\0").replace("}}", "\1"))


def record_id(
    package: str, module: str, qualname: str, kind: str, error_class: str, template: str, ordinal: int
) -> str:
    """16 hex digits that no line number changes: SHA-256 over where an error is raised and what it says.

    ``ordinal`` tells apart sites that agree in all the rest, in the order of the source, from 0.
    """
    parts: Sequence[str] = (package, module, qualname, kind, error_class, holes_emptied(template), str(ordinal))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]
