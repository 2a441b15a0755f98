"""Whether a call may be filled up along a dim: its own rows must not depend on what stands behind them.

``proved`` comes from an analysis of every operator; ``tested`` from replays with several kinds of garbage in the place
of what is filled up. Arguments that look like masks, and those with a declared pad, always hold their pad there, so
they get no garbage. What leaks may also be hidden by the example's own values or by a weight that is zero, so a dim
that is not proved is tried with others of both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..calls import Call
from ..dispatch import Entry
from ..graphs.bucket import MISSED, Bucket, at_sizes
from ..program import Padding
from ..traced.outputs import leaves
from .samples import is_mask, sample
from .state import ModuleState, in_words
from .tolerance import compare, sum_depth

if TYPE_CHECKING:
    from ..caller import BuiltProgram  # which imports the tracer

TRIED = 3
"""Captured sizes, and smaller sizes of each, that are tried."""
LARGE = 1e3
"""How many times the largest value of the example garbage is, at its wildest."""
WIDE = 100.0
"""How many times as far apart as the example's floats the call's own are, at their widest."""
Kind = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""``f(drawn, example)``: garbage."""


def proved(program: BuiltProgram, module: nn.Module, dim: str, sizes: tuple[int, int]) -> Padding:
    """What the analysis of the program's operators says, at two sizes of the dim.

    The program's graphs have to be there still, and hold torch's example values.
    """
    from .rows import analyse
    from .rows.program import program_run

    traced = program.traced
    axes = {path: axis for path, named in traced.spec.items() for axis, other in named.items() if other.name == dim}
    middle = {name: min(max(3, other.min), other.max) for name, other in traced.dims.items()}
    first, second = (sample(traced.call, traced.spec, {**middle, dim: size}, _seeded()) for size in sizes)
    verdict = analyse(program_run(program, module), module, first, second, axes, dim)
    if verdict.proved:
        return Padding("proved")
    return Padding("refused", f"{verdict.operator} {verdict.reason}".strip(), verdict.operator)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def tested(
    entry: Entry,
    example: Call,
    dim: str,
    buckets: Sequence[Bucket],
    weights: Sequence[torch.Tensor],
    state: ModuleState,
) -> Padding:
    """The verdict of trials through the captures themselves. The module's state is put back.

    A proof is about operators; one capture is tried all the same, since it is kernels that run.
    """
    known = entry.program.padding.get(dim)
    is_proved = known is not None and known.verdict == "proved"
    if entry.program.effects.writes_module and not is_proved:
        return _refused("the module's own tensors are written, also by what is filled up", known)
    trials = _Trials(entry, example, dim, list(weights), state)
    low = entry.program.traced.dims[dim].min
    candidates = [bucket for bucket in buckets if bucket.sizes[dim] > low]
    if not candidates:
        return Padding("refused", f"no captured size is above {low}")
    for bucket in candidates[-1:] if is_proved else _spread(candidates):
        top = bucket.sizes[dim]
        for size in [top - 1] if is_proved else _spread(range(low, top)):
            others = bucket is candidates[-1] and size == top - 1
            try:
                why = trials.differs(bucket, {**bucket.sizes, dim: size}, others, hidden=others and not is_proved)
            except Exception as problem:
                # An operator may refuse values: what is filled up, or weights that it was not written for.
                why = f"a trial ends in {in_words(problem)}"
            if why:
                return _refused(f"{why} at {dim}={size} in a capture of {top}", known)
    return known if known is not None and is_proved else Padding("tested")


def _refused(why: str, known: Padding | None) -> Padding:
    """What the analysis found says more than what a trial saw."""
    if known is not None and known.verdict == "refused":
        return Padding("refused", f"{known.why}; {why}", known.operator)
    return Padding("refused", why)


