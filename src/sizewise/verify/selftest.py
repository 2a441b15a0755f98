"""Before a program may serve: its results against eager's at the smallest, next and largest sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..calls import Call
from ..errors import build as errors
from ..errors import trace as trace_errors
from ..trace.graph import TracedGraph
from .exact import ExactReference
from .samples import critical_sizes, probe_sizes, resized, sample, sizes_in_words
from .state import ModuleState, same_bits
from .tolerance import compare, sum_depth, tensors_of


@dataclass(frozen=True)
class Outcome:
    """One size that was tried, and what came of it (``equal``: anything else is an error)."""

    sizes: Mapping[str, int]
    verdict: str


def in_range(traced: TracedGraph, sizes: Mapping[str, int]) -> bool:
    """Whether ``traced`` is about these sizes: in its ranges, and equal where it found dims to be equal."""
    if any(name in traced.dims and size not in traced.dims[name] for name, size in sizes.items()):
        return False
    related = [assumption.relation for assumption in traced.assumptions if assumption.relation]
    return all(sizes[first] == sizes[second] for first, second in related)


@dataclass(frozen=True)
class Observation:
    """What an eager call does to its arguments."""

    written: frozenset[str]
    aliased: frozenset[str]
    """Arguments that an output is, or shares memory with."""
    writes_module: bool
    """Whether the call writes to the module's own tensors."""
    by_stride: frozenset[str]
    """All arguments, where a result depends on how they lie in memory and not only on their values."""


Runner = Callable[[Call], Any]


def observe(run_eager: Runner, traced: TracedGraph, module: nn.Module) -> Observation:
    """Which arguments an eager call writes to, and which its outputs are or share memory with.

    Raises:
        EagerFails (SW309): the module does not run on its own example.
    """
    state = ModuleState(module)
    call = traced.call.with_values({leaf.path: _copy(leaf.value) for leaf in traced.call.tensors()})
    versions = {leaf.path: leaf.value._version for leaf in call.tensors()}
    generator = torch.get_rng_state()
    try:
        result = run_eager(call)
    except Exception as problem:
        sizes = f"the example's shapes {call.shapes()}"
        raise errors.EagerFails(owner=traced.owner, sizes=sizes, cause=_in_words(problem)) from problem
    finally:
        writes_module = state.changed()
        state.restore()
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
    storages = {tensor.untyped_storage()._cdata for _, tensor in tensors_of(result)}
    aliased = frozenset(leaf.path for leaf in call.tensors() if leaf.value.untyped_storage()._cdata in storages)
    by_stride = frozenset[str]()
    if _depends_on_layout(run_eager, traced, module):
        by_stride = frozenset(leaf.path for leaf in call.tensors())
    return Observation(written, aliased, writes_module, by_stride)


def _depends_on_layout(run_eager: Runner, traced: TracedGraph, module: nn.Module) -> bool:
    """Whether eager mode gives something else, or fails, for the same values at other strides.

    Arguments that are not contiguous are copied before a program gets them, which such a module would notice.
    """
    depth, state = sum_depth(module), ModuleState(module)
    outcomes = []
    try:
        for layout in (_copy, _every_second, _transposed):
            call = traced.call.with_values({leaf.path: layout(leaf.value) for leaf in traced.call.tensors()})
            outcomes.append((run_eager(call), _tensors(call)))
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


def self_test(
    module: nn.Module, traced: TracedGraph, run_eager: Runner, run_program: Runner, seed: int = 0
) -> list[Outcome]:
    """Compare program and eager at every probe size, on fresh inputs; the module's state is put back.

    Raises:
        NotEqualToEager (SW302), StateNotEqualToEager (SW310), EagerFails (SW309).
    """
    generator = torch.Generator().manual_seed(seed)
    depth = sum_depth(module)
    exact = ExactReference(module)
    outcomes = []
    probes = [sizes for sizes in [*probe_sizes(traced.dims), *critical_sizes(traced)] if in_range(traced, sizes)]
    trials = [(sizes, sample(traced.call, traced.spec, sizes, generator)) for sizes in probes]
    # The example itself first, as it is: its values may take a path that redrawn ones do not.
    for sizes, call in [(_sizes_of(traced), traced.call), *trials]:
        cause: BaseException | None = None
        # Redrawn values may be illegal at a size (a length, an index): the example's own and small ones are next.
        for attempt in (call, *_tamer(traced, sizes)):
            try:
                outcomes.append(_trial(module, traced, attempt, sizes, run_eager, run_program, depth, exact))
                break
            except _EagerProblem as problem:
                cause = problem.__cause__
        else:
            words = _in_words(cause)
            raise errors.EagerFails(owner=traced.owner, sizes=sizes_in_words(sizes), cause=words) from cause
    return outcomes


