"""One captured size serving calls: arguments into fixed memory, replay, results out of it.

For each size that a call may have, one straight-line function: it copies the arguments into the capture's inputs, fills
what is left of them, replays, and hands out copies of the results, cut to the shapes they have at the call's size. With
``static`` it hands out the results themselves, cut in the same way, as tensors that know when they were handed out.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..native import copied_in
from ..traced import Output, SizeFunction
from ..traced.outputs import LEAVES, container_source, parts_of
from .backend import CannotCapture, Capture, tensors_of
from .marks import hand_out
from .turns import Turns
from .window import probe

MISSED = object()
"""What a bucket gives for a call that it cannot serve now; the program can."""


@dataclass(frozen=True)
class Form:
    """What a program's calls look like: what stands in a result, and which axes of arguments are dims."""

    template: Output
    arguments: tuple[str, ...]
    """Paths of the argument tensors, in the order that the program takes them."""
    axes: Mapping[str, Mapping[int, str]]
    """Argument path -> axis -> dim."""
    weights: tuple[str, ...]
    """Paths of the module's tensors, in the order that the program takes them."""
    pads: Mapping[str, float | int | bool] = field(default_factory=dict)
    """Argument path -> what is written behind the call's own values; 0 where nothing is said."""


class Bucket:
    """A capture at ``sizes``, and the functions that serve calls of these sizes and of smaller ones with it.

    Calls that come while another one replays are not served: they would wait longer than their program takes. Neither
    are those within a capture, whoever began it.
    """

    def __init__(
        self,
        capture: Capture,
        form: Form,
        sizes: Mapping[str, int],
        weights: Sequence[torch.Tensor],
        turns: Turns,
        static: bool = False,
    ) -> None:
        """``weights`` are those the capture is bound to, ``turns`` those of its session.

        Raises:
            CannotCapture: two results share memory.
        """
        self.capture = capture
        self.form = form
        self.sizes = dict(sizes)
        self._weights = list(weights)
        self._addresses = [tensor.data_ptr() for tensor in weights]
        self._seen: list[Any] = [None]
        self.turns, self.static = turns, static
        _refuse_shared(capture)

    def _same_addresses(self, weights: list[torch.Tensor]) -> bool:
        """Whether these tensors lie where the captured ones do; the same list is asked once (`WeightBinding.fetch`)."""
        same = list(map(torch.Tensor.data_ptr, weights)) == self._addresses
        if same:
            self._seen[0] = weights
        return same

    def function(self, sizes: Mapping[str, int], count: Callable[[], Any] = int) -> Callable[..., Any]:
        """``f(weights, *arguments)`` for calls of ``sizes``: the result, or `MISSED`. ``count`` counts a replay."""
        source, scope = _Writer(self, sizes, count).write()
        filename = f"<sizewise bucket {self.sizes} for {dict(sizes)}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        exec(compile(source, filename, "exec"), scope)
        # Taken out of the function's own globals: without that circle its memory goes with it.
        found: Callable[..., Any] = scope.pop("serve")
        return found

    def base_scope(self) -> dict[str, Any]:
        turns = self.turns
        kind = next((tensor.device.type for tensor in (*self.capture.inputs, *self._weights)), "cpu")
        return {
            "MISSED": MISSED,
            "SEEN": self._seen,
            "same": self._same_addresses,
            "within": probe(kind),
            "acquire": turns.acquire,
            "release": turns.release,
            "ENDING": turns.ending,
            "finish": turns.finish,
            "turn": turns.turn,
            "tick": turns.clock.tick,
            "CLOCK": turns.clock,
            "hand_out": hand_out,
            "replay": self.capture.replay,
            # The addresses are theirs for as long as somebody holds them.
            "HELD": self._weights,
        }


def _refuse_shared(capture: Capture) -> None:
    distinct = {id(tensor): tensor for tensor in _results(capture) if tensor.numel()}
    ordered = sorted(map(extent, distinct.values()))
    if any(first[1] > second[0] for first, second in itertools.pairwise(ordered)):
        raise CannotCapture("results share memory with one another")


def refuse_views_of_inputs(capture: Capture, given: Sequence[torch.Tensor]) -> None:
    """``given`` are the tensors that it was captured with. Raises CannotCapture: a result is a view of one of them.

    Where inputs lie in memory of the backend's own, this is the backend's to see: there other results may follow them
    in the same memory.
    """
    own = {_storage(mine) for mine, other in zip(capture.inputs, given, strict=True) if mine is other and mine.numel()}
    if any(_storage(tensor) in own for tensor in _results(capture)):
        raise CannotCapture("a result shares memory with an argument")


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of its first byte and of the one behind its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _results(capture: Capture) -> list[torch.Tensor]:
    given = {id(tensor) for tensor in capture.inputs}
    return [tensor for tensor in tensors_of(capture.result) if id(tensor) not in given]


