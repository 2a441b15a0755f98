"""A program: compiled pieces and split calls, joined by one generated straight-line function (`caller`)."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .effects import Effects
from .ranges import Range
from .traced import GraphInput, Traced


@dataclass
class Variant:
    """The program for one range of the first dim."""

    sizes: Range
    call: Callable[..., Any]


@dataclass(frozen=True)
class Padding:
    """Whether calls may be filled up along a dim: ``proved``, ``tested``, or ``refused`` and why.

    ``operator`` is what lets rows mix, or is not known, where one can be named.
    """

    verdict: str
    why: str = ""
    operator: str = ""

    @property
    def safe(self) -> bool:
        return self.verdict in ("proved", "tested")


@dataclass(frozen=True)
class StepName:
    """One step of a program: a piece by its structural key, or an operator between pieces by its name."""

    key: str
    is_piece: bool


@dataclass
class Program:
    """One traced and compiled program.

    ``call(weights, *sizes, *arguments)`` of a variant runs it: ``weights`` as `weight_inputs` lists them,
    sizes in the order of ``size_names``, argument tensors in the order of ``arguments``.
    """

    traced: Traced
    step_names: list[StepName]
    weight_inputs: list[GraphInput]
    size_names: list[str]
    arguments: list[str]
    source: str
    variants: list[Variant] = field(default_factory=list)
    effects: Effects = field(default_factory=Effects)
    watched: list[GraphInput] = field(default_factory=list)
    """The module's tensors that the trace asked for dtype, shape or strides, but that the graph does not read."""
    guard_lines: Callable[[], list[str]] = list
    """Every guard of the trace, in words."""
    origin: Any = None
    """What it was read from, if it was: its part of the manifest, the whole manifest, what reads files."""
    padding: dict[str, Padding] = field(default_factory=dict)
    """What is known of each dim without a trial: by the row analysis, or from where the program was read."""
    worth: dict[int, int] = field(default_factory=dict)
    """Where sizes to capture were chosen: those worth it, each with the smallest size that it serves."""
    second_path: list[str] = field(default_factory=list)
    """Its pieces that were saved, or loaded, as artifacts of torch, and why; known once it is saved or loaded."""

    @property
    def piece_keys(self) -> list[str]:
        """The structural key of every piece, in order; twins have the same."""
        return [step.key for step in self.step_names if step.is_piece]

    def variant_for(self, size: int | None) -> Variant:
        """The variant that serves ``size`` of the first dim: the smallest range that holds it."""
        holding = [v for v in self.variants if size is None or size in v.sizes]
        return min(holding, key=lambda v: v.sizes.end - v.sizes.start)


def load_caller(source: str, scope: Mapping[str, Any], pieces: Sequence[Callable[..., Any]], label: str) -> Any:
    """The function of ``source`` with ``pieces`` in place; its lines show in tracebacks."""
    filename = f"<sizewise program {label}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # The printed form of a size may call functions of either.
    named = {f"piece_{index}": piece for index, piece in enumerate(pieces)}
    namespace: dict[str, Any] = {"math": math, "torch": torch, **scope, **named}
    exec(compile(source, filename, "exec"), namespace)
    return namespace["call"]


def size_variable(dim: str) -> str:
    """The local that holds a dim's size in generated code."""
    return f"size_{dim}"
