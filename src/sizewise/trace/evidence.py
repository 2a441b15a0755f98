"""What Dynamo says about a trace: its guards, its side effects, the values it hands on.

Private API: guard entries as ``guard_filter_fn`` gets them (``orig_guard.originating_source``,
``.create_fn.keywords``), ``OutputGraph.get_replayed_side_effect_source_refs``, the local ``stack_values_flat`` of
``OutputGraph.compile_subgraph`` and ``VariableTracker.visit``. Checked on torch 2.13.0 and 2.14.1. What says which
attribute is changed, and where, is passed over where it is missing: ``store_attr_mutations``,
``mutation_user_stacks`` and ``_get_modified_vars`` of ``OutputGraph.side_effects``, ``items`` and ``original_items``
of its dicts. Checked on torch 2.13.0.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import trace as errors
from ..traced.guards import RETURNED, GuardRecord
from .lines import stack_location
from .sources import path_of

_COMPUTED = ("TensorVariable", "SymNodeVariable", "UnspecializedPythonVariable")

HARMLESS_EFFECTS = (
    # transformers.utils.output_capturing sets and resets it around every forward.
    "._active_collector",
)
"""Side effects that leave nothing behind, by the end of the name Dynamo gives them."""


@dataclass(frozen=True)
class Effect:
    """A change of a Python object, by Dynamo's name for the object.

    ``attributes`` are those that are set, or the entries of a module's ``_buffers`` and the like; () where Dynamo does
    not say. ``where`` is the user's line, or ''.
    """

    source: str
    attributes: tuple[str, ...] = ()
    where: str = ""


def side_effects() -> list[Effect]:
    """What the code around the graph would do to Python objects; called by a backend.

    Dynamo's output graph is found on the stack: the backend is called from one of its methods. Its own
    warning about side effects goes through ``warnings``, which other threads may be changing.
    """
    for names in _frames():
        owner: Any = names.get("self")
        if type(owner).__name__ == "OutputGraph" and hasattr(owner, "get_replayed_side_effect_source_refs"):
            sources = owner.get_replayed_side_effect_source_refs()
            known = {effect.source: effect for effect in _effects(getattr(owner, "side_effects", None))}
            return [known.get(name, Effect(name)) for name in sources if not name.endswith(HARMLESS_EFFECTS)]
    raise errors.NotTraceable(
        owner="the module",
        reason=f"torch {torch.__version__} does not say which side effects a trace has",
        where="",
        graph_break="",
        hint="use torch 2.11 to 2.14.",
    )


def _effects(found: Any) -> Iterator[Effect]:
    """The changes that Dynamo keeps a source for, with their attributes and lines."""
    modified = getattr(found, "_get_modified_vars", None)
    stored = getattr(found, "store_attr_mutations", {})
    stacks = getattr(found, "mutation_user_stacks", {})
    for variable in modified() if modified is not None else ():
        name = _name_of(getattr(variable, "source", None))
        if name:
            attributes = stored.get(variable) or _new_entries(variable, name)
            stack = next(iter(stacks.get(variable, ())), ())
            yield Effect(name, tuple(map(str, attributes)), stack_location(stack))


def _name_of(source: Any) -> str:
    """The name of a source; '' for one of what was made during the trace, which has none."""
    try:
        name = getattr(source, "name", "")
    except NotImplementedError:
        return ""
    return name if isinstance(name, str) else ""


def _new_entries(variable: Any, name: str) -> list[Any]:
    """The keys that were set in a registry of a module, whose keys are names."""
    if not name.endswith(("._buffers", "._parameters", "._modules")):
        return []
    before = getattr(variable, "original_items", {})
    return [key.vt.as_python_constant() for key, value in variable.items.items() if before.get(key) is not value]


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