class _Writer:
    def __init__(self, bucket: Bucket, sizes: Mapping[str, int], count: Callable[[], Any]) -> None:
        self.bucket, self.form, self.sizes = bucket, bucket.form, sizes
        self.scope = {**bucket.base_scope(), "count": count}
        self.copies: dict[int, str] = {}
        self.after: list[str] = []
        self.shared = self._shared_memory()

    def _shared_memory(self) -> frozenset[int]:
        """Where an argument may lie that is an earlier static result, and be overwritten by copying another one in."""
        if not self.bucket.static:
            return frozenset()
        capture = self.bucket.capture
        return frozenset(map(_storage, capture.inputs)) & frozenset(map(_storage, _results(capture)))

    def write(self) -> tuple[str, dict[str, Any]]:
        names = [f"a{index}" for index in range(len(self.form.arguments))]
        before = self._copied_at_once(names) or [
            line
            for name, path, static in zip(names, self.form.arguments, self.bucket.capture.inputs, strict=True)
            for line in self._input(name, path, static)
        ]
        result = self._output(self.form.template, self.bucket.capture.result)
        body = [*before, "replay()", *self.after]
        turns = self.bucket.turns
        if self.bucket.static and (turns.ticks or hasattr(self.bucket.capture, "pieces")):
            body.insert(0, "tick()")
        if turns.turn is not None:
            body = ["with turn():", *(f"    {line}" for line in body)]
        if self.shared:
            self.scope |= {"storage": _storage, "SHARED": self.shared}
            body = [*(f"c{name} = {name}.clone() if storage({name}) in SHARED else {name}" for name in names), *body]
        lines = [
            "if within() or weights is not SEEN[0] and not same(weights) or not acquire(False):",
            "    return MISSED",
            "try:",
            *(f"    {line}" for line in body),
            "finally:",
            "    release()",
            "    if ENDING:",
            "        finish()",
            "count()",
            f"return {result}",
        ]
        text = "".join(f"    {line}\n" for line in lines)
        return f"def serve({', '.join(['weights', *names])}):\n{text}", self.scope

    def _bind(self, value: Any) -> str:
        name = f"v{len(self.scope)}"
        self.scope[name] = value
        return name

    def _copied_at_once(self, names: Sequence[str]) -> list[str]:
        """One call in C++ for all arguments; [] where it takes more than copying and writing zeros."""
        parts = []
        for path, static in zip(self.form.arguments, self.bucket.capture.inputs, strict=True):
            own = _narrowed(static, self._padded(path))
            # Of a contiguous part what is behind it is one block as well.
            plain = own.is_contiguous() and static.is_contiguous() and not self.form.pads.get(path, 0)
            if not plain:
                return []
            parts.append((own, static))
        function = copied_in(parts)
        given = ", ".join(f"c{name}" if self.shared else name for name in names)
        return [f"{self._bind(function)}({given})"] if function is not None else []

    def _padded(self, path: str) -> dict[int, int]:
        """The axes of an argument that are filled up -> their sizes in a call."""
        return {
            axis: self.sizes[dim]
            for axis, dim in self.form.axes.get(path, {}).items()
            if self.sizes[dim] != self.bucket.sizes[dim]
        }

    def _input(self, name: str, path: str, static: torch.Tensor) -> list[str]:
        padded = self._padded(path)
        own = _narrowed(static, padded)
        copy = f"{self._bind(own)}.copy_({'c' if self.shared else ''}{name})"
        if not padded:
            return [copy]
        value = self.form.pads.get(path, 0)
        # Of several axes the whole is filled: the rest is no one block.
        axis, size = next(iter(padded.items()))
        rest = static if len(padded) > 1 else static.narrow(axis, size, static.shape[axis] - size)
        fill = f"{self._bind(rest)}.fill_({self._bind(value)})"
        return [fill, copy]

    def _output(self, template: Output, value: Any) -> str:
        if template.kind not in LEAVES:
            parts = [
                self._output(child, part)
                for child, part in zip(template.children, parts_of(template, value), strict=True)
            ]
            return container_source(template, parts, self._bind)
        if template.kind == "input":
            return f"a{self.form.arguments.index(template.path)}"
        if template.kind == "tensor":
            return f"weights[{self.form.weights.index(template.path)}]"
        if template.kind == "held":
            return self._bind(value)
        if template.kind == "constant":
            return self._bind(template.value)
        if template.shape is None:
            return repr(at_sizes(template.value, self.sizes))
        return self._copy(template.shape, value)

    def _copy(self, shape: tuple[int | SizeFunction, ...], static: torch.Tensor) -> str:
        """The name of what is handed out of a result; of one tensor there is one."""
        known = self.copies.get(id(static))
        if known is None:
            known = self.copies[id(static)] = f"r{len(self.copies)}"
            own = static
            for axis, size in enumerate(shape):
                own = own.narrow(axis, 0, at_sizes(size, self.sizes))
            mine = self._bind(own)
            self.after.append(f"{known} = {f'hand_out({mine}, CLOCK)' if self.bucket.static else f'{mine}.clone()'}")
        return known


def _narrowed(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    for axis, size in sizes.items():
        tensor = tensor.narrow(axis, 0, size)
    return tensor


def at_sizes(size: Any, sizes: Mapping[str, int]) -> Any:
    """A size of a result, where the dims have these sizes."""
    return size(sizes) if isinstance(size, SizeFunction) else size
