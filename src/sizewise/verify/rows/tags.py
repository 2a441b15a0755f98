"""Where the rows of a dim lie in a tensor, and the arithmetic that carries this through operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """A tensor in which each row has places of its own along ``axis``, whose size is outer * rows * inner.

    Index ``(o * rows + row) * inner + i`` belongs to ``row``. What stands there is the same whatever the other rows
    hold and however many there are.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    counts: bool = False
    """Whether the values are the rows' own numbers, from 0."""

    def at(self, axis: int) -> Rows:
        """The same rows along another axis, of other values."""
        return Rows(axis, self.outer, self.inner)

    def moved(self, axis: int) -> Rows:
        """The same rows along another axis, of the same values."""
        return replace(self, axis=axis)

    @property
    def plain(self) -> Rows:
        return self.at(self.axis)

    @property
    def single(self) -> bool:
        """Whether the axis has one entry for each row."""
        return self.outer == self.inner == 1

    def fits(self, shape: Shape, rows: int) -> bool:
        """Whether a tensor of ``shape`` can have them, for that many rows."""
        return self.axis < len(shape) and shape[self.axis] == self.outer * rows * self.inner


@dataclass(frozen=True)
class Leak:
    """Why a tensor is not made of rows that stand for themselves: the operator, by its qualified name."""

    operator: str
    reason: str


Tag = Rows | Leak | None
"""Of a tensor. None: it does not depend on the dim at all."""


class Mixes(Exception):
    """An operator lets rows depend on one another, or cannot be shown not to; the reason in words."""


@dataclass(frozen=True)
class Operand:
    """A tensor argument of an operator in one of the two runs."""

    shape: Shape
    rows: Rows | None
    is_index: bool = True
    """Whether it holds integers of 32 or 64 bits, as opposed to truth values or other numbers."""

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass
class Applied:
    """One operator as it was called in one of the two runs, at ``rows`` rows of ``dim``."""

    name: str
    dim: str
    rows: int
    args: dict[str, Any]
    """All arguments by their names in the operator's schema; tensors as operands."""
    results: list[Shape]
    following: list[int | None]
    """Of each result, the axis whose size is another in the other run."""
    result_is_long: list[bool] = field(default_factory=list)

    def operands(self) -> list[Operand]:
        """The tensor arguments, those in lists included."""
        found: list[Operand] = []
        for value in self.args.values():
            found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, Operand)]
        return found

    def operand(self, *names: str) -> Operand:
        """The argument with one of these names, which has to be a tensor."""
        for name in names:
            if isinstance(self.args.get(name), Operand):
                found: Operand = self.args[name]
                return found
        raise Mixes("is called in a form that is not known")

    def rows_of(self, name: str) -> Rows | None:
        """The rows of a tensor argument; None where it has none, or is no tensor."""
        value = self.args.get(name)
        return value.rows if isinstance(value, Operand) else None

    def need(self, condition: bool, reason: str) -> None:
        if not condition:
            raise Mixes(reason)

    def without_rows(self, *names: str) -> None:
        """Refuse rows in the arguments named."""
        for name in names:
            self.need(self.rows_of(name) is None, f"uses rows of {self.dim} as its {name.replace('_', ' ')}")

    def only_rows_in(self, *names: str) -> None:
        """Refuse rows in all arguments but those named."""
        for name, value in self.args.items():
            if name not in names:
                each = value if isinstance(value, (list, tuple)) else [value]
                self.need(
                    all(v.rows is None for v in each if isinstance(v, Operand)),
                    f"uses rows of {self.dim} as its {name.replace('_', ' ')}",
                )

    def constant_rows(self, index: int = 0) -> Rows | None:
        """The rows of a result whose values depend on their place only, and not on the number of rows."""
        axis = self.following[index]
        if axis is None:
            return None
        size = self.results[index][axis]
        self.need(size % self.rows == 0, f"gives a size that is no multiple of {self.dim}")
        return Rows(axis, 1, size // self.rows)

    def over_rows(self) -> str:
        return f"takes {self.name.strip('_')} over the rows of {self.dim}"


def axis_of(axis: int, ndim: int) -> int:
    """A counted-from-the-end axis from the front."""
    return axis + ndim if axis < 0 else axis


def aligned(op: Applied, operands: Sequence[Operand], ndim: int) -> Rows | None:
    """The rows of a result of ``ndim`` axes that ``operands`` are broadcast to."""
    found: Rows | None = None
    for operand in operands:
        if operand.rows is None:
            continue
        rows = operand.rows.at(operand.rows.axis + ndim - operand.ndim)
        op.need(found is None or found == rows, f"combines rows of {op.dim} with others of them")
        found = rows
    return found


def reshaped(op: Applied, rows: Rows, old: Shape, new: Shape, axis: int | None) -> Rows:
    """The rows after the values, in their order, were given another shape; ``axis`` follows the dim there."""
    op.need(axis is not None, f"mixes the rows of {op.dim} with another axis")
    place = axis or 0
    block = rows.inner * math.prod(old[rows.axis + 1 :])
    tail = math.prod(new[place + 1 :])
    op.need(block > 0 and tail > 0 and block % tail == 0, f"mixes the rows of {op.dim} with another axis")
    inner = block // tail
    op.need(new[place] % (op.rows * inner) == 0, f"mixes the rows of {op.dim} with another axis")
    outer = new[place] // (op.rows * inner)
    return Rows(place, outer, inner, rows.counts and outer == inner == 1)
