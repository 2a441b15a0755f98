"""What an eager call does besides computing: what it writes to, what its results share memory with.

It runs before anything is traced, so that what a model sets up at its first forward is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..calls import Call
from ..effects import Effects
from ..errors import build as errors
from .sharing import Sharing, sharing
from .state import ModuleState, ParameterWatch, in_words, own_copy, same_bits
from .tolerance import compare, sum_depth, tensors_of

Runner = Callable[[Call], Any]


@dataclass(frozen=True)
class Observation:
    """One eager call and its repetitions."""

    effects: Effects
    sharing: Sharing
    """What the results share memory with."""
    contiguous: frozenset[str]
    """The results that are contiguous."""
    random: bool
    """Whether the random generator moved."""


def observe(run_eager: Runner, call: Call, module: nn.Module, owner: str) -> Observation:
    """What the user's module does for ``call``; its tensors and the random generator are put back.

    Raises:
        EagerFails (SW309): the module does not run on its own example.
    """
    state = ModuleState(module)
    own = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
    versions = {leaf.path: leaf.value._version for leaf in own.tensors()}
    generator = torch.get_rng_state()
    watch = ParameterWatch(module)
    try:
        with watch:
            run_eager(own)
    except Exception as problem:
        sizes = f"the example's shapes {call.shapes()}"
        todo = "warm up with an example that the module itself runs (of its dtype, on its device), or mend the module."
        raise errors.EagerFails(owner=owner, sizes=sizes, cause=in_words(problem), todo=todo) from problem
    finally:
        writes_module = state.changed() or bool(watch.written)
        state.restore()
        watch.restore()
    random = not torch.equal(generator, torch.get_rng_state())
    before = call.tensor_values()
    written = frozenset(
        leaf.path
        for leaf in own.tensors()
        # A write through `.data` shows in the values only.
        if leaf.value._version != versions[leaf.path] or not same_bits(leaf.value, before[leaf.path])
    )
    parameters = frozenset(watch.written)
    state = ModuleState(module, parameters)
    own = call.with_values({leaf.path: own_copy(leaf.value) for leaf in call.tensors()})
    # Once more: a dispatch mode keeps torch from shortcuts whose results lie otherwise in memory.
    result = run_eager(own)
    outcome = result, own.tensor_values()
    state.restore()
    shared = sharing(result, own, module)
    returned = frozenset(leaf.path for leaf in own.tensors() if any(leaf.path in names for names in shared.values()))
    by_stride = _depends_on(run_eager, state, [_laid_out(call, how) for how in (_every_second, _transposed)], outcome)
    by_identity = not written and _depends_on_identity(run_eager, state, call)
    torch.set_rng_state(generator)
    effects = Effects(written, returned, writes_module, parameters, by_stride, by_identity)
    contiguous = frozenset(path for path, tensor in tensors_of(result) if _is_contiguous(tensor))
    return Observation(effects, shared, contiguous, random)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.is_contiguous()


Outcome = tuple[Any, dict[str, torch.Tensor]]
"""What a call returned, and its arguments afterwards."""


def _depends_on(run_eager: Runner, state: ModuleState, calls: list[Call], plain: Outcome) -> bool:
    """Whether eager mode gives something else than ``plain`` for one of ``calls``, of equal values, or fails."""
    depth = sum_depth(state.module)
    outcomes: list[Outcome] = []
    try:
        for call in calls:
            outcomes.append((run_eager(call), call.tensor_values()))
            state.restore()
    except Exception:
        return True
    finally:
        state.restore()
    return any(compare(plain, other, depth) is not None for other in outcomes)


def _laid_out(call: Call, how: Callable[[torch.Tensor], torch.Tensor]) -> Call:
    """The call with the same values at other strides.

    Arguments that are not contiguous are copied before a program gets them, which a module that reads strides would
    notice.
    """
    return call.with_values({leaf.path: how(leaf.value) for leaf in call.tensors()})


def _depends_on_identity(run_eager: Runner, state: ModuleState, call: Call) -> bool:
    """Whether it makes a difference that two arguments of equal values are one tensor (``query is key``)."""
    first: dict[tuple[Any, ...], torch.Tensor] = {}
    same: dict[str, torch.Tensor] = {}
    for leaf in call.tensors():
        kind = (tuple(leaf.value.shape), leaf.value.dtype, leaf.value.device)
        same[leaf.path] = first.setdefault(kind, _plain(leaf.value))
    if len(first) == len(same):
        return False
    apart = call.with_values({path: own_copy(tensor) for path, tensor in same.items()})
    try:
        outcome = run_eager(apart), apart.tensor_values()
    except Exception:
        return False  # the values of one do not fit the other: that they are the same is not a case
    finally:
        state.restore()
    return _depends_on(run_eager, state, [call.with_values(same)], outcome)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _every_second(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, with a gap behind each."""
    return torch.stack([tensor, tensor], -1)[..., 0] if tensor.ndim else tensor.clone()


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, the first axis lying innermost."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.ndim > 1 else tensor.clone()
