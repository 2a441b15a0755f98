"""From a declaration and the warm-up's calls to what is going to be built; nothing is traced here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .calls import Call, Signature, not_plain
from .dims import DimSpec, bad_dynamic_shapes, dims_of, example_of, infer, no_such_axis, normalize, out_of_range
from .errors import call as call_errors
from .errors import state as state_errors
from .errors import trace as errors
from .refuse import refuse_unsupported

if TYPE_CHECKING:
    from .config.compilation import CompilationConfig
    from .config.resolve import Resolved

MOST_PROGRAMS = 8
"""`CompilationConfig.max_programs` where nothing was set: serving what was built before needs no config class."""


@dataclass(frozen=True)
class Plan:
    """One call per program to build, the dims, what was set, the kind of device."""

    calls: list[Call]
    spec: DimSpec
    config: CompilationConfig | None
    device_type: str
    decode: Mapping[str, int] | None = None

    def resolved(self) -> Resolved:
        """The config in force. Raises ConfigError."""
        from .config.compilation import CompilationConfig

        dims = {name: (dim.min, dim.max) for name, dim in dims_of(self.spec).items()}
        config = self.config or CompilationConfig()
        return config.resolve(dims=dims, device=self.device_type, decode=self.decode)


def checked_calls(calls: Any, owner: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The warm-up's calls. Raises NotCalls (SW515) for what is no ``(args, kwargs)``, a bare tensor above all."""
    if not isinstance(calls, Iterable) or isinstance(calls, torch.Tensor | Mapping | str):
        raise state_errors.NotCalls(owner=owner, place="calls", seen=_kind(calls))
    found = []
    for index, call in enumerate(calls):
        place = f"calls[{index}]"
        if not isinstance(call, tuple | list) or len(call) != 2:
            raise state_errors.NotCalls(owner=owner, place=place, seen=_kind(call))
        args, kwargs = call
        if not isinstance(args, tuple | list):
            raise state_errors.NotCalls(owner=owner, place=f"the args of {place}", seen=_kind(args))
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise state_errors.NotCalls(owner=owner, place=f"the kwargs of {place}", seen=_kind(kwargs))
        found.append((tuple(args), dict(kwargs)))
    return found


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}{length}"


def make_plan(
    module: nn.Module,
    owner: str,
    signature: Signature,
    dynamic_shapes: Mapping[str, Any] | None,
    config: CompilationConfig | None,
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    decode: Mapping[str, int] | None = None,
) -> Plan:
    """Check everything that can be checked before a trace.

    Raises:
        TrainingMode (SW214), UnsupportedModule (SW215), BadCall (SW408), RequiresGrad (SW407),
        NoDynamicDims (SW206), TooManyPrograms (SW511), and what `normalize` raises.
    """
    device = refuse_unsupported(module, owner)
    if not calls:
        todo = "give warmup_many at least one call, its arguments and keywords: warmup_many([((x,), {})])."
        raise errors.NoDynamicDims(owner=owner, seen="No calls were given.", todo=todo)
    bound = [signature.bind(tuple(args), dict(kwargs)) for args, kwargs in calls]
    for call in bound:
        _refuse_grad(call)
    spec = _spec(signature, bound, dynamic_shapes, owner)
    device_type = device.type if device is not None else _device_of(bound[0])
    # The first call of a kind is its example.
    distinct: dict[Any, Call] = {}
    for call in bound:
        distinct.setdefault((call.key(), _layouts(call, spec)), call)
    limit = config.max_programs if config is not None else MOST_PROGRAMS
    if len(distinct) > limit:
        keys = ", ".join(_in_words(call) for call in distinct.values())
        raise state_errors.TooManyPrograms(needed=len(distinct), limit=limit, keys=keys)
    return Plan(list(distinct.values()), spec, config, device_type, decode)


def _spec(signature: Signature, calls: list[Call], declared: Mapping[str, Any] | None, owner: str) -> DimSpec:
    if declared is None:
        return infer([call.shapes() for call in calls], owner)
    names = signature.names()
    if signature.var_keyword:
        names += [argument.path for call in calls for argument in call.passed if argument.path not in names]
    if signature.var_positional:
        names.append(signature.var_positional)
    spec = normalize(declared, names, owner)
    _check_axes(spec, calls)
    return spec


def _in_words(call: Call) -> str:
    """What sets a call apart from others, for an error."""
    tensors = {path: f"{value.dtype} {tuple(value.shape)}" for path, value in call.tensor_values().items()}
    return str(tensors | {leaf.path: leaf.value for leaf in call.constants()})


def _layouts(call: Call, spec: DimSpec) -> tuple[Any, ...]:
    """What else of its tensors a program is built for: dtypes, devices, and the sizes that are no dims."""
    return tuple(
        (
            tensor.dtype,
            tensor.device,
            tuple(-1 if axis in spec.get(leaf.path, {}) else size for axis, size in enumerate(tensor.shape)),
        )
        for leaf in call.tensors()
        for tensor in [leaf.value]
    )


def _refuse_grad(call: Call) -> None:
    for leaf in call.tensors():
        other = not_plain(leaf.value)
        if other is not None:
            raise call_errors.NotPlainTensor(argument=leaf.path, seen=other[0], todo=f"{other[1]}.")
        if leaf.value.requires_grad:
            raise call_errors.RequiresGrad(argument=leaf.path)


def _device_of(call: Call) -> str:
    return next((leaf.value.device.type for leaf in call.tensors()), "cpu")


def _check_axes(spec: DimSpec, calls: list[Call]) -> None:
    """Every declared axis exists, in a tensor, in range, and one name has one size, in every example."""
    for call in calls:
        sizes: dict[str, int] = {}
        values = {leaf.path: leaf.value for leaf in call.leaves}
        for path, axes in spec.items():
            tensor = values.get(path)
            if tensor is None:
                _refuse_other_structure(path, values)
                continue
            if not isinstance(tensor, torch.Tensor):
                problem = f"it is {type(tensor).__name__} {tensor!r} in this call"
                todo = f"leave {path} out of dynamic_shapes, as only tensors have axes; or pass a tensor."
                raise bad_dynamic_shapes(path, problem, todo)
            for axis, dim in axes.items():
                _check_axis(path, axis, tensor)
                size = tensor.shape[axis]
                if size not in dim:
                    raise out_of_range(path, axis, size, dim, warming=True)
                if sizes.setdefault(dim.name, size) != size:
                    raise errors.DimConflict(dim=dim.name, first=sizes[dim.name], second=size)


def _refuse_other_structure(path: str, values: Mapping[str, Any]) -> None:
    """A declaration for a part of an argument that is a tensor, or for a container as if it were one."""
    for seen, value in values.items():
        if path.startswith(f"{seen}[") and isinstance(value, torch.Tensor):
            raise bad_dynamic_shapes(seen, f"a declaration for {path}, but {seen} is a tensor in this call")
        if seen.startswith(f"{path}["):
            todo = f"declare the tensors in it: dynamic_shapes={example_of(seen)}."
            raise bad_dynamic_shapes(path, f"axes of {path}, which is a container in this call", todo)


def _check_axis(path: str, axis: int, tensor: torch.Tensor) -> None:
    if not 0 <= axis < tensor.ndim:
        raise no_such_axis(path, axis, tuple(tensor.shape))
