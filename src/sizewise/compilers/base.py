"""What a compiler is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import fx


@dataclass(frozen=True)
class Artifact:
    """A compiled piece.

    ``runnable`` takes one list of inputs, which it may empty, and returns the outputs as a sequence.
    ``is_raw`` says that it is the generated code itself, with no wrapper around each call.
    """

    runnable: Callable[[list[Any]], Sequence[Any]]
    compiler: str
    is_raw: bool
    source: str
    seconds: float
    why_wrapped: str = ""
    finish: Callable[[], None] = field(default=lambda: None, compare=False)
    """Waits for what is still being built in the background; the runnable may not be called before. Raises as
    `Compiler.compile` does."""
    code: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    """The generated code itself, also where the runnable is a wrapper around it."""
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The compiler's settings that it was compiled with."""


class Compiler(Protocol):
    name: str

    def compile(
        self, graph: fx.GraphModule, example_inputs: Sequence[Any], fake_mode: Any, options: Mapping[str, Any]
    ) -> Artifact:
        """Compile ``graph`` for inputs like ``example_inputs`` (fake tensors and sizes)."""
        ...
