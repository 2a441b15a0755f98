"""What a trace assumed about sizes, in the user's dims, and whether it holds in the whole range.

Private API: ``SymInt.node.expr``, ``ShapeEnv.guards``, ``.deferred_runtime_asserts`` and ``.var_to_range``,
``torch.utils._sympy``. Checked on torch 2.13.0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges

from ..dims import Dim
from ..traced.sizes import Assumption, SizeFunction

ENUMERATION_LIMIT = 1_000_000
"""Points up to which an assumption is decided by trying every size in range."""


def expression(value: Any) -> sympy.Basic:
    """The sympy expression of a size, bool or int."""
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)) else sympy.sympify(value)


class SymbolTable:
    """Symbols of one trace and the dims they stand for."""

    def __init__(self, names: Mapping[sympy.Symbol, str], dims: Mapping[str, Dim]) -> None:
        self.names = dict(names)
        self.dims = dict(dims)

    def unknown(self, expr: sympy.Basic) -> list[sympy.Symbol]:
        """Symbols of ``expr`` that are not sizes of declared dims: they depend on data."""
        return sorted((s for s in expr.free_symbols if s not in self.names), key=str)

    def function(self, expr: Any) -> SizeFunction:
        """``expr`` as a function of dims; every symbol has to be known."""
        expr = expression(expr) if not isinstance(expr, sympy.Basic) else expr
        renamed = expr.xreplace({s: sympy.Symbol(self.names[s], integer=True) for s in expr.free_symbols})
        used = tuple(sorted({self.names[s] for s in expr.free_symbols}))
        return SizeFunction(PythonPrinter().doprint(renamed), used)


def settle(expr: sympy.Basic, table: SymbolTable) -> Assumption:
    """Prove ``expr`` over the declared ranges, or find sizes for which it is false.

    The caller has made sure that no symbol is unknown.
    """
    if expr == sympy.true:
        return Assumption("True", "proved", "constant")
    function = table.function(expr)
    if function.source in ("True", "1"):
        return Assumption(str(expr), "proved", "same dim")
    dims = [table.dims[name] for name in function.dims]
    failure = _search(function, dims)
    method = "every size in range tried" if _points(dims) <= ENUMERATION_LIMIT else "edges and a sample tried"
    if failure is None and _points(dims) <= ENUMERATION_LIMIT:
        return Assumption(function.source, "proved", method)
    relation = _equality(expr, table)
    if relation is not None:
        return Assumption(function.source, "checked", "equal sizes, at every call", relation=relation)
    if failure is None:
        # Too many points to try and no proof: it stays an entry check of the whole expression.
        return Assumption(function.source, "checked", "at every call")
    return Assumption(function.source, "refuted", method, tuple(sorted(failure.items())))


GENERAL_WAY_OUT = "narrow the declared ranges to sizes for which this holds, or change the code that assumes it."


def way_out(refuted: Assumption, table: SymbolTable) -> str:
    """What to declare or to change, where an assumption about one dim is false for some sizes."""
    names = [name for name, _ in refuted.counterexample]
    if len(names) != 1:
        return GENERAL_WAY_OUT
    dim = table.dims[names[0]]
    sizes = range(dim.min, min(dim.max, dim.min + ENUMERATION_LIMIT) + 1)
    holding = _holding(SizeFunction(refuted.text, (dim.name,)), dim.name, sizes)
    if not holding:
        return "change the code that assumes it: no size in the declared range satisfies it."
    first, last = _longest_run(holding)
    if last > first:
        return f'declare Dim("{dim.name}", min={first}, max={last}), or change the code that assumes it.'
    steps = {after - before for before, after in itertools.pairwise(holding)}
    if len(steps) != 1 or holding[0] % (step := steps.pop()):
        return "change the code that assumes it: no range of several sizes satisfies it."
    return (
        f"no range of sizes satisfies it, only multiples of {step} do: pad {dim.name} to one in the module, before "
        "that line (torch.nn.functional.pad), and cut the result to size; or change the code that assumes it."
    )


def _holding(function: SizeFunction, name: str, sizes: Iterable[int]) -> list[int]:
    code = compile(function.source, "<size assumption>", "eval")
    return [size for size in sizes if _is_true(code, {name: size})]


def _longest_run(sizes: list[int]) -> tuple[int, int]:
    """First and last of the longest run of successive sizes."""
    best = start = 0
    end = 0
    for index in range(1, len(sizes) + 1):
        if index == len(sizes) or sizes[index] != sizes[index - 1] + 1:
            if index - start > end - best + 1:
                best, end = start, index - 1
            start = index
    return sizes[best], sizes[end]


def _is_true(code: Any, point: dict[str, int]) -> bool:
    """Whether a condition holds; one that cannot be computed does not."""
    try:
        return bool(eval(code, {"math": math}, point))
    except ArithmeticError:
        return False


def _points(dims: Iterable[Dim]) -> int:
    return math.prod(dim.max - dim.min + 1 for dim in dims)


def _search(function: SizeFunction, dims: list[Dim]) -> dict[str, int] | None:
    """Sizes at which ``function`` is false or cannot be computed, or None."""
    if _points(dims) <= ENUMERATION_LIMIT:
        axes: list[Iterable[int]] = [range(dim.min, dim.max + 1) for dim in dims]
    else:
        per_axis = max(3, int(ENUMERATION_LIMIT ** (1 / len(dims))))
        axes = [sorted({dim.min, dim.max, *_spread(dim, per_axis)}) for dim in dims]
    code = compile(function.source, "<size assumption>", "eval")
    names = [dim.name for dim in dims]
    for sizes in itertools.product(*axes):
        point = dict(zip(names, sizes, strict=True))
        if not _is_true(code, point):
            return point
    return None


def _spread(dim: Dim, count: int) -> list[int]:
    step = max(1, (dim.max - dim.min) // count)
    return list(range(dim.min, dim.max + 1, step))


def _equality(expr: sympy.Basic, table: SymbolTable) -> tuple[str, str] | None:
    """The two dims of ``Eq(a, b)``, or None."""
    if not isinstance(expr, sympy.Eq) or not all(isinstance(side, sympy.Symbol) for side in expr.args):
        return None
    first, second = (table.names[side] for side in expr.args)
    return (first, second) if first != second else None


@contextmanager
def narrowed(fake_mode: Any, symbol: sympy.Symbol, start: int, end: int) -> Iterator[None]:
    """``symbol`` known to lie in ``start..end`` while a range is compiled."""
    ranges = fake_mode.shape_env.var_to_range
    before = ranges.get(symbol)
    if before is None:
        yield
        return
    ranges[symbol] = ValueRanges(max(int(before.lower), start), min(_as_int(before.upper), end))
    try:
        yield
    finally:
        ranges[symbol] = before


def _as_int(bound: Any) -> int:
    return int(bound) if bound.is_finite else 2**62


def concrete(value: Any, symbol: sympy.Symbol, size: int, fake_mode: Any) -> Any:
    """An example value with ``symbol`` replaced by ``size``; other symbols stay."""
    if isinstance(value, torch.SymInt):
        return _replaced(value, symbol, size, fake_mode)
    if not isinstance(value, torch.Tensor):
        return value
    shape = [_replaced(item, symbol, size, fake_mode) for item in value.shape]
    stride = [_replaced(item, symbol, size, fake_mode) for item in value.stride()]
    with fake_mode:
        return torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)


def _replaced(value: Any, symbol: sympy.Symbol, size: int, fake_mode: Any) -> Any:
    if isinstance(value, int):
        return value
    expr = expression(value)
    if symbol not in expr.free_symbols:
        return value
    changed = expr.xreplace({symbol: sympy.Integer(size)})
    if changed.is_number:
        return int(changed)
    return fake_mode.shape_env.create_symintnode(changed, hint=None)
