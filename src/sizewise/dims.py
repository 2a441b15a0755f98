"""Dims: named sizes that change between calls, and where a call's arguments carry them."""

from __future__ import annotations

import ast
import difflib
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import call as call_errors
from .errors import trace as errors

DEFAULT_MAX = 1024
"""Largest size of a dim whose maximum was not declared: ranges have to be bounded to be checked."""


@dataclass(frozen=True)
class Dim:
    """A named size that changes between calls.

    ``min`` and ``max`` are inclusive counts of elements along an axis. The same name in two inputs
    means that the sizes are equal. Size 0 is refused: an empty batch has no result to check.

    Raises:
        BadDim (SW201): not ``1 <= min <= max``.
    """

    name: str
    min: int = 1
    max: int = DEFAULT_MAX

    def __post_init__(self) -> None:
        for bound in (self.min, self.max):
            if type(bound) is not int:
                self._refuse(f"{bound!r} is not an int", "give min and max as ints, 1 <= min <= max.")
        if not isinstance(self.name, str) or not self.name.isidentifier() or keyword.iskeyword(self.name):
            todo = f"write a Python name, which is no keyword: Dim({_identifier(str(self.name))!r}, ...)."
            self._refuse("the name has to be an identifier and no keyword", todo)
        if self.min < 1:
            todo = 'declare min=1; for calls with empty tensors set on_outside="eager", which runs the original.'
            self._refuse("size 0 and negative sizes are not served", todo)
        if self.min > self.max:
            self._refuse(f"min {self.min} > max {self.max}", "declare ints with 1 <= min <= max.")

    def _refuse(self, problem: str, todo: str) -> None:
        raise errors.BadDim(name=self.name, problem=problem, min=self.min, max=self.max, todo=todo)

    def __contains__(self, size: int) -> bool:
        return self.min <= size <= self.max


DimSpec = dict[str, dict[int, Dim]]
"""Argument path -> axis -> Dim. A path is an argument's name, with ``[index]`` or ``['key']`` behind it
for a tensor inside a list, tuple or dict."""


def normalize(dynamic_shapes: Mapping[str, Any] | None, arguments: Iterable[str], owner: str) -> DimSpec:
    """The declaration as argument path -> axis -> Dim; both ``{axis: Dim}`` and sequences are accepted.

    ``arguments`` are the names of the forward method; ``owner`` is named in errors. An axis given as
    None (or ``torch.export.Dim.STATIC``) is static.

    Raises:
        UnknownArgument (SW202), BadDynamicShapes (SW203), BadDim (SW201).
    """
    known = list(arguments)
    spec: DimSpec = {}
    if isinstance(dynamic_shapes, (tuple, list)) and len(dynamic_shapes) <= len(known):
        # torch.export's other form: one entry per argument, in order.
        dynamic_shapes = dict(zip(known, dynamic_shapes, strict=False))
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping):
        argument = known[0] if known else "x"
        raise bad_dynamic_shapes(argument, f"{type(dynamic_shapes).__name__}, not a dict")
    for argument, entry in (dynamic_shapes or {}).items():
        if argument not in known:
            close = difflib.get_close_matches(str(argument), known, n=1)
            near = f" Did you mean {close[0]!r}?" if close else ""
            raise errors.UnknownArgument(argument=argument, owner=owner, known=", ".join(known), near=near)
        _collect(argument, entry, spec)
    _check_agreement(spec)
    return spec


def _collect(path: str, entry: Any, spec: DimSpec) -> None:
    """Add the dims of one argument; nested containers extend the path."""
    if entry is None:
        return
    if isinstance(entry, Mapping):
        items = list(entry.items())
        if all(isinstance(key, int) and not isinstance(key, bool) for key, _ in items):
            axes = {axis: _as_dim(path, dim) for axis, dim in items if not _is_static(dim)}
            if axes:
                spec[path] = axes
            return
        for key, inner in items:
            _collect(f"{path}[{key!r}]", inner, spec)
        return
    if isinstance(entry, (list, tuple)):
        if any(isinstance(inner, (Mapping, list, tuple)) for inner in entry):
            for index, inner in enumerate(entry):
                _collect(f"{path}[{index}]", inner, spec)
            return
        axes = {axis: _as_dim(path, dim) for axis, dim in enumerate(entry) if not _is_static(dim)}
        if axes:
            spec[path] = axes
        return
    raise bad_dynamic_shapes(path, f"{entry!r}")


def _is_static(dim: Any) -> bool:
    return dim is None or getattr(dim, "name", None) == "STATIC"


def _as_dim(path: str, dim: Any) -> Dim:
    if isinstance(dim, Dim):
        return dim
    if type(dim).__name__ == "_DimHint":
        raise bad_dynamic_shapes(path, f"{dim}, which names no range")
    # torch.export.Dim is recognised by shape, so that this file does not import torch.
    if type(dim).__module__.startswith("torch.export") and hasattr(dim, "min") and hasattr(dim, "max"):
        if type(dim).__name__ != "Dim":
            todo = f"declare that size as a Dim of its own, with its own range: dynamic_shapes={example_of(path)}."
            raise bad_dynamic_shapes(path, f"the derived dim {dim.__name__}", todo)
        highest = dim.max if dim.max < 2**31 else DEFAULT_MAX
        # torch.export's own default minimum is 0, which it treats as "2 and up".
        return Dim(dim.__name__, min=max(1, dim.min), max=highest)
    raise bad_dynamic_shapes(path, f"{dim!r} where a Dim was expected")


