"""Programs of random operators, safe ones and leaking ones, and what rows behind the real ones do to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sizewise.calls import Call, Signature
from sizewise.verify.rows import Rows, Verdict, analyse


class Apply(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def call_of(module: nn.Module, values: Mapping[str, Any]) -> Call:
    copies = {name: value.clone() if isinstance(value, Tensor) else value for name, value in values.items()}
    return Signature(module.forward, type(module).__name__).bind((), copies)


def cut(values: Mapping[str, Any], axes: Mapping[str, int], rows: int) -> dict[str, Any]:
    """The first ``rows`` rows of the arguments that have them."""
    return {name: value.narrow(axes[name], 0, rows) if name in axes else value for name, value in values.items()}


def verdict_of(
    module: nn.Module, values: Mapping[str, Any], axes: Mapping[str, int] | None = None, few: int = 2, run: Any = None
) -> Verdict:
    """The analysis of a module at ``few`` rows and at all of ``values``."""
    axes = dict.fromkeys(values, 0) if axes is None else axes
    first, second = call_of(module, cut(values, axes, few)), call_of(module, values)
    run = run or (lambda call: module(*call.args, **call.kwargs))
    return analyse(run, module, first, second, axes, "batch")


def other_rows(values: Mapping[str, Any], axes: Mapping[str, int], few: int) -> dict[str, Any]:
    """The same values with other rows behind the first ``few``."""
    changed = {}
    for name, value in values.items():
        if name in axes:
            behind = value.narrow(axes[name], few, value.shape[axes[name]] - few)
            behind = behind.flip(axes[name]) * 3 + 1 if value.is_floating_point() else behind.flip(-1)
            value = torch.cat([value.narrow(axes[name], 0, few), behind], axes[name])
        changed[name] = value
    return changed


def difference(one: Tensor, other: Tensor, rows: Rows | None, few: int, tolerance: float) -> str:
    """How the real rows of a result differ from what they are without others behind them; '' if they do not."""
    if rows is not None:
        other = other.narrow(rows.axis, 0, few * rows.inner)
    if one.shape != other.shape:
        return f"has shape {tuple(other.shape)} for {tuple(one.shape)}"
    close = torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if close else f"differs by {float((one.double() - other.double()).abs().max())}"


# ---------------------------------------------------------------------------------------------------------------------
# Random programs. Each operator takes two tensors and two small numbers; what it cannot do raises and is left out.

Operator = Callable[[Tensor, Tensor, int, int], Any]


def axis(x: Tensor, number: int) -> int:
    return number % max(x.ndim, 1)


def after(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    copy = x.clone()
    write(copy)
    return copy


def put(place: Any, value: Any) -> Callable[[Tensor], None]:
    return lambda copy: copy.__setitem__(place, value)


def small(x: Tensor) -> Tensor:
    """Numbers 0 and 1 that depend on the values."""
    return x.long().abs() % 2


def attend(x: Tensor, number: int, **options: Any) -> Tensor:
    one = x.unsqueeze(number % 2)
    return F.scaled_dot_product_attention(one, one, one, **options)


VIEWS: dict[str, Operator] = {
    "transpose": lambda x, y, i, j: x.transpose(axis(x, i), axis(x, j)),
    "movedim": lambda x, y, i, j: x.movedim(axis(x, i), axis(x, j)),
    "flatten": lambda x, y, i, j: x.flatten(min(axis(x, i), axis(x, j)), max(axis(x, i), axis(x, j))),
    "unflatten last": lambda x, y, i, j: x.unflatten(axis(x, i), (-1, 2)),
    "unflatten first": lambda x, y, i, j: x.unflatten(axis(x, i), (2, -1)),
    "reshape to the other": lambda x, y, i, j: x.reshape(y.shape),
    "reshape to rows": lambda x, y, i, j: x.reshape(x.shape[0], -1),
    "reshape to four": lambda x, y, i, j: x.reshape(-1, 4),
    "exchange sizes": lambda x, y, i, j: x.reshape(x.shape[1], x.shape[0], *x.shape[2:]),
    "unsqueeze": lambda x, y, i, j: x.unsqueeze(i % (x.ndim + 1)),
    "squeeze": lambda x, y, i, j: x.squeeze(),
    "squeeze one": lambda x, y, i, j: x.squeeze(axis(x, i)),
    "chunk, first": lambda x, y, i, j: x.chunk(2, axis(x, i))[0],
    "chunk, last": lambda x, y, i, j: x.chunk(2, axis(x, i))[1],
    "select": lambda x, y, i, j: x.select(axis(x, i), j % 2),
    "last": lambda x, y, i, j: x.select(axis(x, i), -1),
    "two": lambda x, y, i, j: x.narrow(axis(x, i), 0, 2),
    "all but the first": lambda x, y, i, j: x.narrow(axis(x, i), 1, x.shape[axis(x, i)] - 1),
    "as many as the other": lambda x, y, i, j: x.narrow(axis(x, i), 0, y.shape[0]),
    "every second": lambda x, y, i, j: x[::2],
    "expand": lambda x, y, i, j: x.expand(y.shape),
    "expand in front": lambda x, y, i, j: x.expand(y.shape[axis(y, i)], *x.shape),
    "unfold": lambda x, y, i, j: x.unfold(axis(x, i), 2, 1),
    "diagonal": lambda x, y, i, j: x.diagonal(dim1=axis(x, i), dim2=axis(x, j)),
    "alias": lambda x, y, i, j: x.view(x.shape),
    "data": lambda x, y, i, j: x.data,
    "as_strided": lambda x, y, i, j: x.as_strided(x.shape, x.stride()),
    "transpose in place": lambda x, y, i, j: x.clone().transpose_(axis(x, i), axis(x, j)),
}

VALUES: dict[str, Operator] = {
    "add": lambda x, y, i, j: x + y,
    "mul": lambda x, y, i, j: x * y,
    "where": lambda x, y, i, j: torch.where(x > 0, x, y),
    "sin": lambda x, y, i, j: x.sin(),
    "matmul": lambda x, y, i, j: x @ y,
    "matmul, transposed": lambda x, y, i, j: x @ y.mT,
    "baddbmm": lambda x, y, i, j: torch.baddbmm(x, x, y),
    "addmm": lambda x, y, i, j: torch.addmm(x, x, y.T),
    "outer": lambda x, y, i, j: torch.outer(x.flatten(), y.flatten()),
    "einsum, each": lambda x, y, i, j: torch.einsum("bij,bkj->bik", x, y),
    "einsum, every": lambda x, y, i, j: torch.einsum("bij,cij->bc", x, y),
    "einsum, over": lambda x, y, i, j: torch.einsum("bij,bik->jk", x, x),
    "sum": lambda x, y, i, j: x.sum(axis(x, i)),
    "sum, kept": lambda x, y, i, j: x.sum(axis(x, i), keepdim=True),
    "sum of all": lambda x, y, i, j: x.sum(),
    "max": lambda x, y, i, j: x.max(axis(x, i))[0],
    "argmax": lambda x, y, i, j: x.argmax(axis(x, i)),
    "by the largest": lambda x, y, i, j: x / (1 + x.abs().max()),
    "std": lambda x, y, i, j: x.std(axis(x, i)),
    "normalize": lambda x, y, i, j: F.normalize(x, dim=axis(x, i)),
    "softmax": lambda x, y, i, j: x.softmax(axis(x, i)),
    "cumsum": lambda x, y, i, j: x.cumsum(axis(x, i)),
    "sort": lambda x, y, i, j: x.sort(axis(x, i))[0],
    "topk": lambda x, y, i, j: x.topk(1, axis(x, i))[0],
    "flip": lambda x, y, i, j: x.flip(axis(x, i)),
    "roll": lambda x, y, i, j: x.roll(1, axis(x, i)),
    "cat": lambda x, y, i, j: torch.cat([x, y], axis(x, i)),
    "cat with itself": lambda x, y, i, j: torch.cat([x, x], axis(x, i)),
    "stack": lambda x, y, i, j: torch.stack([x, y], axis(x, i)),
    "repeat": lambda x, y, i, j: x.repeat(2, *[1] * (x.ndim - 1)),
    "repeat as the other": lambda x, y, i, j: x.repeat(y.shape[0], *[1] * (x.ndim - 1)),
    "repeat_interleave": lambda x, y, i, j: x.repeat_interleave(2, axis(x, i)),
    "by the size": lambda x, y, i, j: x / x.shape[axis(x, i)],
    "by the size, a tensor": lambda x, y, i, j: y * torch.tensor(float(x.shape[0])),
    "arange": lambda x, y, i, j: torch.arange(x.shape[axis(x, i)]),
    "arange backwards": lambda x, y, i, j: torch.arange(x.shape[0] - 1, -1, -1),
    "twice as far": lambda x, y, i, j: torch.arange(2 * x.shape[axis(x, i)]),
    "add the place": lambda x, y, i, j: (
        x + torch.arange(x.shape[axis(x, i)]).reshape([-1] + [1] * (x.ndim - 1 - axis(x, i)))
    ),
    "zeros": lambda x, y, i, j: torch.zeros(x.shape, dtype=x.dtype),
    "ones": lambda x, y, i, j: x.new_ones(x.shape[axis(x, i)], 4),
    "full of the size": lambda x, y, i, j: x.new_full((x.shape[0],), float(x.shape[axis(x, i)])),
    "linspace": lambda x, y, i, j: torch.linspace(0, 1, x.shape[axis(x, i)]),
    "eye": lambda x, y, i, j: torch.eye(x.shape[axis(x, i)]),
    "tril": lambda x, y, i, j: x.tril(),
    "item": lambda x, y, i, j: y * x.flatten()[0].item(),
    "tolist": lambda x, y, i, j: y * max(x.flatten().tolist()),
    "numpy": lambda x, y, i, j: torch.from_numpy(x.numpy().copy()),
    "nonzero": lambda x, y, i, j: x[x > 0],
}

LOOKED_UP: dict[str, Operator] = {
    "each row in itself": lambda x, y, i, j: x[torch.arange(x.shape[0]), small(x.flatten(1).amax(1))],
    "each row in the next": lambda x, y, i, j: x[
        (torch.arange(x.shape[0]) + 1) % x.shape[0], small(x.flatten(1)[:, 0])
    ],
    "the second axis": lambda x, y, i, j: x[:, torch.arange(x.shape[1]), small(y)],
    "two axes apart": lambda x, y, i, j: x[torch.arange(2)[:, None], :, torch.arange(2)],
    "gather": lambda x, y, i, j: x.gather(axis(x, i), x.argsort(axis(x, j)) % 2),
    "index_select": lambda x, y, i, j: x.index_select(axis(x, i), torch.tensor([0, 1])),
    "index_select by values": lambda x, y, i, j: y.index_select(axis(y, i), small(x.reshape(-1))),
    "index": lambda x, y, i, j: y[small(x)],
    "embedding": lambda x, y, i, j: F.embedding(small(x), y),
    "scatter": lambda x, y, i, j: x.scatter(axis(x, i), small(y), y),
    "scatter_add": lambda x, y, i, j: x.scatter_add(axis(x, i), x.argsort(axis(x, i)), x),
    "index_add": lambda x, y, i, j: x.index_add(axis(x, i), torch.tensor([0, 1]), y),
    "masked_fill": lambda x, y, i, j: x.masked_fill(torch.arange(x.shape[-1]) > j % 3, 0.5),
}

WRITTEN: dict[str, Operator] = {
    "put by a mask": lambda x, y, i, j: after(x, put(x > 0.3, 0.0)),
    "put in the first row": lambda x, y, i, j: after(x, put(0, 1.0)),
    "put in a column": lambda x, y, i, j: after(x, put((..., 0), y.sin()[..., 0])),
    "put in each row": lambda x, y, i, j: after(x, put((torch.arange(x.shape[0]), 0), y)),
    "add into a copy": lambda x, y, i, j: after(x, lambda copy: copy.add_(y)),
    "add into a part": lambda x, y, i, j: after(x, lambda copy: copy.select(axis(x, i), 0).add_(1.0)),
    "multiply in place": lambda x, y, i, j: x.mul_(y),
    "copy in place": lambda x, y, i, j: x.copy_(y),
    "add into the first": lambda x, y, i, j: x.narrow(axis(x, i), 0, 1).add_(y),
    "zero a column": lambda x, y, i, j: x[..., :1].zero_(),
}

LAYERS: dict[str, Operator] = {
    "layer_norm": lambda x, y, i, j: F.layer_norm(x, x.shape[1:]) if j % 2 else F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x, y, i, j: F.group_norm(x, 1),
    "batch_norm of the batch": lambda x, y, i, j: F.batch_norm(x, None, None, training=True),
    "instance_norm": lambda x, y, i, j: F.instance_norm(x),
    "conv1d": lambda x, y, i, j: F.conv1d(x, y[:2, :, :2]),
    "max_pool1d": lambda x, y, i, j: F.max_pool1d(x, 2, 1),
    "adaptive_avg_pool1d": lambda x, y, i, j: F.adaptive_avg_pool1d(x, 1),
    "interpolate": lambda x, y, i, j: F.interpolate(x, scale_factor=2),
    "pad": lambda x, y, i, j: F.pad(x, (1, 0) if i % 2 else (0, 0, 0, 0, 1, 0)),
    "attention": lambda x, y, i, j: attend(x, i, is_causal=bool(j % 2)),
    "attention, fused": lambda x, y, i, j: attend(x.float(), i),
    "attention to the other": lambda x, y, i, j: F.scaled_dot_product_attention(x, y, y),
}

OPERATORS: dict[str, Operator] = {**VIEWS, **VALUES, **LOOKED_UP, **WRITTEN, **LAYERS}
LARGEST = 3000

Line = tuple[str, int, int, int, int]
"""An operator, which two of the tensors before it, two numbers."""


class Program(nn.Module):
    """Operators one after the other, on two arguments with rows, a buffer and two constants; returns all results."""

    def __init__(self, lines: Sequence[Line], seed: int) -> None:
        super().__init__()
        self.lines = lines
        generator = torch.Generator().manual_seed(seed)
        self.buffer = nn.Buffer(torch.randn(3, 4, generator=generator, dtype=torch.float64))
        self.constants = [
            torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 4), (2, 3, 4))
        ]

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        pool = [x, y, self.buffer, *(constant.clone() for constant in self.constants)]
        given = len(pool)
        for name, first, second, i, j in self.lines:
            try:
                result = OPERATORS[name](pool[first % len(pool)], pool[second % len(pool)], i, j)
            except (RuntimeError, IndexError, ValueError, TypeError):
                continue
            if isinstance(result, Tensor) and result.numel() <= LARGEST:
                pool.append(result.double())
        return (x, *pool[given:])


@dataclass(frozen=True)
class Checked:
    verdict: Verdict
    wrong: str
    """Where a tag is not true; '' where all are."""


def checked(lines: Sequence[Line], few: int, more: int, seed: int) -> Checked:
    """The verdict on a program at ``few`` and ``few + more`` rows, held against what eager mode computes."""
    with torch.no_grad(), warnings.catch_warnings():
        # A deviation of one value, say: as good a program as any.
        warnings.simplefilter("ignore")
        return _checked(lines, few, more, seed)


def _checked(lines: Sequence[Line], few: int, more: int, seed: int) -> Checked:
    program = Program(lines, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    draw = {
        name: torch.randn(few + more, *shape, generator=generator, dtype=torch.float64)
        for name, shape in {"x": (3, 4), "y": (4, 2)}.items()
    }
    axes = {"x": 0, "y": 0}
    verdict = verdict_of(program, draw, axes, few)
    kept = program.buffer.clone()
    results = []
    for values in (cut(draw, axes, few), draw, other_rows(draw, axes, few)):
        results.append(program(**{name: value.clone() for name, value in values.items()}))
        program.buffer.copy_(kept)
    if not all(len(result) == len(verdict.outputs) for result in results):
        # Some ways to fail are other ones under a dispatch mode; what did not run as often is not compared.
        return Checked(verdict, "")
    for (path, rows), one, *others in zip(verdict.outputs.items(), *results, strict=True):
        # What leaks has no rows either; rows that lie apart are not the first ones.
        if verdict.proved or (rows is not None and rows.outer == 1):
            for other in others:
                wrong = difference(one, other, rows, few, 1e-7)
                if wrong:
                    return Checked(verdict, f"{path} {wrong}")
    return Checked(verdict, "")
