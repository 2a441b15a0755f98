"""What a trace found, as far as calls have to be served with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..calls import Call
from ..dims import Dim, DimSpec
from .code import TracedCode
from .guards import GuardRecord
from .outputs import Output
from .sizes import Assumption, SizeFunction


@dataclass(frozen=True)
class GraphInput:
    """One placeholder.

    ``kind``: ``parameter``, ``buffer`` or ``attribute`` (a tensor of the module at ``steps``), ``dynamic``
    (the argument ``path``), ``persistent`` (an argument bound once), ``derived`` (made from another input
    by a recipe), or ``size`` (the size ``path.shape[axis]``).
    """

    kind: str
    name: str
    path: str
    steps: tuple[tuple[str, Any], ...] = ()
    axis: int | None = None
    shape: tuple[int | SizeFunction, ...] = ()
    stride: tuple[int | SizeFunction, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    recipe: str = ""


@dataclass(kw_only=True)
class Traced:
    """One trace: inputs, the template of its result, and everything it took for granted."""

    owner: str
    inputs: list[GraphInput]
    template: Output
    spec: DimSpec
    dims: dict[str, Dim]
    policy: dict[str, str]
    assumptions: list[Assumption]
    guards: list[GuardRecord]
    call: Call
    """The call it was made for."""
    scope: dict[str, Any] = field(default_factory=dict)
    """The globals that paths start from."""
    code: TracedCode = field(default_factory=TracedCode)
    """The code the trace went through."""
    sources: dict[str, str] = field(default_factory=dict)
    """The digests of its files, by module (`files.digests_of`)."""
    notes: list[str] = field(default_factory=list)
    blocks: str = ""
    """How equal blocks were traced, in words; '' where there are none."""