def bad_dynamic_shapes(path: str, problem: str, todo: str = "") -> errors.BadDynamicShapes:
    """SW203; without ``todo`` it says how the tensor at ``path`` is declared."""
    written = f"write dynamic_shapes={example_of(path)}: {{axis: Dim}} per tensor."
    return errors.BadDynamicShapes(argument=path, problem=problem, todo=todo or written)


def example_of(path: str) -> str:
    """A declaration of axis 0 of the tensor at ``path``, as one writes it: ``{"x": [None, {0: Dim(...)}]}``."""
    text = '{0: Dim("batch", min=1, max=64)}'
    try:
        place = ast.parse(path, mode="eval").body
    except SyntaxError:
        return text
    while isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Constant):
        key = place.slice.value
        text = f"[{'None, ' * key}{text}]" if type(key) is int else f"{{{key!r}: {text}}}"
        place = place.value
    # A key that is no literal cannot be written here.
    return f'{{"{place.id}": {text}}}' if isinstance(place, ast.Name) else text


def no_such_axis(argument: str, axis: int, shape: tuple[int, ...]) -> errors.NoSuchAxis:
    """SW204, with the axis that was probably meant."""
    rank = len(shape)
    if not rank:
        todo = f"leave {argument} out of dynamic_shapes: a tensor without axes has no size that changes."
    elif -rank <= axis < 0:
        todo = f"write {rank + axis} for {axis}: axes count from 0."
    else:
        todo = f"name an axis from 0 to {rank - 1}, or warm up with a tensor that has axis {axis}."
    return errors.NoSuchAxis(axis=axis, argument=argument, rank=rank, shape=shape, todo=todo)


def out_of_range(argument: str, axis: int, seen: int, dim: Dim, *, warming: bool) -> call_errors.SizeOutOfRange:
    """SW401, with what helps for this size; ``warming`` for an example of a warm-up."""
    low, high = min(dim.min, seen), max(dim.max, seen)
    wider = f'declare axis {axis} of {argument} as Dim("{dim.name}", min={low}, max={high})'
    eager = 'set on_outside="eager"'
    if warming:
        todo = f"warm up with {dim.min} to {dim.max} entries on axis {axis} of {argument}"
        todo = f"{todo}, or {wider}." if seen else f"{todo}: an empty tensor has no result to check."
    elif not seen:
        todo = f"do not call it with an empty tensor, or {eager}, which runs the original: no Dim includes size 0."
    elif seen > dim.max:
        todo = f"{wider}, or split the call where its parts are independent, or {eager}."
    else:
        todo = f"{wider}, or {eager}."
    return call_errors.SizeOutOfRange(
        argument=argument, axis=axis, seen=seen, dim=dim.name, min=dim.min, max=dim.max, todo=todo
    )


def _check_agreement(spec: DimSpec) -> None:
    """One name, one range."""
    seen: dict[str, Dim] = {}
    for axes in spec.values():
        for dim in axes.values():
            first = seen.setdefault(dim.name, dim)
            if first != dim:
                problem = f"two ranges for one name, {first.min} to {first.max} and {dim.min} to {dim.max}"
                todo = "make one Dim and use it at both places; sizes that may differ need dims of different names."
                raise errors.BadDim(name=dim.name, problem=problem, min=dim.min, max=dim.max, todo=todo)


def dims_of(spec: DimSpec) -> dict[str, Dim]:
    """The dims by name, in the order of declaration."""
    return {dim.name: dim for axes in spec.values() for dim in axes.values()}


def infer(shapes: list[dict[str, tuple[int, ...]]], owner: str) -> DimSpec:
    """Dims from several calls: an axis whose size differs between calls is a dim.

    ``shapes`` holds one mapping of argument path -> shape per call. Axes that change together share a
    dim (they agreed in every call); it is named after the first argument and axis that carry it and
    ranges from 1 to the largest size seen.

    Raises:
        NoDynamicDims (SW206): no size differs.
    """
    columns: dict[tuple[int, ...], str] = {}
    spec: DimSpec = {}
    common = [path for path in shapes[0] if all(path in call for call in shapes)] if shapes else []
    for path in common:
        ranks = {len(call[path]) for call in shapes}
        if len(ranks) > 1:
            todo = f"declare it, and each number of axes gets a program of its own: dynamic_shapes={example_of(path)}."
            raise bad_dynamic_shapes(path, f"{' and '.join(map(str, sorted(ranks)))} axes in different calls", todo)
        for axis in range(ranks.pop()):
            sizes = tuple(call[path][axis] for call in shapes)
            if len(set(sizes)) == 1:
                continue
            name = columns.setdefault(sizes, _identifier(f"{path}_{axis}"))
            spec.setdefault(path, {})[axis] = Dim(name, min=1, max=max(sizes))
    if not spec:
        raise _no_dynamic_dims(shapes, owner)
    return spec


def _no_dynamic_dims(shapes: list[dict[str, tuple[int, ...]]], owner: str) -> errors.NoDynamicDims:
    first = shapes[0] if shapes else {}
    seen = (
        "The only call has" if len(shapes) == 1 else f"No size differs between the {len(shapes)} calls; the first has"
    )
    example = f"{example_of(next(iter(first)))}, or {{}} if nothing does" if first else "{}"
    todo = f"declare what changes, dynamic_shapes={example}; or give warmup_many calls whose sizes differ."
    return errors.NoDynamicDims(owner=owner, seen=f"{seen} {first or 'no tensors'}.", todo=todo)


def _identifier(text: str) -> str:
    cleaned = "".join(char if char.isalnum() else "_" for char in text)
    return cleaned if cleaned.isidentifier() and not keyword.iskeyword(cleaned) else f"dim_{cleaned}"
