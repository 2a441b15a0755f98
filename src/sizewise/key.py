"""A program's key: everything that changes what is built, in one hash, with its parts by name.

Equal keys mean that one program may stand for the other. Parts: the structure of every piece and the
order of the steps, the call's Python values, the Python values the trace read, dims and their policy,
config, operators, passes, ambient state, versions. Not in it: weights, names, paths.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from . import ambient
from ._version import __version__
from .config.compilation import CompilationConfig
from .guards import Snapshot
from .ops import REGISTRY
from .passes import PASSES, digests
from .program import Program


def key_factors(
    program: Program, snapshot: Snapshot, config: CompilationConfig, state: tuple[Any, ...]
) -> dict[str, Any]:
    """The parts of a program's key; all JSON."""
    traced = program.traced
    return {
        "steps": [step.key for step in program.step_names],
        "caller": hashlib.sha256(program.source.encode()).hexdigest(),
        "call": repr(traced.call.key()),
        "python_values": snapshot.constants(),
        "dims": {name: [dim.min, dim.max, traced.policy.get(name, "")] for name, dim in traced.dims.items()},
        "ranges": [str(variant.sizes) for variant in program.variants],
        "config": config.digest(),
        "operators": REGISTRY.digests(),
        "passes": digests(PASSES),
        "ambient": {name: str(value) for name, value in zip(ambient.NAMES, state, strict=True)},
        "versions": {"sizewise": __version__, "torch": torch.__version__},
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }


def key_of(factors: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over the factors."""
    return hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()
