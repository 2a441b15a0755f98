"""Why no program serves a call: worked out after the entry check, slowly and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from . import ambient
from .calls import Call, Leaf, not_plain
from .dims import Dim, out_of_range
from .dispatch import Entry, contiguous_strides
from .errors import SizewiseError
from .errors import call as errors
from .program import Program
from .weights import memory_of, overlap

_WARM_UP_WITH_EACH = 'warm up with each value you will use (warmup_many), or set on_outside="eager".'


def diagnose(entries: list[Entry], call: Call, device_type: str) -> SizewiseError:
    """Why no program serves ``call``: the difference to the program that comes nearest to it."""
    state = ambient.read(device_type)
    ranges = _declared(entries)
    problems = [_difference(entry, call, state, ranges) for entry in entries]
    # A program that only a size separates from the call is nearer than one with other arguments.
    nearest = min(problems, key=lambda item: item[0])[1]
    if isinstance(nearest, errors.OtherValue):
        return _all_values(nearest, [problem for _, problem in problems])
    return nearest


def _all_values(nearest: errors.OtherValue, problems: list[SizewiseError]) -> SizewiseError:
    """The same error with what every program wants of that argument."""
    argument = nearest.fields["argument"]
    same = [p for p in problems if isinstance(p, errors.OtherValue) and p.fields["argument"] == argument]
    wanted = " or ".join(dict.fromkeys(str(problem.fields["wanted"]) for problem in same))
    return errors.OtherValue(**{**nearest.fields, "wanted": wanted})


def _declared(entries: list[Entry]) -> dict[str, Dim]:
    """The dims with their declared ranges; a backed trace covers a part of them."""
    parts: dict[str, list[Dim]] = {}
    for entry in entries:
        for name, dim in entry.program.traced.dims.items():
            parts.setdefault(name, []).append(dim)
    return {n: Dim(n, min(d.min for d in dims), max(d.max for d in dims)) for n, dims in parts.items()}


def _difference(
    entry: Entry, call: Call, state: tuple[Any, ...], ranges: Mapping[str, Dim]
) -> tuple[int, SizewiseError]:
    traced = entry.program.traced
    problem = _structure_difference(traced.call, call, traced.owner)
    if problem is not None:
        return 3, problem
    wanted = {leaf.path: leaf.value for leaf in traced.call.tensors()}
    for leaf in call.tensors():
        problem = _tensor_difference(leaf, wanted[leaf.path])
        if problem is not None:
            return 2, problem
    problem = _size_difference(traced.spec, call, wanted, ranges)
    if problem is not None:
        return 1, problem
    for name, seen, built in ambient.differences(state, entry.state):
        back = ambient.how_to_set(name, built, entry.device_type)
        seen, built = ("off" if value is None else value for value in (seen, built))
        return 0, errors.OtherAmbient(setting=name, seen=seen, wanted=built, back=back)
    return 0, _remaining(entry, call)


def _structure_difference(built: Call, call: Call, owner: str) -> SizewiseError | None:
    wanted = {leaf.path: leaf for leaf in built.leaves}
    seen = {leaf.path: leaf for leaf in call.leaves}
    for path in sorted(wanted.keys() | seen.keys(), key=str):
        first, second = seen.get(path), wanted.get(path)
        if first is None or second is None or first.is_tensor != second.is_tensor:
            seen_kind, wanted_kind = _kind_at(path, call, first), _kind_at(path, built, second)
            todo = _other_kind(path, seen_kind, second, wanted_kind)
            return errors.OtherValue(argument=path, seen=seen_kind, wanted=wanted_kind, todo=todo)
        same = type(first.value) is type(second.value) and repr(first.value) == repr(second.value)
        if not first.is_tensor and not same:
            seen_kind, wanted_kind = _word(first.value), _word(second.value)
            return errors.OtherValue(argument=path, seen=seen_kind, wanted=wanted_kind, todo=_WARM_UP_WITH_EACH)
    if [(s.path, s.kind, repr(s.keys)) for s in built.shells] != [(s.path, s.kind, repr(s.keys)) for s in call.shells]:
        wanted_shells = {s.path: s for s in built.shells}
        for shell in call.shells:
            other = wanted_shells.get(shell.path)
            if other is None or (other.kind, repr(other.keys)) != (shell.kind, repr(shell.keys)):
                was = f"{other.kind.__name__} {other.keys}" if other else "no container"
                return errors.OtherValue(
                    argument=shell.path,
                    seen=f"{shell.kind.__name__} {shell.keys}",
                    wanted=was,
                    todo=_WARM_UP_WITH_EACH,
                )
    return None


def _other_kind(path: str, seen: str, wanted: Leaf | None, wanted_kind: str) -> str:
    """What to do where a call has a value or a container in the place of a tensor, or the other way round."""
    if wanted is not None and wanted.is_tensor and seen not in ("None", "left out"):
        return f"pass a tensor of dtype {wanted.value.dtype} there; torch.tensor makes one of numbers."
    if wanted is None and seen == "a tensor" and wanted_kind != "left out":
        return f'pass {wanted_kind} there, as the warm-up did, or set on_outside="eager".'
    return _WARM_UP_WITH_EACH


def _kind_at(path: str, call: Call, leaf: Leaf | None) -> str:
    """What a call has at ``path``: a value, a container, or nothing."""
    if leaf is not None:
        return _word(leaf.value)
    containers = {shell.path: shell.kind.__name__ for shell in call.shells}
    return f"a {containers[path]}" if path in containers else "left out"


def _word(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _tensor_difference(leaf: Leaf, wanted: torch.Tensor) -> SizewiseError | None:
    tensor = leaf.value
    other = not_plain(tensor)
    if other is not None:
        return errors.NotPlainTensor(argument=leaf.path, seen=other[0], todo=f'{other[1]}; or set on_outside="eager".')
    if tensor.dtype != wanted.dtype:
        return errors.WrongDtype(argument=leaf.path, seen=tensor.dtype, wanted=wanted.dtype)
    if tensor.device != wanted.device:
        return errors.WrongDevice(argument=leaf.path, seen=tensor.device, wanted=wanted.device)
    if tensor.requires_grad:
        return errors.RequiresGrad(argument=leaf.path)
    if tensor.is_neg() or tensor.is_conj():
        todo = 'pass x.resolve_conj().resolve_neg(); or set on_outside="eager".'
        return errors.NotPlainTensor(argument=leaf.path, seen="a lazily negated or conjugated tensor", todo=todo)
    return None


def _size_difference(
    spec: Mapping[str, Mapping[int, Dim]],
    call: Call,
    wanted: Mapping[str, torch.Tensor],
    ranges: Mapping[str, Dim],
) -> SizewiseError | None:
    sizes: dict[str, tuple[int, str]] = {}
    for leaf in call.tensors():
        shape, example = tuple(leaf.value.shape), tuple(wanted[leaf.path].shape)
        axes = spec.get(leaf.path, {})
        pattern = tuple(axes[axis].name if axis in axes else size for axis, size in enumerate(example))
        if len(shape) != len(example):
            todo = _other_rank(leaf.path, shape, len(example), axes)
            return errors.WrongShape(argument=leaf.path, seen=shape, wanted=pattern, todo=todo)
        for axis, size in enumerate(shape):
            dim = axes.get(axis)
            if dim is None:
                if size != example[axis]:
                    todo = _other_size(leaf.path, axis, example[axis])
                    return errors.WrongShape(argument=leaf.path, seen=shape, wanted=pattern, todo=todo)
                continue
            declared = ranges[dim.name]
            if size not in declared:
                return out_of_range(leaf.path, axis, size, declared, warming=False)
            first = sizes.setdefault(dim.name, (size, f"{leaf.path}.shape[{axis}]"))
            if first[0] != size:
                return errors.UnequalDims(
                    argument=leaf.path, axis=axis, seen=size, dim=dim.name, wanted=first[0], first=first[1]
                )
    return None


def _other_rank(path: str, shape: tuple[int, ...], wanted: int, axes: Mapping[int, Dim]) -> str:
    """What to do about a tensor with another number of axes: no Dim changes that."""
    more = len(shape) < wanted
    add = f"{path}.unsqueeze(0), say, adds one" if more else f"{path}.squeeze or .flatten takes some away"
    todo = f"pass {path} with {wanted} axes ({add}, if that is what is meant)"
    if all(axis < len(shape) and shape[axis] in dim for axis, dim in axes.items()):
        same = " and ".join(f"axis {axis} is {dim.name}" for axis, dim in axes.items()) or "that is meant"
        todo += f", or, if {same} here too, warm up with a call of this shape as well (warmup_many)"
    return f'{todo}, or set on_outside="eager".'


def _other_size(path: str, axis: int, size: int) -> str:
    return (
        f"pass {path} with {size} on axis {axis}; only if the module can run other sizes there, declare that axis as "
        'a Dim, or set on_outside="eager".'
    )


def _same_tensors(call: Call) -> tuple[str, str] | None:
    """The paths of two arguments that are one tensor."""
    first: dict[int, str] = {}
    for leaf in call.tensors():
        other = first.setdefault(id(leaf.value), leaf.path)
        if other != leaf.path:
            return other, leaf.path
    return None


def _same_tensor(first: str, second: str) -> errors.OtherValue:
    todo = f'pass a copy there, {second}.clone(), or set on_outside="eager".'
    return errors.OtherValue(
        argument=second, seen=f"the same tensor as {first}", wanted="a tensor of its own", todo=todo
    )


def refuse_shared_example(program: Program, call: Call) -> None:
    """Raises what a call like the example would raise, where two of its arguments are one tensor or share memory.

    Raises:
        OtherValue (SW406): the module asks whether they are the same.
        WrittenInputLayout (SW411): one of them is written.
    """
    same = _same_tensors(call)
    if program.effects.by_identity and same is not None:
        raise _same_tensor(*same)
    memory = [memory_of(leaf.value) for leaf in call.tensors()] if program.effects.written else []
    if any(overlap(a, b) for index, a in enumerate(memory) for b in memory[index + 1 :]):
        names = ", ".join(sorted(program.effects.written))
        raise errors.WrittenInputLayout(argument=names, problem="shares memory with another argument of the example")


def _remaining(entry: Entry, call: Call) -> SizewiseError:
    """What is left when structure, dtypes, sizes and ambient state agree."""
    program = entry.program
    sizes = {
        dim.name: leaf.value.shape[axis]
        for leaf in call.tensors()
        for axis, dim in program.traced.spec.get(leaf.path, {}).items()
    }
    for assumption in program.traced.assumptions:
        if assumption.relation and sizes[assumption.relation[0]] != sizes[assumption.relation[1]]:
            first, second = assumption.relation
            return errors.WrongShape(
                argument=f"dim {second!r}",
                seen=sizes[second],
                wanted=f"{first!r} = {sizes[first]}: {assumption.text}",
                todo='pass equal sizes for both, or set on_outside="eager".',
            )
        if assumption.verdict == "checked" and not assumption.relation and not _holds(assumption.text, sizes):
            seen = ", ".join(f"{name}={size}" for name, size in sizes.items())
            wanted = f"sizes with {assumption.text}"
            todo = 'pass sizes for which that holds, or set on_outside="eager".'
            return errors.WrongShape(argument="the call", seen=seen, wanted=wanted, todo=todo)
    effects = program.effects
    for leaf in call.tensors():
        if effects.needs_contiguous(leaf.path) and not (
            leaf.value.is_contiguous() and leaf.value.stride() == contiguous_strides(leaf.value.shape)
        ):
            return errors.WrittenInputLayout(argument=leaf.path, problem="is not contiguous")
    same = _same_tensors(call) if effects.by_identity else None
    if same is not None:
        return _same_tensor(*same)
    if effects.written or effects.writes_module:
        names = ", ".join(sorted(effects.written or {leaf.path for leaf in call.tensors()}))
        problem = "shares memory with another argument or with a tensor of the module that is written"
        return errors.WrittenInputLayout(argument=names, problem=problem)
    return errors.OtherAmbient(
        setting="the call",
        seen="traced or transformed by another subsystem",
        wanted="plain eager execution",
        back="call it outside of that",
    )


def _holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition of the entry check is true at these sizes."""
    # Python that `trace.shapes` wrote over the dims' names, none of it the user's.
    return bool(eval(condition, {"math": math}, dict(sizes)))