def _tamer(traced: TracedGraph, sizes: Mapping[str, int]) -> list[Call]:
    """The example cut or repeated to ``sizes``, and the same with every integer at the example's smallest."""
    example = resized(traced.call, traced.spec, sizes)
    smallest = {
        leaf.path: torch.full_like(leaf.value, int(leaf.value.min()))
        for leaf in example.tensors()
        if not (leaf.value.is_floating_point() or leaf.value.is_complex()) and leaf.value.numel()
    }
    return [example, example.with_values({**{leaf.path: leaf.value for leaf in example.tensors()}, **smallest})]


def _sizes_of(traced: TracedGraph) -> dict[str, int]:
    """The sizes of the example a trace was made with."""
    return {
        dim.name: leaf.value.shape[axis]
        for leaf in traced.call.tensors()
        for axis, dim in traced.spec.get(leaf.path, {}).items()
    }


def _known_cause(module: nn.Module) -> str:
    """What is known to make eager mode take another path than any trace, if the module has it."""
    nested = [m for m in module.modules() if isinstance(m, nn.TransformerEncoder) and m.enable_nested_tensor]
    if not nested:
        return ""
    return (
        "it holds an nn.TransformerEncoder, which in eager mode takes a shortcut for padding masks that zeroes "
        "padded places: build it with enable_nested_tensor=False. Otherwise "
    )


class _EagerProblem(Exception):
    """The module itself failed; its exception is the cause."""


def _in_words(problem: BaseException | None) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else 'no message'}"


def _trial(
    module: nn.Module,
    traced: TracedGraph,
    call: Call,
    sizes: Mapping[str, int],
    run_eager: Runner,
    run_program: Runner,
    depth: int,
    exact: ExactReference,
) -> Outcome:
    state = ModuleState(module)
    ours = call.with_values({leaf.path: _copy(leaf.value) for leaf in call.tensors()})
    eagers = call.with_values({leaf.path: _copy(leaf.value) for leaf in call.tensors()})
    try:
        try:
            reference = run_eager(eagers)
        except Exception as problem:
            raise _EagerProblem from problem
        buffers = state.current()
        state.restore()
        seen = run_program(ours)
        after = state.current()
        where = sizes_in_words(sizes)
        difference = compare(reference, seen, depth)
        if difference is not None and math.isfinite(difference.relative):
            # More than rounding at this depth: ask how far eager itself is off (a sum that cancels, say).
            difference = compare(reference, seen, depth, exact=exact(call))
        if difference is not None:
            raise errors.NotEqualToEager(
                owner=traced.owner,
                sizes=where,
                path=difference.path,
                difference=difference.what,
                hint=_known_cause(module),
            )
        _compare_state("buffers", buffers, after, depth, traced.owner, where)
        _compare_state("arguments", _tensors(eagers), _tensors(ours), depth, traced.owner, where)
    finally:
        state.restore()
    return Outcome(sizes, "equal")


def _compare_state(what: str, wanted: Any, seen: Any, depth: int, owner: str, where: str) -> None:
    difference = compare(wanted, seen, depth, path=what)
    if difference is not None:
        text = f"{difference.path} {difference.what}"
        raise errors.StateNotEqualToEager(owner=owner, what=what, sizes=where, difference=text)


def _tensors(call: Call) -> dict[str, torch.Tensor]:
    return {leaf.path: leaf.value for leaf in call.tensors()}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()
