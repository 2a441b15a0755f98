"""What Dynamo says about a trace: its guards, its side effects, the values it hands on.

Private API: guard entries as ``guard_filter_fn`` gets them (``orig_guard.originating_source``,
``.create_fn.keywords``), ``OutputGraph.get_replayed_side_effect_source_refs``, the local ``stack_values_flat`` of
``OutputGraph.compile_subgraph`` and ``VariableTracker.visit``. Checked on torch 2.13.0 and 2.14.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import trace as errors
from .sources import MODULE, SourcePath, path_of

RETURNED = "RETURNED"
"""The kind of a record that is no guard of Dynamo's: a value that is returned as it is."""

_COMPUTED = ("TensorVariable", "SymNodeVariable", "UnspecializedPythonVariable")

HARMLESS_EFFECTS = (
    # transformers.utils.output_capturing sets and resets it around every forward.
    "._active_collector",
)
"""Side effects that leave nothing behind, by the end of the name Dynamo gives them."""


@dataclass
class GuardRecord:
    """One guard Dynamo made: its kind, what it is on, and an argument some kinds have.

    ``path`` is None where the guard is on no value (sizes, ambient state) or where its source is of a class
    that `sources` does not know; ``source`` names that class.
    """

    kind: str
    name: str
    path: SourcePath | None
    source: str
    attribute: str = ""
    other: SourcePath | None = None
    """The second place of a guard on two of them."""

    @property
    def in_words(self) -> str:
        return f"{self.kind} on {str(self.path).replace(MODULE, 'self') if self.path else self.name or 'the process'}"


def side_effects() -> list[str]:
    """What the code around the graph would do to Python objects, by Dynamo's names; called by a backend.

    Dynamo's output graph is found on the stack: the backend is called from one of its methods. Its own
    warning about side effects goes through ``warnings``, which other threads may be changing.
    """
    for names in _frames():
        owner: Any = names.get("self")
        if type(owner).__name__ == "OutputGraph" and hasattr(owner, "get_replayed_side_effect_source_refs"):
            sources = owner.get_replayed_side_effect_source_refs()
            return [source for source in sources if not source.endswith(HARMLESS_EFFECTS)]
    raise errors.NotTraceable(
        owner="the module",
        reason=f"torch {torch.__version__} does not say which side effects a trace has",
        where="",
        graph_break="",
        hint="use torch 2.11 to 2.14.",
    )


def returned_values() -> list[GuardRecord]:
    """Python values that the forward hands on as they are, which Dynamo therefore puts no guard on.

    Called by a backend. Values of tensors and of what the graph computes are not among them.
    """
    values = next((names["stack_values_flat"] for names in _frames() if "stack_values_flat" in names), None)
    found: list[GuardRecord] = []

    def note(variable: Any) -> None:
        source = getattr(variable, "source", None)
        if source is not None and type(variable).__name__ not in _COMPUTED:
            path = path_of(source)
            if path is not None:  # what Dynamo made itself has no place of the user's
                found.append(GuardRecord(RETURNED, str(path), path, type(source).__name__))

    if values:
        type(values[0]).visit(note, list(values))
    return found


def _frames() -> Iterator[dict[str, Any]]:
    """The locals of the frames around the caller, innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame.f_locals
        frame = frame.f_back


def record(entry: Any) -> GuardRecord:
    source = entry.orig_guard.originating_source
    keywords = getattr(entry.orig_guard.create_fn, "keywords", {})
    attribute = str(keywords.get("attr", ""))
    second = keywords.get("source_b")
    other = path_of(second) if second is not None else None
    return GuardRecord(entry.guard_type, entry.name, path_of(source), type(source).__name__, attribute, other)
