"""Before a program may serve: its results against eager's at the smallest, next and largest sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..built import Outcome
from ..calls import Call
from ..errors import SizewiseError
from ..errors import build as errors
from ..ranges import Range
from ..trace import TracedGraph
from ..traced import Traced
from .exact import ExactReference
from .machine import allocation_failure
from .memory import Budget
from .samples import critical_sizes, in_range, probe_sizes, sample, sizes_in_words, tamer
from .state import ModuleState, in_words, own_copy
from .tolerance import compare, sum_depth

Runner = Callable[[Call], Any]


def self_test(
    module: nn.Module,
    traced: TracedGraph,
    run_eager: Runner,
    run_program: Runner,
    written: frozenset[str] = frozenset(),
    ranges: Sequence[Range] = (),
    seed: int = 0,
) -> list[Outcome]:
    """Compare program and eager at every probe size, on fresh inputs; the module's state is put back.

    ``written`` names the parameters that the forward writes to. Each of ``ranges``, which are of the first dim and have
    code of their own, is compared at one size at least.

    Raises:
        NotEqualToEager (SW302), StateNotEqualToEager (SW310), EagerFails (SW309), NotEnoughMemory (SW140).
    """
    generator = torch.Generator().manual_seed(seed)
    depth = sum_depth(module)
    exact = ExactReference(module)
    budget = Budget(traced)
    probes = [sizes for sizes in [*probe_sizes(traced.dims), *critical_sizes(traced)] if in_range(traced, sizes)]
    probes += _of_other_ranges(traced, ranges, [sizes_of(traced), *probes])
    budget.refuse_unservable(probes)
    probes, outcomes = _checkable(budget, traced, probes)
    # The example itself first, as it is: its values may take a path that redrawn ones do not.
    tried = [(sizes_of(traced), True), *((sizes, False) for sizes in probes)]
    for sizes, as_it_is in tried:
        cause: BaseException | None = None
        with budget.named_failures(sizes):
            for attempt in _attempts(traced, sizes, generator, as_it_is):
                try:
                    state = ModuleState(module, written)
                    outcomes.append(_trial(state, traced, attempt, sizes, run_eager, run_program, depth, exact))
                    break
                except _EagerProblem as problem:
                    cause = problem.__cause__
                    if allocation_failure(cause) is not None:
                        raise
            else:
                words = in_words(cause)
                where, todo = sizes_in_words(sizes), _runnable_sizes(sizes)
                raise errors.EagerFails(owner=traced.owner, sizes=where, cause=words, todo=todo) from cause
    return outcomes


def _of_other_ranges(
    traced: TracedGraph, ranges: Sequence[Range], probes: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """Sizes for the ranges that serve none of ``probes``: of those that hold a size the shortest serves it."""
    first = next(iter(traced.dims), "")
    if not first:
        return []

    def serving(size: int) -> Range:
        return min((each for each in ranges if size in each), key=lambda each: each.end - each.start)

    served = {serving(sizes[first]) for sizes in probes if any(sizes[first] in each for each in ranges)}
    middle = {name: min(max(2, dim.min), dim.max) for name, dim in traced.dims.items()}
    found = []
    for each in sorted(set(ranges) - served):
        candidates = itertools.chain((each.start, each.end), range(each.start, each.end))
        size = next((size for size in candidates if serving(size) == each), 0)
        # The second where the dims have to be equal.
        tried = ({**middle, first: size}, dict.fromkeys(traced.dims, size))
        found += [sizes for sizes in tried if in_range(traced, sizes)][:1]
    return found


def _checkable(
    budget: Budget, traced: TracedGraph, probes: list[dict[str, int]]
) -> tuple[list[dict[str, int]], list[Outcome]]:
    """The probes that there is memory for, lower ones in the place of others, and outcomes that say so."""
    fitting: list[dict[str, int]] = []
    skipped = []
    for sizes in probes:
        fits = budget.checkable(sizes)
        if fits != sizes:
            fits = fits if fits is not None and in_range(traced, fits) else None
            nearest = f"; {sizes_in_words(fits)} is checked in its place" if fits else ""
            skipped.append(Outcome(sizes, "not checked", f"{budget.in_words(sizes)}{nearest}"))
        if fits is not None and fits not in fitting:
            fitting.append(fits)
    return fitting, skipped


def _attempts(
    traced: TracedGraph, sizes: Mapping[str, int], generator: torch.Generator, as_it_is: bool
) -> Iterator[Call]:
    """Calls at these sizes: the first that eager mode can run is the one that counts.

    Redrawn values may be illegal at a size (a length, an index): the example's own and small ones are next. Each is
    made when the one before has failed: it may be large.
    """
    yield traced.call if as_it_is else sample(traced.call, traced.spec, sizes, generator)
    yield from tamer(traced.call, traced.spec, sizes)


def sizes_of(traced: Traced, call: Call | None = None) -> dict[str, int]:
    """The sizes of ``call``, or of the example a trace was made with."""
    return {
        dim.name: leaf.value.shape[axis]
        for leaf in (call or traced.call).tensors()
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


def _runnable_sizes(sizes: Mapping[str, int]) -> str:
    """What to declare, where the module cannot run at ``sizes``."""
    todo = "declare only sizes that the module can run, or mend the module."
    if len(set(sizes.values())) < 2:
        return todo
    names = ", ".join(sizes)
    return f"give axes whose sizes have to be equal the same Dim (here {names} differ); otherwise {todo}"


def _undeclared_axes(traced: TracedGraph) -> str:
    """What to declare, where an axis without a Dim has the size that a declared one has in the example."""
    sizes = sizes_of(traced)
    found = [
        f"axis {axis} of {leaf.path} ({size}, as {name})"
        for leaf in traced.call.tensors()
        for axis, size in enumerate(leaf.value.shape)
        for name in [next((name for name, known in sizes.items() if known == size), "")]
        if name and axis not in traced.spec.get(leaf.path, {})
    ]
    if not found:
        return ""
    return (
        f"an axis without a Dim keeps the size of the example: if it changes with another, declare {', '.join(found)}."
    )


class _EagerProblem(Exception):
    """The module itself failed; its exception is the cause."""


def _trial(
    state: ModuleState,
    traced: TracedGraph,
    call: Call,
    sizes: Mapping[str, int],
    run_eager: Runner,
    run_program: Runner,
    depth: int,
    exact: ExactReference,
) -> Outcome:
    ours = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
    eagers = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
    try:
        try:
            reference = run_eager(eagers)
        except Exception as problem:
            raise _EagerProblem from problem
        buffers = state.current()
        state.restore()
        where = sizes_in_words(sizes)
        try:
            seen = run_program(ours)
        except SizewiseError:
            raise
        except Exception as problem:
            hint = (
                _undeclared_axes(traced)
                or "compare custom operators with their fakes (torch.library.opcheck); where they fit, report the "
                'module, with CompilationConfig(backend="eager") tried as well.'
            )
            raise errors.ProgramFails(owner=traced.owner, sizes=where, cause=in_words(problem), hint=hint) from problem
        after = state.current()
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
                hint=_known_cause(state.module),
            )
        _compare_state("tensors", buffers, after, depth, traced.owner, where)
        _compare_state("arguments", _tensors(eagers), _tensors(ours), depth, traced.owner, where)
    finally:
        state.restore()
    return Outcome(sizes, "equal")


def _compare_state(what: str, wanted: Any, seen: Any, depth: int, owner: str, where: str) -> None:
    difference = compare(wanted, seen, depth, path=what)
    if difference is not None:
        text = f"{difference.path} {difference.what}"
        left = {"tensors": "own state", "arguments": "effect on its arguments"}[what]
        raise errors.StateNotEqualToEager(owner=owner, what=left, sizes=where, difference=text)


def _tensors(call: Call) -> dict[str, torch.Tensor]:
    return {leaf.path: leaf.value for leaf in call.tensors()}
