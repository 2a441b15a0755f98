"""The row analysis: a proof that rows added behind the real ones never reach them.

A callable is run at two sizes of a dim, in eager mode, and both runs are written down operator by operator. Then what
becomes of each row is followed through both logs side by side, by rules that know which operators keep rows apart.
What is proved is said of those two sizes, and of every size at which the callable runs the same operators with the
same numbers. It is a statement about values: rounding may follow the number of rows, as it does in eager mode.

What is computed beside torch's operators (kernels of an extension, Triton) is not seen, but the memory that it writes
to: where no operator writes to what `torch.empty` gives, nothing is proved. A part that stays empty is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ...calls import CONSTANT_TYPES, Call
from ..state import ModuleState, ParameterWatch, in_words, own_copy, same_bits
from ..tolerance import leaves_of, tensors_of
from .follow import Follower, Stopped
from .log import Log, Seen, ValueWatch, storage_keys
from .tags import Leak, Rows

__all__ = ["Rows", "Verdict", "analyse"]


@dataclass(frozen=True)
class Verdict:
    """Whether real rows are proved to be the same whatever is behind them."""

    proved: bool
    operator: str = ""
    """The operator that lets rows mix, or that is not known, by its qualified name; empty where none can be named."""
    reason: str = ""
    """Why it is not proved, in words that follow the operator's name."""
    outputs: Mapping[str, Rows | None] = field(default_factory=dict)
    """Where the rows lie in each tensor of the result, by path; None for a tensor that does not depend on the dim."""


def analyse(
    run: Callable[[Call], Any], module: nn.Module, first: Call, second: Call, axes: Mapping[str, int], dim: str
) -> Verdict:
    """Whether rows behind the real ones along ``dim`` can reach them in what ``run`` computes.

    ``first`` and ``second`` are calls at two sizes of the dim, which is the axis ``axes[path]`` of each argument named
    there; everything else has to be the same in both. Of size 1 less can be proved than of others. ``module``'s own
    tensors are put back, and the calls' are copied. An argument that has the dim in several axes is not proved. What a
    module sets up at its first call has to be there already.
    """
    try:
        sizes = _sizes(first, second, axes, dim)
        logs = Log(_own(module)), Log(_own(module))
        results, arguments = [], []
        for call, log, size in zip((first, second), logs, sizes, strict=True):
            copied = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
            arguments.append([log.give_number(leaf.value) for leaf in copied.tensors()])
            results.append(_logged(run, module, copied, log, f"{dim}={size}"))
        follower = Follower(logs, sizes, dim)
        for leaf, one, other in zip(first.tensors(), *arguments, strict=True):
            follower.argument(one, other, Rows(axes[leaf.path]) if leaf.path in axes else None)
        follower.run()
        return _verdict(follower, results, dim)
    except Stopped as stop:
        return Verdict(False, stop.leak.operator, stop.leak.reason)


def _sizes(first: Call, second: Call, axes: Mapping[str, int], dim: str) -> tuple[int, int]:
    """The dim's size in both calls, which have to be the same in everything else."""
    if first.key() != second.key():
        raise Stopped("", "the two calls differ in more than sizes")
    one, other = first.tensor_values(), second.tensor_values()
    if not axes.keys() <= one.keys() or not axes:
        raise Stopped("", f"no tensor argument has {dim}")
    sizes: set[tuple[int, int]] = set()
    for path, tensor in one.items():
        left, right = list(tensor.shape), list(other[path].shape)
        if path not in axes:
            if left != right or tensor.dtype != other[path].dtype or not same_bits(tensor, other[path]):
                raise Stopped("", f"the two calls differ in {path}, which does not have {dim}")
            continue
        axis = axes[path]
        if len(left) != len(right) or not 0 <= axis < len(left) or tensor.dtype != other[path].dtype:
            raise Stopped("", f"the two calls differ in {path} in more than {dim}")
        sizes.add((left.pop(axis), right.pop(axis)))
        if left != right:
            raise Stopped("", f"{path} has {dim} in several axes")
    (pair,) = sizes if len(sizes) == 1 else [(0, 0)]
    if pair[0] == pair[1] or min(pair) < 1:
        raise Stopped("", f"the two calls are not at two sizes of {dim}")
    return pair


def _own(module: nn.Module) -> frozenset[int]:
    """The storages of the module's parameters and buffers."""
    return storage_keys([*module.parameters(), *module.buffers()])


def _logged(run: Callable[[Call], Any], module: nn.Module, call: Call, log: Log, where: str) -> list[tuple[str, Seen]]:
    """The tensors of one run's result; the module and the random generator are put back."""
    state, watch, generator = ModuleState(module), ParameterWatch(module), torch.get_rng_state()
    try:
        try:
            with torch.no_grad(), watch, ValueWatch(log), log:
                result = run(call)
        finally:
            torch.set_rng_state(generator)
            state.restore()
            watch.restore()
    except Exception as problem:
        raise Stopped("", f"the module does not run at {where}: {in_words(problem)}") from problem
    _refuse_unknown_parts(result)
    return [(path, log.used(tensor)) for path, tensor in tensors_of(result)]


def _refuse_unknown_parts(result: Any) -> None:
    for path, leaf in leaves_of(result):
        if not isinstance(leaf, (torch.Tensor, *CONSTANT_TYPES)):
            raise Stopped("", f"the result has a {type(leaf).__name__} at {path}, which is not looked into")


def _verdict(follower: Follower, results: list[list[tuple[str, Seen]]], dim: str) -> Verdict:
    if [path for path, _ in results[0]] != [path for path, _ in results[1]]:
        return Verdict(False, "", f"the result has other parts at another size of {dim}")
    outputs: dict[str, Rows | None] = {}
    problem: Leak | None = None
    for (path, one), (_, other) in zip(*results, strict=True):
        tag = follower.result(one, other)
        outputs[path] = None if isinstance(tag, Leak) else tag
        if isinstance(tag, Rows) and tag.outer != 1:
            maker = follower.maker(one)
            tag = Leak(maker, f"leaves the rows of {dim} apart in {path}: they are no longer the first of an axis")
        if isinstance(tag, Leak) and problem is None:
            problem = tag
    if problem is not None:
        return Verdict(False, problem.operator, problem.reason, outputs)
    return Verdict(True, outputs=outputs)
