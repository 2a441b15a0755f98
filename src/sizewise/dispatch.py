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
from .calls import Leaf, Shell, Signature
from .dims import Dim
from .graphs.bucket import MISSED
from .guards import Snapshot
from .native import Places, watch
from .program import Program
from .program import size_variable as program_size
from .weights import WeightBinding, memory_of, overlap


def size_variable(dim: str) -> str:
    """The local that holds a dim's size in an entry; no argument has such a name."""
    return f"sw_{program_size(dim)}"


class _Miss:
    def __repr__(self) -> str:
        return "MISS"


LISTED_SIZES = 100_000
"""Sizes up to which an entry has a table of its variants."""

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
        watched: WeightBinding,
        snapshot: Snapshot,
        device_type: str,
        state: tuple[Any, ...],
        captures: Mapping[Any, Any] | None = None,
        count: Callable[[], Any] | None = None,
    ) -> None:
        """``captures`` gives the function that serves a size, or None (`buckets.Buckets`); ``count`` counts a call
        that the program serves."""
        self.program = program
        self.signature = signature
        self.weights = weights
        self.watched = watched
        self.snapshot = snapshot
        self.device_type = device_type
        self.state = state
        self.captures = captures
        self.count = count
        self.source, scope = _EntryWriter(self).write()
        exec(compile(self.source, "<sizewise entry>", "exec"), scope)
        self.call: Callable[..., Any] = scope["entry"]

    def serving(self, captures: Mapping[Any, Any] | None, count: Callable[[], Any]) -> Entry:
        """The same, with captures in front of the program, and with calls counted."""
        return Entry(
            self.program,
            self.signature,
            self.weights,
            self.watched,
            self.snapshot,
            self.device_type,
            self.state,
            captures,
            count,
        )

    def check_module(self) -> None:
        """Compare what the trace took for granted about the module. Raises Stale (SW503)."""
        self.snapshot.check()
        if len(self.watched):
            self.watched.fetch()


def make_entry(
    program: Program,
    module: torch.nn.Module,
    signature: Signature,
    snapshot: Snapshot,
    device_type: str,
    state: tuple[Any, ...],
) -> Entry:
    """``program`` bound to ``module``, with the check in front of it. Raises UnboundInput (SW218)."""
    owner = program.traced.owner
    weights = WeightBinding(module, program.weight_inputs, owner, writes=program.effects.writes_module)
    watched = WeightBinding(module, program.watched, owner)
    return Entry(program, signature, weights, watched, snapshot, device_type, state)


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
            "sw_check_module": entry.check_module if len(entry.watched) else entry.snapshot.check,
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
        self.ambient()
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
        if self.program.effects.needs_contiguous(leaf.path):
            self.miss_if(f"not {name}.is_contiguous()")
            if self.program.effects.by_stride:
                # An axis of size 1 is contiguous at any stride, which the module may read.
                self.scope["sw_strides"] = contiguous_strides
                self.miss_if(f"{name}.stride() != sw_strides({name}.shape)")
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
        effects = self.program.effects
        if effects.by_identity:
            names = list(self.variables.values())
            pairs = [f"{a} is {b}" for index, a in enumerate(names) for b in names[index + 1 :]]
            self.miss_if(" or ".join(pairs))
        if not effects.written and not effects.writes_module:
            return
        # The arguments as they came: a contiguous copy shares nothing.
        tensors = [leaf.expr for leaf in self.traced.call.tensors()]
        self.scope["sw_shares"] = _sharing_check(bool(effects.written), self.entry.weights)
        self.miss_if(f"sw_shares(({', '.join(tensors)},))")

    def ambient(self) -> None:
        asked = ambient.questions(self.entry.device_type, self.entry.state)
        as_it_was = watch(Places(questions=asked[0], attributes=asked[1])) if asked is not None else None
        differs = "sw_is_transformed() or sw_read_ambient(sw_DEVICE) != sw_AMBIENT"
        if as_it_was is not None:
            self.scope["sw_as_it_was"] = as_it_was
            differs = f"not sw_as_it_was() and ({differs})"
        self.miss_if(differs)

    def run(self) -> None:
        serve = self._serve()
        self.lines += [
            "sw_check_module()",
            "if not sw_is_grad_enabled():",
            *(f"    {line}" for line in serve),
            "sw_set_grad_enabled(False)",
            "try:",
            *(f"    {line}" for line in serve),
            "finally:",
            "    sw_set_grad_enabled(True)",
        ]

    def _serve(self) -> list[str]:
        """The lines that end in the result: from a capture where one serves this size, or else from the program."""
        sizes = [size_variable(name) for name in self.program.size_names]
        arguments = [self.variables[path] for path in self.program.arguments]
        target = self._program(sizes)
        entry = self.entry
        if entry.captures is None and entry.count is None:
            return [f"return {target}({', '.join(['sw_fetch()', *sizes, *arguments])})"]
        lines = ["sw_weights = sw_fetch()"]
        if entry.captures is not None:
            self.scope |= {"sw_captures": entry.captures, "sw_MISSED": MISSED}
            key = sizes[0] if len(sizes) == 1 else f"({''.join(f'{size}, ' for size in sizes)})"
            lines += [
                f"sw_replay = sw_captures[{key}]",
                "if sw_replay is not None:",
                f"    sw_result = sw_replay({', '.join(['sw_weights', *arguments])})",
                "    if sw_result is not sw_MISSED:",
                "        return sw_result",
            ]
        lines.append(f"sw_result = {target}({', '.join(['sw_weights', *sizes, *arguments])})")
        if entry.count is not None:
            self.scope["sw_count"] = entry.count
            lines.append("sw_count()")
        return [*lines, "return sw_result"]

    def _program(self, sizes: Sequence[str]) -> str:
        """The expression of what runs the program at a size."""
        variants = self.program.variants
        if len(variants) == 1:
            self.scope["sw_program"] = variants[0].call
            return "sw_program"
        self.scope["sw_variants"] = self._table()
        return f"sw_variants[{sizes[0]}]"

    def _table(self) -> Mapping[int, Any] | _Lookup:
        dim = self.traced.dims[self.program.size_names[0]]
        lookup = _Lookup(self.program)
        if dim.max - dim.min >= LISTED_SIZES:
            return lookup
        return {size: lookup[size] for size in range(dim.min, dim.max + 1)}


class _Lookup:
    """The variant of a size, looked up at each call: for ranges that are too long to be listed."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __getitem__(self, size: int) -> Any:
        return self.program.variant_for(size).call


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, those of its axes of size 1 included."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides)) if shape else ()


def _sharing_check(written: bool, weights: WeightBinding) -> Callable[[Sequence[torch.Tensor]], bool]:
    """Whether arguments share memory with one another (if any is written) or with the module's tensors."""

    def shares(tensors: Sequence[torch.Tensor]) -> bool:
        memory = [memory_of(tensor) for tensor in tensors]
        if written and any(overlap(a, b) for i, a in enumerate(memory) for b in memory[i + 1 :]):
            return True
        return any(overlap(a, b) for a in memory for b in weights.memory)

    return shares
