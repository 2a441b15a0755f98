"""What torch's own registry of graph breaks says about an exception of Dynamo.

Private API: the file ``graph_break_registry.json`` beside torch._dynamo, ``gb_type`` of its exceptions, and the first
line of their text, which is the type as well. Checked on torch 2.13.0 (517 ids) and 2.14.1. Without the file, or with
a type that it does not list, there is no id, and what the exception's own text says is used.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_BOILERPLATE = ("It may be possible to write Dynamo tracing rules", "Please report an issue to PyTorch")
"""Hints for torch's developers: they tell a user of this module nothing to do."""


@dataclass(frozen=True)
class GraphBreak:
    """One entry. ``id`` is torch's (``GB0170``), '' where the registry has none; texts are torch's own."""

    id: str
    type: str
    explanation: str
    hints: tuple[str, ...]

    def __str__(self) -> str:
        """Lines for a message, '' where there is no id to look up."""
        if not self.id:
            return ""
        told = f": {self.explanation}" if self.explanation else ""
        hints = "".join(f"\n    torch's hint: {hint}" for hint in self.hints)
        return f"\n  graph break {self.id} of torch {torch.__version__.partition('+')[0]}{told}{hints}"


def graph_break(problem: BaseException) -> GraphBreak:
    """The graph break that ``problem`` reports. Its own text, which is filled in, comes before the registry's."""
    text = str(problem)
    type_ = getattr(problem, "gb_type", None) or text.strip().partition("\n")[0].strip()
    id_, entry = _entry(type_)
    explanation = re.search(r"^  Explanation: (.*)$", text, re.MULTILINE)
    hints = re.findall(r"^  Hint: (.*(?:\n    .*)*)$", text, re.MULTILINE)
    # The registry keeps the source of a text that is put together; only what has no holes reads as a text.
    hints = hints or [hint for hint in entry.get("Hints", ()) if "{" not in hint]
    told = _one_line(explanation.group(1)) if explanation else ""
    return GraphBreak(id_, type_, told, tuple(dict.fromkeys(_useful(hints))))


def _entry(type_: str) -> tuple[str, dict[str, Any]]:
    """The id and the newest wording of a type; the file is read at each call, since errors are rare."""
    for id_, wordings in _registry().items():
        for wording in wordings:
            if wording.get("Gb_type") == type_:
                return id_, wording
    return "", {}


def _registry() -> dict[str, list[dict[str, Any]]]:
    path = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _useful(hints: list[str]) -> list[str]:
    lines = [_one_line(hint) for hint in hints]
    return [line for line in lines if line and not line.startswith(_BOILERPLATE)]


def _one_line(text: str) -> str:
    return " ".join(text.split())
