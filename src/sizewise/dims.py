"""Dims: named sizes that change between calls, and where a call's arguments carry them."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
                self._refuse(f"{bound!r} is not an int")
        if not isinstance(self.name, str) or not self.name.isidentifier() or keyword.iskeyword(self.name):
            self._refuse("the name has to be an identifier and no keyword")
        if self.min < 1:
            self._refuse("size 0 and negative sizes are not served")
        if self.min > self.max:
            self._refuse(f"min {self.min} > max {self.max}")

    def _refuse(self, problem: str) -> None:
        raise errors.BadDim(name=self.name, problem=problem, min=self.min, max=self.max)

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
        raise errors.BadDynamicShapes(argument=argument, problem=f"{type(dynamic_shapes).__name__}, not a dict")
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
    raise errors.BadDynamicShapes(argument=path, problem=f"{entry!r}")


def _is_static(dim: Any) -> bool:
    return dim is None or getattr(dim, "name", None) == "STATIC"


def _as_dim(path: str, dim: Any) -> Dim:
    if isinstance(dim, Dim):
        return dim
    if type(dim).__name__ == "_DimHint":
        raise errors.BadDynamicShapes(argument=path, problem=f"{dim}, which names no range")
    # torch.export.Dim is recognised by shape, so that this file does not import torch.
    if type(dim).__module__.startswith("torch.export") and hasattr(dim, "min") and hasattr(dim, "max"):
        if type(dim).__name__ != "Dim":
            raise errors.BadDynamicShapes(argument=path, problem=f"the derived dim {dim.__name__}")
        highest = dim.max if dim.max < 2**31 else DEFAULT_MAX
        # torch.export's own default minimum is 0, which it treats as "2 and up".
        return Dim(dim.__name__, min=max(1, dim.min), max=highest)
    raise errors.BadDynamicShapes(argument=path, problem=f"{dim!r} where a Dim was expected")


def _check_agreement(spec: DimSpec) -> None:
    """One name, one range."""
    seen: dict[str, Dim] = {}
    for axes in spec.values():
        for dim in axes.values():
            first = seen.setdefault(dim.name, dim)
            if first != dim:
                problem = f"two ranges for one name, {first.min} to {first.max} and {dim.min} to {dim.max}"
                raise errors.BadDim(name=dim.name, problem=problem, min=dim.min, max=dim.max)


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
            raise errors.BadDynamicShapes(argument=path, problem=f"ranks {sorted(ranks)} in different calls")
        for axis in range(ranks.pop()):
            sizes = tuple(call[path][axis] for call in shapes)
            if len(set(sizes)) == 1:
                continue
            name = columns.setdefault(sizes, _identifier(f"{path}_{axis}"))
            spec.setdefault(path, {})[axis] = Dim(name, min=1, max=max(sizes))
    if not spec:
        seen = f"Sizes in {len(shapes)} calls: {shapes[:1]}."
        raise errors.NoDynamicDims(owner=owner, seen=seen)
    return spec


def _identifier(text: str) -> str:
    cleaned = "".join(char if char.isalnum() else "_" for char in text)
    return cleaned if cleaned.isidentifier() else f"dim_{cleaned}"