def _spread(values: Sequence[Any]) -> list[Any]:
    """The first, the last, and one between, in this order."""
    picked = {0, len(values) // 2, len(values) - 1} if values else set()
    return [values[index] for index in sorted(picked)][:TRIED]


class _Trials:
    def __init__(self, entry: Entry, example: Call, dim: str, weights: list[torch.Tensor], state: ModuleState) -> None:
        self.entry, self.example, self.dim = entry, example, dim
        self.program, self.traced = entry.program, entry.program.traced
        self.weights, self.state = weights, state
        self.depth = sum_depth(state.module)
        self.generator = torch.Generator().manual_seed(1)

    def differs(self, bucket: Bucket, sizes: Mapping[str, int], others: bool, hidden: bool) -> str:
        """What goes wrong with calls of ``sizes`` in a capture, in words; '' if nothing does. ``others``: also with
        other weights, since the module's own may hide a leak: a layer that is zero, say. ``hidden``: also with values
        of the call's own that are none of the example's."""
        own = sample(self.example, self.traced.spec, sizes, self.generator).tensor_values()
        arguments = [own[path].contiguous() for path in self.program.arguments]
        wanted = self._program(sizes, arguments, self.weights)
        found = compare(wanted, bucket.function(sizes)(list(self.weights), *arguments), self.depth)
        if found is not None:
            return f"{found.path} {found.what}"
        filled = list(self._filled(bucket, arguments, sizes))
        replay = bucket.function(bucket.sizes)
        why = self._changes(lambda given: replay(list(self.weights), *given), filled, sizes)
        if why or not others:
            return why
        other = self._other_weights()
        why = self._changes(lambda given: self._program(bucket.sizes, given, other), filled, sizes)
        if why or not hidden:
            return why
        # Where a pad is always the same, no two replays differ by it.
        exact, whole = self._program(sizes, arguments, other), self._program(bucket.sizes, filled[0], other)
        if compare(self._rows(exact, sizes), self._rows(whole, sizes), self.depth) is not None:
            return "results with other weights change with the pads"
        return self._hidden(bucket, arguments, sizes)

    def _hidden(self, bucket: Bucket, arguments: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> str:
        """What goes wrong with other values of the call's own, which may open a gate that the example's keep shut."""
        paths, why = self.program.arguments, ""
        for times, sign in ((1.0, 0), (WIDE, 0), (1.0, 1), (1.0, -1)):
            own = [self._varied(bucket, path, mine, times, sign) for path, mine in zip(paths, arguments, strict=True)]
            filled = list(self._filled(bucket, own, sizes, (_as_it_is, _turned, _lowest, _highest)))
            # What the example does not have may be what the module does not take.
            with contextlib.suppress(Exception):
                why = why or self._changes(
                    lambda given: self._program(bucket.sizes, given, self.weights), filled, sizes
                )
        return f"{why}, for values of the call's own that the example lacks" if why else ""

    def _varied(self, bucket: Bucket, path: str, own: torch.Tensor, times: float, sign: int) -> torch.Tensor:
        """Floats that many ``times`` as far apart, of one ``sign`` unless it is 0; flags of both kinds; of masks, one
        row that is nothing but pad."""
        example, pads = self.example.tensor_values()[path], bucket.form.pads
        varied = own.clone()
        if own.is_floating_point() and path not in pads:
            noise = torch.randn(own.shape, generator=self.generator, dtype=torch.float64)
            spread = float(example.double().std()) if example.numel() > 1 else 0.0
            noise = noise.abs() * sign if sign else noise
            varied.copy_(noise * times * (spread if 0 < spread < torch.inf else 1.0))
        elif _is_flags(example):
            varied.copy_(torch.rand(own.shape, generator=self.generator) < 0.5)
        if own.ndim and own.numel() and (path in pads or is_mask(example)):
            varied[-1] = pads.get(path, 0)
        return varied

    def _program(self, sizes: Mapping[str, int], arguments: Sequence[Any], weights: Sequence[torch.Tensor]) -> Any:
        numbers = [sizes[name] for name in self.program.size_names]
        result = self.program.variant_for(numbers[0]).call(list(weights), *numbers, *arguments)
        self.state.restore()
        return result

    def _changes(self, run: Callable[[Sequence[Any]], Any], filled: Sequence[Any], sizes: Mapping[str, int]) -> str:
        """Whether the call's own rows change with what is behind them; the same twice first."""
        first = None
        for index, given in enumerate([filled[0], *filled]):
            result = run([tensor.clone() for tensor in given])
            if result is MISSED:
                return "a replay was refused"
            rows = self._rows(result, sizes)
            if first is None:
                first = rows
            elif any(not _same(a, b) for a, b in zip(first, rows, strict=True)):
                return (
                    "two replays of the same values differ" if index == 1 else "results change with what is filled up"
                )
        return ""

    def _rows(self, result: Any, sizes: Mapping[str, int]) -> list[torch.Tensor]:
        found = []
        for leaf, value in leaves(self.traced.template, result):
            if isinstance(value, torch.Tensor) and leaf.shape is not None:
                for axis, size in enumerate(leaf.shape):
                    value = value.narrow(axis, 0, at_sizes(size, sizes))
                found.append(value.clone())
        return found

    def _filled(
        self,
        bucket: Bucket,
        arguments: Sequence[torch.Tensor],
        sizes: Mapping[str, int],
        kinds: Sequence[Kind] | None = None,
    ) -> Iterator[Any]:
        """The arguments at the bucket's sizes, with garbage of several kinds behind their own values."""
        for kind in kinds or (_as_it_is, _turned, _wild, _lowest):
            drawn = sample(self.example, self.traced.spec, bucket.sizes, self.generator).tensor_values()
            yield [
                self._one(bucket, path, own, drawn[path], kind)
                for path, own in zip(self.program.arguments, arguments, strict=True)
            ]

    def _one(
        self,
        bucket: Bucket,
        path: str,
        own: torch.Tensor,
        drawn: torch.Tensor,
        kind: Kind,
    ) -> torch.Tensor:
        if drawn.shape == own.shape:
            return own
        example = self.example.tensor_values()[path]
        pads = bucket.form.pads
        is_fixed = path in pads or is_mask(example)
        whole = torch.full_like(drawn, pads.get(path, 0)) if is_fixed else kind(drawn, example).contiguous()
        whole[tuple(slice(0, size) for size in own.shape)] = own
        return whole

    def _other_weights(self) -> list[torch.Tensor]:
        found = []
        for tensor in self.weights:
            if tensor.is_floating_point() and tensor.numel():
                spread = float(tensor.detach().double().std()) if tensor.numel() > 1 else 0.0
                drawn = torch.randn(tensor.shape, generator=self.generator, dtype=torch.float64) * (spread or 0.5)
                other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
                found.append(other.copy_(drawn + tensor.double().mean().cpu()))
            elif tensor.numel() == 1 and _is_switch(tensor):
                found.append(1 - tensor if tensor.dtype != torch.bool else ~tensor)
            else:
                found.append(tensor)
        return found


def _is_flags(tensor: torch.Tensor) -> bool:
    """Whether 0 and 1 are both legal: they are in the example, or 0 is what it is filled up with."""
    return tensor.dtype == torch.bool or (bool((tensor == 1).any()) and _is_switch(tensor))


def _is_switch(tensor: torch.Tensor) -> bool:
    is_float = tensor.is_floating_point() or tensor.is_complex()
    return not is_float and bool(((tensor == 0) | (tensor == 1)).all())


def _as_it_is(drawn: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    return drawn


def _turned(drawn: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """The other way round, and floats of the other sign."""
    other = drawn.flip(0) if drawn.ndim else drawn
    return -other if drawn.is_floating_point() else other


def _wild(drawn: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Very large floats of both signs; of integers the example's largest."""
    if not drawn.numel():
        return drawn
    if drawn.is_floating_point():
        largest = min(float(example.detach().abs().max()) * LARGE or LARGE, torch.finfo(drawn.dtype).max / 4)
        return torch.sign(drawn) * largest
    return torch.full_like(drawn, example.max().item()) if not drawn.is_complex() else drawn


def _lowest(drawn: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    if drawn.is_complex() or not drawn.numel():
        return torch.zeros_like(drawn)
    return torch.full_like(drawn, example.min().item())


def _highest(drawn: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    if drawn.is_complex() or not drawn.numel():
        return torch.ones_like(drawn)
    return torch.full_like(drawn, example.max().item())


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal, but for the last bits: where one lane of a vector is very large, sines take another way for all of it."""
    return torch.equal(first, second) or compare(first, second, depth=1) is None
