"""A program from the cache against eager mode, for the one call that is at hand. Imports no compiler."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..built import Target
from ..calls import Call
from ..dispatch import MISS, Entry
from .exact import ExactReference
from .state import ModuleState, own_copy
from .tolerance import compare, sum_depth


def differs(target: Target, entries: Sequence[Entry], call: Call) -> str:
    """Where ``entries`` give something else than ``target`` in eager mode, in words; '' where they do not.

    The module's state is put back. A call that eager mode cannot run is not compared: the build says so.
    """
    module = target.module
    written = frozenset(name for entry in entries for name in entry.program.effects.written_parameters)
    state = ModuleState(module, written)
    depth = sum_depth(module)
    with torch.inference_mode(False), torch.no_grad():
        try:
            try:
                wanted = _run(target.original, call)
            except Exception:
                return ""
            after = state.current()
            state.restore()
            seen = next((result for entry in entries if (result := _run(entry.call, call)) is not MISS), MISS)
            if seen is MISS:
                return ""
            found = compare(wanted, seen, depth)
            if found is not None and math.isfinite(found.relative):
                found = compare(wanted, seen, depth, exact=ExactReference(module)(call))
            found = found or compare(after, state.current(), depth, path="tensors")
        finally:
            state.restore()
    return "" if found is None else f"{found.path} {found.what}"


def _run(function: object, call: Call) -> object:
    copied = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
    return function(*copied.args, **copied.kwargs)  # type: ignore[operator]
