"""The entry check: one generated function per program that a call passes through.

It has the forward's own signature, so Python binds the arguments. It compares everything the
program was built for and then calls the program; when anything differs it returns `MISS` and says
nothing more. Why a call missed is worked out afterwards, by `diagnose`, which may be slow.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import ambient
from .calls import Call, Leaf, Shell, Signature
from .dims import Dim
from .errors import SizewiseError
from .errors import call as errors
from .guards import Snapshot
from .program import Program
from .program import size_variable as program_size
from .weights import WeightBinding, memory_of, overlap


def size_variable(dim: str) -> str:
    """The local that holds a dim's size in an entry; no argument has such a name."""
    return f"sw_{program_size(dim)}"


class _Miss:
    def __repr__(self) -> str:
        return "MISS"


MISS = _Miss()
"""What an entry returns for a call that is not its program's."""


class Entry:
    """A program with the check in front of it.

    Calling it with the forward's arguments gives the output, or `MISS`.
    """

    def __init__(
        self,
        program: Program,
        signature: Signature,
        weights: WeightBinding,
        snapshot: Snapshot,
        device_type: str,
        state: tuple[Any, ...],
    ) -> None:
        self.program = program
        self.signature = signature
        self.weights = weights
        self.snapshot = snapshot
        self.device_type = device_type
        self.state = state
        self.source, scope = _EntryWriter(self).write()
        exec(compile(self.source, "<sizewise entry>", "exec"), scope)
        self.call: Callable[..., Any] = scope["entry"]


