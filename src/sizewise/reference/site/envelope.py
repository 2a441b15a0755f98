"""The JSON of one error: its record and what surrounds it, valid against ``error-record.schema.json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .entry import Entry
from .face import Face
from .related import Relative

SCHEMA = Path(__file__).parent / "error-record.schema.json"


def envelope(entry: Entry, related: Sequence[Relative], aliases: Sequence[str], made: str) -> dict[str, Any]:
    """``made``: when the data set was made, as RFC 3339 has it."""
    return {
        "record": entry.record.to_json(),
        "datasetVersion": made,
        "related": [
            {"id": one.face.id, "slug": one.face.slug, "title": one.face.title, "why": one.why} for one in related
        ],
        "sites": [
            {
                "filePath": site.path,
                "lineNumber": site.line,
                "qualname": site.qualname or None,
                "guard": site.condition or None,
            }
            for site in entry.sites
        ],
        "package": {"name": entry.package, "version": entry.version},
        "aliases": list(aliases),
    }


def summary(face: Face) -> dict[str, Any]:
    """One error in a list of many."""
    return {
        "id": face.id,
        "slug": face.slug,
        "title": face.title,
        "errorCode": face.code,
        "errorClass": face.error_class,
        "severity": face.severity,
        "package": face.package,
    }
