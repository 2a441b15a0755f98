"""Random modules, random calls: outputs, arguments and buffers are eager's, or a named error is raised.

``ATTACK_EXAMPLES=5000 pytest tests/test_attack.py`` runs more examples than CI does; a failure prints a
module that can be pasted as a case.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sizewise
from sizewise import Dim
from sizewise.verify.tolerance import compare

EXAMPLES = int(os.environ.get("ATTACK_EXAMPLES", "60"))

UNARY = ("sin", "abs", "neg", "relu", "exp_small", "floor", "double_and_back", "contiguous", "clone", "detach")
REDUCE = ("sum", "mean", "amax", "argmax", "std", "logsumexp", "prod", "any")
VIEW = (
    "transpose",
    "flatten_unflatten",
    "unsqueeze_squeeze",
    "flip",
    "roll",
    "slice",
    "half",
    "last",
    "expand",
    "step",
)
SCAN = ("cumsum", "softmax", "sort", "topk", "cummax", "argsort")
INPLACE = ("add_", "mul_", "fill_row_", "copy_", "relu_", "masked_fill_", "index_add_", "zero_slice_")
SIZE = ("divide_by_rows", "add_columns", "scale_by_product", "arange_rows", "eye_like", "repeat_rows")
JOIN = ("add", "mul", "maximum", "where", "cat", "stack_mean", "outer_mean", "matmul_t")
STATE = ("buffer_add_", "buffer_read", "linear", "flag", "attribute")
ALL = (*UNARY, *REDUCE, *VIEW, *SCAN, *INPLACE, *SIZE, *JOIN, *STATE)


class Random(nn.Module):
    """Interprets ``steps`` over a list of (rows, columns) tensors; values that are not are made so."""

    def __init__(self, steps: list[tuple[str, int, int, float]]) -> None:
        super().__init__()
        self.steps = steps
        self.scale = 1.5
        self.linear = nn.Linear(4, 4)
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: Tensor, y: Tensor, flag: bool = True) -> dict[str, Any]:
        values = [x, y]
        extra: list[Any] = []
        for name, i, j, c in self.steps:
            a, b = values[i % len(values)], values[j % len(values)]
            result = self.step(name, a, b, c, flag)
            if result.shape == x.shape and result.dtype == x.dtype:
                values.append(result)
            else:
                extra.append(result)
                values.append(a + result.to(x.dtype).sum() * 0.01)
        return {"last": values[-1], "extra": extra[-3:], "rows": x.shape[0], "sizes": [x.shape[0] * x.shape[1]]}

    def step(self, name: str, a: Tensor, b: Tensor, c: float, flag: bool) -> Tensor:
        rows, columns = a.shape
        if name in UNARY:
            if name == "exp_small":
                return (a * 0.1).exp()
            if name == "double_and_back":
                return a.double().float()
            return getattr(a, name)()
        if name in REDUCE:
            return (a > 0).any(0) if name == "any" else reduce(name, a, int(c * 10) % 2)
        if name in VIEW:
            return view(name, a, rows, columns)
        if name in SCAN:
            return scan(name, a, int(c * 10) % 2)
        if name in INPLACE:
            return in_place(name, a, b, c, rows)
        if name in SIZE:
            return sized(name, a, rows, columns)
        if name in JOIN:
            return join(name, a, b)
        return self.stateful(name, a, c, flag)

    def stateful(self, name: str, a: Tensor, c: float, flag: bool) -> Tensor:
        if name == "buffer_add_":
            self.state.add_(a.sum() * 0.001)
            return a + self.state.mean()
        if name == "buffer_read":
            return a * self.state.mean()
        if name == "linear":
            return a + self.linear(a.sum(1, keepdim=True).expand(a.shape[0], 4)).mean()
        if name == "flag":
            return a + c if flag else a - c
        return a * self.scale


def reduce(name: str, a: Tensor, axis: int) -> Tensor:
    if name == "std":
        return a.std(axis, correction=0)
    if name in ("amax", "argmax", "logsumexp", "prod"):
        return getattr(a, name)(axis)
    return getattr(a, name)(axis, keepdim=True)


def view(name: str, a: Tensor, rows: int, columns: int) -> Tensor:
    return {
        "transpose": lambda: a.t().clone().t(),
        "flatten_unflatten": lambda: a.reshape(-1).view(rows, columns),
        "unsqueeze_squeeze": lambda: a[:, None].squeeze(1),
        "flip": lambda: a.flip(0),
        "roll": lambda: a.roll(1, 1),
        "slice": lambda: a[1:],
        "half": lambda: a[: rows // 2],
        "last": lambda: a[-1],
        "expand": lambda: a[:1].expand(rows, columns),
        "step": lambda: a[::2],
    }[name]()


def scan(name: str, a: Tensor, axis: int) -> Tensor:
    if name == "topk":
        return a.topk(1, axis).values
    if name == "sort":
        return a.sort(axis).values
    if name == "cummax":
        return a.cummax(axis).values
    if name == "argsort":
        return a.argsort(stable=True, dim=axis)
    return getattr(a, name)(axis)


def in_place(name: str, a: Tensor, b: Tensor, c: float, rows: int) -> Tensor:
    if name == "fill_row_":
        a[0] = c
    elif name == "copy_":
        a.copy_(b)
    elif name == "masked_fill_":
        a.masked_fill_(b > 0, c)
    elif name == "index_add_":
        a.index_add_(0, torch.arange(rows, device=a.device), b)
    elif name == "zero_slice_":
        a[:, 1:].zero_()
    elif name == "relu_":
        a.relu_()
    else:
        getattr(a, name)(c)
    return a


def sized(name: str, a: Tensor, rows: int, columns: int) -> Tensor:
    return {
        "divide_by_rows": lambda: a / rows,
        "add_columns": lambda: a + columns,
        "scale_by_product": lambda: a * (rows * columns + 1),
        "arange_rows": lambda: a + torch.arange(rows, device=a.device)[:, None],
        "eye_like": lambda: a + torch.ones(rows, columns, device=a.device),
        "repeat_rows": lambda: a.repeat_interleave(2, 0),
    }[name]()


def join(name: str, a: Tensor, b: Tensor) -> Tensor:
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "maximum": lambda: torch.maximum(a, b),
        "where": lambda: torch.where(a > b, a, b * 0.5),
        "cat": lambda: torch.cat([a, b]),
        "stack_mean": lambda: torch.stack([a, b]).mean(0),
        "outer_mean": lambda: (a[:, :1] * b[:1]).clone(),
        "matmul_t": lambda: a @ b.t(),
    }[name]()


step = st.tuples(st.sampled_from(ALL), st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.5, 1.0, 1.5, -0.7]))
sizes = st.tuples(st.integers(1, 7), st.integers(1, 5))


def inputs(rows: int, columns: int, seed: int, layout: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(rows, columns, generator=generator) for _ in range(2))
    if layout == "transposed":
        x = x.t().contiguous().t()
    elif layout == "sliced":
        x = torch.stack([x, x]).transpose(0, 1).reshape(rows * 2, columns)[::2]
    elif layout == "same":
        y = x
    return x, y


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES <= 60)
@given(
    steps=st.lists(step, min_size=1, max_size=7),
    calls=st.lists(
        st.tuples(sizes, st.sampled_from(["plain", "transposed", "sliced", "same"])), min_size=2, max_size=5
    ),
    seed=st.integers(0, 2**16),
    flag=st.booleans(),
)
def test_a_random_module_is_eagers_or_refused(steps: Any, calls: Any, seed: int, flag: bool) -> None:
    note(f"Random({steps!r}), calls {calls!r}, seed {seed}, flag {flag}")
    torch.manual_seed(seed)
    module = Random(steps).eval()
    reference = copy.deepcopy(module)
    rows, columns = Dim("rows", 1, 7), Dim("columns", 1, 5)
    dims = {"x": {0: rows, 1: columns}, "y": {0: rows, 1: columns}}
    fast = sizewise.compile(module, dynamic_shapes=dims, backend="eager")
    try:
        fast.warmup(*inputs(4, 3, seed, "plain"), flag=flag)
    except sizewise.SizewiseError as refusal:
        assert refusal.code
        assert fast.state == "new"
        return
    assert torch.equal(module.state, reference.state), "warming up changed a buffer"
    with torch.no_grad():
        for index, ((n, m), layout) in enumerate(calls):
            one_call(module, reference, fast, inputs(n, m, seed + index, layout), flag)


def one_call(module: nn.Module, reference: nn.Module, fast: Any, arguments: tuple[Tensor, Tensor], flag: bool) -> None:
    ours, eagers = copy.deepcopy(arguments), copy.deepcopy(arguments)
    try:
        wanted: Any = reference(*eagers, flag=flag)
    except RuntimeError as problem:
        wanted = problem
    try:
        seen = fast(*ours, flag=flag)
    except sizewise.SizewiseError as refusal:
        assert refusal.code
        with torch.no_grad():
            module.state.copy_(reference.state)
        return
    except RuntimeError:
        assert isinstance(wanted, RuntimeError), "raises where eager does not"
        return
    assert not isinstance(wanted, RuntimeError), f"gives a result where eager raises {wanted}"
    depth = 4096  # products of up to 35 values and exponentials of them lose more than a single sum
    assert compare(wanted, seen, depth) is None, compare(wanted, seen, depth)
    assert compare(list(eagers), list(ours), depth, path="arguments") is None
    assert compare(reference.state, module.state, depth, path="state") is None