class _EntryWriter:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.program = entry.program
        self.traced = entry.program.traced
        self.scope: dict[str, Any] = {
            "sw_MISS": MISS,
            "sw_Tensor": torch.Tensor,
            "sw_Parameter": torch.nn.Parameter,
            "sw_strided": torch.strided,
            "sw_read_ambient": ambient.read,
            "sw_AMBIENT": entry.state,
            "sw_DEVICE": entry.device_type,
            "sw_is_transformed": ambient.is_transformed,
            "sw_fetch": entry.weights.fetch,
            "sw_check_module": entry.snapshot.check,
            "sw_is_grad_enabled": torch.is_grad_enabled,
            "sw_set_grad_enabled": torch._C._set_grad_enabled,
            # Builtins that an argument may be named after.
            "sw_type": type,
            "sw_len": len,
            "sw_tuple": tuple,
            "sw_repr": repr,
        }
        self.lines: list[str] = []
        self.first_axis: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def write(self) -> tuple[str, dict[str, Any]]:
        declaration, defaults = self.entry.signature.declaration()
        self.scope.update(defaults)
        for shell in self.traced.call.shells:
            self.shell(shell)
        for leaf in self.traced.call.leaves:
            if leaf.is_tensor:
                self.tensor(leaf)
            else:
                self.constant(leaf)
        self.relations()
        self.sharing()
        self.miss_if("sw_is_transformed() or sw_read_ambient(sw_DEVICE) != sw_AMBIENT")
        self.run()
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def entry({declaration}):\n{body}", self.scope

    def miss_if(self, condition: str) -> None:
        self.lines += [f"if {condition}:", "    return sw_MISS"]

    def bind(self, prefix: str, value: Any) -> str:
        name = f"sw_{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def shell(self, shell: Shell) -> None:
        if shell.path.startswith("**"):
            self.miss_if(f"sw_tuple({shell.expr}) != {shell.keys!r}" if shell.keys else shell.expr)
        elif shell.path.startswith("*"):
            self.miss_if(f"sw_len({shell.expr}) != {shell.keys}")
        else:
            kind = self.bind("kind", shell.kind)
            keys = f"sw_len({shell.expr}) != {shell.keys}"
            if not isinstance(shell.keys, int):
                keys = f"sw_tuple({shell.expr}) != {shell.keys!r}"
            self.miss_if(f"sw_type({shell.expr}) is not {kind} or {keys}")

    def constant(self, leaf: Leaf) -> None:
        value = leaf.value
        if value is None or isinstance(value, (bool, enum.Enum, torch.dtype)):
            text = repr(value) if value is None or isinstance(value, bool) else self.bind("value", value)
            self.miss_if(f"{leaf.expr} is not {text}")
            return
        # Through repr, so that nan equals nan and 0.0 differs from -0.0.
        kind = self.bind("kind", type(value))
        self.miss_if(f"sw_type({leaf.expr}) is not {kind} or sw_repr({leaf.expr}) != {repr(value)!r}")

    def tensor(self, leaf: Leaf) -> None:
        wanted = leaf.value
        name = self.variables[leaf.path] = f"sw_tensor_{len(self.variables)}"
        self.lines.append(f"{name} = {leaf.expr}")
        dtype = self.bind("dtype", wanted.dtype)
        device = (
            "not {0}.is_cpu" if wanted.device.type == "cpu" else f"{{0}}.device != {self.bind('device', wanted.device)}"
        )
        self.miss_if(
            f"(sw_type({name}) is not sw_Tensor and sw_type({name}) is not sw_Parameter) "
            f"or {name}.dtype is not {dtype} or {device.format(name)} "
            f"or {name}.layout is not sw_strided or {name}.is_nested or {name}.requires_grad "
            f"or {name}.is_neg() or {name}.is_conj()"
        )
        self.shape(leaf, name)
        fixed = leaf.path in self.program.written or leaf.path in self.program.aliased
        if fixed:
            self.miss_if(f"not {name}.is_contiguous()")
        else:
            self.lines += [f"if not {name}.is_contiguous():", f"    {name} = {name}.contiguous()"]

    def shape(self, leaf: Leaf, name: str) -> None:
        """Compare the shape with the declared one; the first tensor with a dim defines its size."""
        axes = self.traced.spec.get(leaf.path, {})
        expected: list[str] = []
        defined: list[Dim] = []
        for axis, size in enumerate(leaf.value.shape):
            dim = axes.get(axis)
            if dim is None:
                expected.append(str(size))
            elif dim.name in self.first_axis:
                expected.append(size_variable(dim.name))
            else:
                self.first_axis[dim.name] = leaf.path
                defined.append(dim)
                expected.append(size_variable(dim.name))
        rank = leaf.value.ndim
        if not defined:
            self.miss_if(f"{name}.shape != ({', '.join(expected)}{',' if rank == 1 else ''})")
            return
        self.miss_if(f"{name}.ndim != {rank}")
        fixed = []
        unpacked = []
        for axis, text in enumerate(expected):
            is_definition = any(text == size_variable(dim.name) for dim in defined) and text not in unpacked
            unpacked.append(text if is_definition else f"sw_axis_{axis}")
            if not is_definition:
                fixed.append(f"sw_axis_{axis} != {text}")
        self.lines.append(f"{', '.join(unpacked)}{',' if rank == 1 else ''} = {name}.shape")
        fixed += [f"not {dim.min} <= {size_variable(dim.name)} <= {dim.max}" for dim in defined]
        self.miss_if(" or ".join(fixed))

    def relations(self) -> None:
        for assumption in self.traced.assumptions:
            if assumption.verdict != "checked":
                continue
            if assumption.relation:
                first, second = map(size_variable, assumption.relation)
                self.miss_if(f"{first} != {second}")
            else:
                text = assumption.text
                for dim in self.traced.dims:
                    text = re.sub(rf"\b{dim}\b", size_variable(dim), text)
                self.miss_if(f"not ({text})")

    def sharing(self) -> None:
        """What is written may share memory with nothing else: not with other arguments, not with the module."""
        program = self.program
        if not program.written and not program.writes_module:
            return
        # The arguments as they came: a contiguous copy shares nothing.
        tensors = [leaf.expr for leaf in self.traced.call.tensors()]
        self.scope["sw_shares"] = _sharing_check(bool(program.written), self.entry.weights)
        self.miss_if(f"sw_shares(({', '.join(tensors)},))")

    def run(self) -> None:
        sizes = [size_variable(name) for name in self.program.size_names]
        arguments = [self.variables[path] for path in self.program.arguments]
        call = f"({', '.join(['sw_fetch()', *sizes, *arguments])})"
        variants = self.program.variants
        if len(variants) == 1:
            self.scope["sw_program"] = variants[0].call
            target = "sw_program"
        else:
            first = sizes[0]
            self.scope["sw_variants"] = {size: v.call for size, v in self._table().items()}
            target = f"sw_variants[{first}]"
        self.lines += [
            "sw_check_module()",
            "if not sw_is_grad_enabled():",
            f"    return {target}{call}",
            "sw_set_grad_enabled(False)",
            "try:",
            f"    return {target}{call}",
            "finally:",
            "    sw_set_grad_enabled(True)",
        ]

    def _table(self) -> dict[int, Any]:
        dim = self.traced.dims[self.program.size_names[0]]
        return {size: self.program.variant_for(size) for size in range(dim.min, dim.max + 1)}


def _sharing_check(written: bool, weights: WeightBinding) -> Callable[[Sequence[torch.Tensor]], bool]:
    """Whether arguments share memory with one another (if any is written) or with the module's tensors."""

    def shares(tensors: Sequence[torch.Tensor]) -> bool:
        memory = [memory_of(tensor) for tensor in tensors]
        if written and any(overlap(a, b) for i, a in enumerate(memory) for b in memory[i + 1 :]):
            return True
        return any(overlap(a, b) for a in memory for b in weights.memory)

    return shares


