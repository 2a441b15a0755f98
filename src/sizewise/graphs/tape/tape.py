"""A recording bound to memory: one function that copies arguments in, makes the calls and copies results out."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...traced import Output
from .memory import place
from .recorder import AFTER, BEFORE, Recording, Step
from .result import ResultWriter


@dataclass(frozen=True)
class Tape:
    """``replay(*arguments)`` gives what the program gives at this size, in tensors of the caller's own.

    It is called under ``torch.no_grad()``, as programs are, with tensors of the shapes and dtypes it was recorded with.
    Replays on one arena must not overlap in time. ``weights`` are bound as they were: `is_current` says whether they
    still are.
    """

    replay: Callable[..., Any]
    steps: int
    live: tuple[str, ...]
    """The names of the steps that allocate, since they have no form that writes to given memory."""
    bytes: int
    """Of the arena, for arguments, intermediates and results; those of live steps come on top."""
    weights: tuple[torch.Tensor, ...]
    addresses: tuple[int, ...]

    def is_current(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether these are the tensors that were bound, at the addresses that were."""
        return len(weights) == len(self.weights) and all(
            now is bound and now.data_ptr() == address
            for now, bound, address in zip(weights, self.weights, self.addresses, strict=True)
        )


class Arena:
    """One block of memory that tapes share, since one replays at a time. ``bytes``: the largest that asks for room."""

    def __init__(self, bytes: int) -> None:
        # Outside of inference mode: what is made there could not be written by calls outside of it.
        with torch.inference_mode(False):
            self._block = torch.empty(bytes, dtype=torch.uint8)

    @property
    def bytes(self) -> int:
        return self._block.numel()

    def view(self, like: torch.Tensor, offset: int) -> torch.Tensor:
        """A tensor of ``like``'s type, sizes and strides; its storage begins ``offset`` bytes into the block."""
        start = offset // like.element_size() + like.storage_offset()
        with torch.inference_mode(False):
            empty = torch.empty(0, dtype=like.dtype)
            return empty.set_(self._block.untyped_storage(), start, like.shape, like.stride())


class Layout:
    """Where the buffers of a recording lie, and how much they take together."""

    def __init__(self, recording: Recording, kept: Sequence[torch.Tensor]) -> None:
        for tensor in kept:
            recording.buffers[tensor.untyped_storage()._cdata].last = AFTER
        self._keys = list(recording.buffers)
        spans = [(b.storage.nbytes(), b.first, max(b.first, b.last)) for b in recording.buffers.values()]
        offsets, self.bytes = place(spans)
        self.offsets = dict(zip(self._keys, offsets, strict=True))


def bind(recording: Recording, template: Output, arena: Arena | None = None, label: str = "") -> Tape:
    """``recording`` as a tape on ``arena``, or on one of its own.

    Raises:
        NotRecordable: of its result, one tensor is an argument or shares memory with another.
        ArenaTooSmall.
    """
    result = ResultWriter(recording)
    text = result.write(template, recording.result)
    layout = Layout(recording, list(result.kept.values()))
    if arena is None:
        arena = Arena(layout.bytes)
    if arena.bytes < layout.bytes:
        raise ArenaTooSmall(f"{layout.bytes} bytes are needed, and there are {arena.bytes}")
    writer = _Writer(recording, layout, arena)
    source, scope = writer.write(result, text)
    filename = f"<sizewise tape {label}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    weights = tuple(recording.weights)
    return Tape(
        scope["replay"],
        len(recording.steps),
        tuple(step.name for step in recording.steps if step.results is not None),
        layout.bytes,
        weights,
        tuple(tensor.data_ptr() for tensor in weights),
    )


class ArenaTooSmall(Exception):
    """Internal: a recording needs more memory than the arena has."""


class _Writer:
    def __init__(self, recording: Recording, layout: Layout, arena: Arena) -> None:
        self._recording, self._layout, self._arena = recording, layout, arena
        self._bound: dict[int, str] = {}
        self._scope: dict[str, Any] = {}
        self._functions: dict[int, str] = {}

    def write(self, result: ResultWriter, text: str) -> tuple[str, dict[str, Any]]:
        arguments = [f"a{index}" for index in range(len(self._recording.arguments))]
        body = [
            f"{self._text(tensor)}.copy_({name})"
            for name, tensor in zip(arguments, self._recording.arguments, strict=True)
        ]
        body += [self._line(step) for step in self._recording.steps]
        # A clone keeps the strides of a tensor without holes, and that is all that programs give.
        body += [f"{name} = {self._text(tensor)}.clone()" for name, tensor in result.kept.items()]
        body.append(f"return {text}")
        self._scope |= result.scope
        return f"def replay({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body), self._scope

    def _line(self, step: Step) -> str:
        given = [self._text(value) for value in step.args]
        given += [f"{name}={self._text(value)}" for name, value in step.kwargs.items()]
        call = f"{self._function(step.run)}({', '.join(given)})"
        if step.results is None:
            return call
        if len(step.results) == 1 and step.results[0] is not None:
            return f"{self._text(step.results[0])}.copy_(first({call}))"
        targets = ", ".join("None" if tensor is None else self._text(tensor) for tensor in step.results)
        self._scope["copy"] = _copy
        return f"copy([{targets}], {call})"

    def _function(self, function: Any) -> str:
        name = self._functions.get(id(function))
        if name is None:
            name = self._functions[id(function)] = f"f{len(self._functions)}"
            self._scope[name] = function
            self._scope["first"] = _first
        return name

    def _text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (tuple, list)):
            items = ", ".join(map(self._text, value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if type(value) in (int, bool, str) or value is None:
            return repr(value)
        name = f"v{len(self._scope)}"
        self._scope[name] = value
        return name

    def _tensor(self, tensor: torch.Tensor) -> str:
        name = self._bound.get(id(tensor))
        if name is None:
            name = self._bound[id(tensor)] = f"t{len(self._bound)}"
            offset = self._layout.offsets.get(tensor.untyped_storage()._cdata)
            self._scope[name] = tensor if offset is None else self._arena.view(tensor, offset)
        return name


def _first(value: Any) -> Any:
    """An operator's one result; a piece gives a tuple of it."""
    return value[0] if isinstance(value, (tuple, list)) else value


def _copy(targets: Sequence[torch.Tensor | None], values: Any) -> None:
    for target, value in zip(targets, values, strict=True):
        if target is not None:
            target.copy_(value)


__all__ = ["AFTER", "BEFORE", "Arena", "ArenaTooSmall", "Tape", "bind"]
