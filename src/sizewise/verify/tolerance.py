"""When two results count as equal: the one rule every comparison in Sizewise uses.

The largest difference, relative to the RMS of the reference, is at most `SLACK` times the larger of
- eager's own error against float64, where that was computed, and
- ``eps * sqrt(depth)``: what rounding alone does to a sum of ``depth`` terms.

NaN and infinities have to stand in the same places. Integers, booleans and strings have to be equal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

SLACK = 4.0
"""The k of the rule: two orders of summation may each be off by the bound, twice over."""

MINIMUM_DEPTH = 256


@dataclass(frozen=True)
class Difference:
    """Where two results differ, in words, and by how much relative to the reference's RMS."""

    path: str
    what: str
    relative: float = math.inf


def sum_depth(module: nn.Module | None) -> int:
    """An estimate of how many terms the longest chain of sums has: over the matrices, their longest sides added."""
    if module is None:
        return MINIMUM_DEPTH
    sides = [parameter.shape[-1] for parameter in module.parameters() if parameter.ndim >= 2]
    return max(MINIMUM_DEPTH, sum(sides))


def compare(
    reference: Any, seen: Any, depth: int = MINIMUM_DEPTH, exact: Any = None, path: str = "result"
) -> Difference | None:
    """The first difference that is no rounding, or None. ``exact`` is the reference in float64, if known.

    Types, keys and shapes have to be the same; containers are walked.
    """
    for item in _pairs(reference, seen, exact, path):
        if isinstance(item, Difference):
            return item
        name, first, second, precise = item
        difference = _leaf(name, first, second, precise, depth)
        if difference is not None:
            return difference
    return None


def tensors_of(value: Any, path: str = "result") -> Iterator[tuple[str, torch.Tensor]]:
    """(path, tensor) of every tensor in a result."""
    return ((name, leaf) for name, leaf in leaves_of(value, path) if isinstance(leaf, torch.Tensor))


def leaves_of(value: Any, path: str = "result") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in a result that is no container which comparisons look into."""
    parts = None if isinstance(value, torch.Tensor) else _children(value, path)
    if parts is None:
        yield path, value
    for name, child in parts or ():
        yield from leaves_of(child, name)


def _children(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """The parts of a container by path, or None for a leaf."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f"{path}.{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (tuple, list)):
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    return None


def _pairs(reference: Any, seen: Any, exact: Any, path: str) -> Iterator[tuple[str, Any, Any, Any] | Difference]:
    parts = _children(reference, path)
    if type(reference) is not type(seen) and not isinstance(reference, torch.Tensor):
        yield Difference(path, f"is a {type(seen).__name__} instead of a {type(reference).__name__}")
        return
    if parts is None:
        yield path, reference, seen, exact
        return
    others = _children(seen, path) or []
    if [name for name, _ in parts] != [name for name, _ in others]:
        yield Difference(path, f"has the parts {[n for n, _ in others]} instead of {[n for n, _ in parts]}")
        return
    precise = _children(exact, path) if exact is not None else None
    for index, ((name, first), (_, second)) in enumerate(zip(parts, others, strict=True)):
        yield from _pairs(first, second, precise[index][1] if precise else None, name)


def _leaf(path: str, reference: Any, seen: Any, exact: Any, depth: int) -> Difference | None:
    if not isinstance(reference, torch.Tensor):
        same = reference == seen or (reference != reference and seen != seen)
        return None if same else Difference(path, f"is {seen!r} instead of {reference!r}")
    if not isinstance(seen, torch.Tensor):
        return Difference(path, f"is a {type(seen).__name__} instead of a tensor")
    for what in ("shape", "dtype", "device", "layout"):
        first, second = getattr(reference, what), getattr(seen, what)
        if first != second:
            return Difference(path, f"has {what} {_plain(second)} instead of {_plain(first)}")
    if reference.layout != torch.strided:
        reference, seen = reference.to_dense(), seen.to_dense()
    if not (reference.is_floating_point() or reference.is_complex()):
        wrong = int((reference != seen).sum())
        return None if not wrong else Difference(path, f"differs in {wrong} of {reference.numel()} values")
    return _floats(path, reference, seen, exact, depth)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, torch.Size) else value


def _floats(path: str, reference: torch.Tensor, seen: torch.Tensor, exact: Any, depth: int) -> Difference | None:
    if torch.equal(reference, seen):
        return None  # without the memory that the rest takes
    epsilon = torch.finfo(reference.dtype).eps
    wide = torch.complex128 if reference.is_complex() else torch.float64
    first, second = reference.detach().to(wide), seen.detach().to(wide)
    finite = torch.isfinite(first)
    same_special = torch.where(finite, torch.isfinite(second), (first == second) | (first.isnan() & second.isnan()))
    if not bool(same_special.all()):
        return Difference(path, f"has NaN or infinity in other places ({int((~same_special).sum())} values)")
    if not bool(finite.any()):
        return None
    # Selecting takes several times the memory of what is selected.
    whole = bool(finite.all())
    rms = float((first if whole else first[finite]).abs().square().mean().sqrt()) or 1.0
    apart = first - second
    error = float((apart if whole else apart[finite]).abs().max()) / rms
    bound = epsilon * math.sqrt(depth)
    if isinstance(exact, torch.Tensor):
        own = (exact.detach().to(wide) - first)[finite].abs()
        own = own[torch.isfinite(own)]
        bound = max(bound, float(own.max()) / rms if own.numel() else 0.0)
    if error <= SLACK * bound:
        return None
    what = f"differs by {error:.3g} of its RMS {rms:.3g} (allowed: {SLACK * bound:.3g})"
    return Difference(path, what, error)