def diagnose(entries: list[Entry], call: Call, device_type: str) -> SizewiseError:
    """Why no program serves ``call``: the difference to the program that comes nearest to it."""
    state = ambient.read(device_type)
    ranges = _declared(entries)
    problems = [_difference(entry, call, state, ranges) for entry in entries]
    # A program that only a size separates from the call is nearer than one with other arguments.
    return min(problems, key=lambda item: item[0])[1]


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
        return 0, errors.OtherAmbient(setting=name, seen=seen, wanted=built)
    return 0, _remaining(entry, call)


def _structure_difference(built: Call, call: Call, owner: str) -> SizewiseError | None:
    wanted = {leaf.path: leaf for leaf in built.leaves}
    seen = {leaf.path: leaf for leaf in call.leaves}
    for path in sorted(wanted.keys() | seen.keys(), key=str):
        first, second = seen.get(path), wanted.get(path)
        if first is None or second is None:
            return errors.OtherValue(
                argument=path, seen=_kind_at(path, call, first), wanted=_kind_at(path, built, second)
            )
        if first.is_tensor != second.is_tensor:
            return errors.OtherValue(argument=path, seen=_word(first.value), wanted=_word(second.value))
        same = type(first.value) is type(second.value) and repr(first.value) == repr(second.value)
        if not first.is_tensor and not same:
            return errors.OtherValue(argument=path, seen=_word(first.value), wanted=_word(second.value))
    if [(s.path, s.kind, repr(s.keys)) for s in built.shells] != [(s.path, s.kind, repr(s.keys)) for s in call.shells]:
        wanted_shells = {s.path: s for s in built.shells}
        for shell in call.shells:
            other = wanted_shells.get(shell.path)
            if other is None or (other.kind, repr(other.keys)) != (shell.kind, repr(shell.keys)):
                was = f"{other.kind.__name__} {other.keys}" if other else "no container"
                return errors.OtherValue(argument=shell.path, seen=f"{shell.kind.__name__} {shell.keys}", wanted=was)
    return None


def _kind_at(path: str, call: Call, leaf: Leaf | None) -> str:
    """What a call has at ``path``: a value, a container, or nothing."""
    if leaf is not None:
        return _word(leaf.value)
    containers = {shell.path: shell.kind.__name__ for shell in call.shells}
    return f"a {containers[path]}" if path in containers else "not there"


def _word(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def _tensor_difference(leaf: Leaf, wanted: torch.Tensor) -> SizewiseError | None:
    tensor = leaf.value
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        cls = type(tensor)
        return errors.NotPlainTensor(argument=leaf.path, seen=f"a {cls.__module__}.{cls.__qualname__}")
    if tensor.is_nested:
        return errors.NotPlainTensor(argument=leaf.path, seen="a nested tensor")
    if tensor.layout != torch.strided or tensor.is_quantized:
        return errors.NotPlainTensor(argument=leaf.path, seen=f"a tensor with layout {tensor.layout}")
    if tensor.dtype != wanted.dtype:
        return errors.WrongDtype(argument=leaf.path, seen=tensor.dtype, wanted=wanted.dtype)
    if tensor.device != wanted.device:
        return errors.WrongDevice(argument=leaf.path, seen=tensor.device, wanted=wanted.device)
    if tensor.requires_grad:
        return errors.RequiresGrad(argument=leaf.path)
    if tensor.is_neg() or tensor.is_conj():
        return errors.NotPlainTensor(argument=leaf.path, seen="a lazily negated or conjugated tensor")
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
            return errors.WrongShape(argument=leaf.path, seen=shape, wanted=pattern)
        for axis, size in enumerate(shape):
            dim = axes.get(axis)
            if dim is None:
                if size != example[axis]:
                    return errors.WrongShape(argument=leaf.path, seen=shape, wanted=pattern)
                continue
            declared = ranges[dim.name]
            if size not in declared:
                return errors.SizeOutOfRange(
                    argument=leaf.path, axis=axis, seen=size, dim=dim.name, min=declared.min, max=declared.max
                )
            first = sizes.setdefault(dim.name, (size, f"{leaf.path}.shape[{axis}]"))
            if first[0] != size:
                return errors.UnequalDims(
                    argument=leaf.path, axis=axis, seen=size, dim=dim.name, wanted=first[0], first=first[1]
                )
    return None


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
            )
    for leaf in call.tensors():
        if leaf.path in program.written | program.aliased and not leaf.value.is_contiguous():
            return errors.WrittenInputLayout(argument=leaf.path, problem="is not contiguous")
    if program.written or program.writes_module:
        names = ", ".join(sorted(program.written or {leaf.path for leaf in call.tensors()}))
        problem = "shares memory with another argument or with a tensor of the module that is written"
        return errors.WrittenInputLayout(argument=names, problem=problem)
    return errors.OtherAmbient(
        setting="the call", seen="traced or transformed by another subsystem", wanted="plain eager execution"
    )
