"""What an eager call does besides computing: what it writes to, and what its results share memory with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..calls import Call
from ..errors import build as errors
from ..errors import trace as trace_errors
from ..trace.graph import TracedGraph
from .sharing import Sharing, sharing
from .state import ModuleState, ParameterWatch, in_words, own_copy, same_bits
from .tolerance import compare, sum_depth

Runner = Callable[[Call], Any]


@dataclass(frozen=True)
class Observation:
    """What an eager call does to its arguments."""

    written: frozenset[str]
    aliased: frozenset[str]
    """Arguments that an output is, or shares memory with."""
    writes_module: bool
    """Whether the call writes to the module's own tensors."""
    written_parameters: frozenset[str]
    """Those of them that are parameters."""
    by_stride: frozenset[str]
    """All arguments, where a result depends on how they lie in memory and not only on their values."""
    sharing: Sharing
    """What the results share memory with."""


def observe(run_eager: Runner, traced: TracedGraph, module: nn.Module) -> Observation:
    """Which arguments an eager call writes to, and which its outputs are or share memory with.

    Raises:
        EagerFails (SW309): the module does not run on its own example.
    """
    state = ModuleState(module)
    call = traced.call.with_values({leaf.path: own_copy(leaf.value) for leaf in traced.call.tensors()})
    versions = {leaf.path: leaf.value._version for leaf in call.tensors()}
    generator = torch.get_rng_state()
    watch = ParameterWatch(module)
    try:
        with watch:
            result = run_eager(call)
    except Exception as problem:
        sizes = f"the example's shapes {call.shapes()}"
        raise errors.EagerFails(owner=traced.owner, sizes=sizes, cause=in_words(problem)) from problem
    finally:
        writes_module = state.changed() or bool(watch.written)
        state.restore()
        watch.restore()
    if not torch.equal(generator, torch.get_rng_state()):
        torch.set_rng_state(generator)
        operator = "(which one is not known; the generator's state changed)"
        raise trace_errors.RandomOperator(owner=traced.owner, operator=operator, where="")
    before = {leaf.path: leaf.value for leaf in traced.call.tensors()}
    written = frozenset(
        leaf.path
        for leaf in call.tensors()
        # A write through `.data` shows in the values only.
        if leaf.value._version != versions[leaf.path] or not same_bits(leaf.value, before[leaf.path])
    )
    shared = sharing(result, call, module)
    aliased = frozenset(leaf.path for leaf in call.tensors() if any(leaf.path in names for names in shared.values()))
    by_stride = frozenset[str]()
    parameters = frozenset(watch.written)
    if _depends_on_layout(run_eager, traced, ModuleState(module, parameters)):
        by_stride = frozenset(leaf.path for leaf in call.tensors())
    return Observation(written, aliased, writes_module, parameters, by_stride, shared)


def _depends_on_layout(run_eager: Runner, traced: TracedGraph, state: ModuleState) -> bool:
    """Whether eager mode gives something else, or fails, for the same values at other strides.

    Arguments that are not contiguous are copied before a program gets them, which such a module would notice.
    """
    depth = sum_depth(state.module)
    outcomes = []
    try:
        for layout in (own_copy, _every_second, _transposed):
            call = traced.call.with_values({leaf.path: layout(leaf.value) for leaf in traced.call.tensors()})
            outcomes.append((run_eager(call), call.tensor_values()))
            state.restore()
    except Exception:
        return True
    finally:
        state.restore()
    plain, *others = outcomes
    return any(compare(plain, other, depth) is not None for other in others)


def _every_second(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with a gap behind each."""
    return torch.stack([tensor, tensor], -1)[..., 0] if tensor.ndim else tensor.clone()


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, the first axis lying innermost."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.ndim > 1 else tensor.clone()
