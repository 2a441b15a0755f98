"""The program's key: what changes it, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import Dim


class Net(nn.Module):
    def __init__(self, factor: float = 2.0, width: int = 8) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, width), nn.Linear(width, 4)
        self.factor = factor
        self.act: Callable[[Tensor], Tensor] = nn.ReLU()

    def forward(self, x: Tensor, *, double: bool = False) -> Tensor:
        y = self.b(self.act(self.a(x))) * self.factor
        return y * 2 if double else y


def key(module: nn.Module, *, dim: Dim | None = None, call: dict[str, Any] | None = None, **options: Any) -> str:
    dims = {"x": {0: dim or Dim("batch", 1, 16)}}
    fast = sizewise.compile(module.eval(), dynamic_shapes=dims, **{"backend": "eager", **options})
    x = torch.randn(3, 4, dtype=next(module.parameters()).dtype)
    [found] = fast.warmup(x, **(call or {})).report().cache["keys"]
    return str(found)


def with_act(act: nn.Module) -> Net:
    net = Net()
    net.act = act
    return net


FACTORS: dict[str, Callable[[], str]] = {
    "a Python value": lambda: key(Net(factor=3.0)),
    "an argument": lambda: key(Net(), call={"double": True}),
    "a shape": lambda: key(Net(width=16)),
    "a dtype": lambda: key(Net().double()),
    "an operator": lambda: key(with_act(nn.GELU())),
    "a dim's range": lambda: key(Net(), dim=Dim("batch", 1, 32)),
    "a setting": lambda: key(Net(), compile_sizes=[4]),
    "a splitting operator": lambda: key(Net(), splitting_ops=["aten::relu"]),
}


@pytest.mark.parametrize("name", FACTORS)
def test_what_changes_the_program_changes_its_key(name: str) -> None:
    assert FACTORS[name]() != key(Net())


def test_weights_do_not_change_it() -> None:
    torch.manual_seed(1)
    first = key(Net())
    torch.manual_seed(2)
    assert key(Net()) == first


def test_threads_change_it() -> None:
    first = key(Net())
    torch.set_num_threads(2)
    try:
        assert key(Net()) != first
    finally:
        torch.set_num_threads(1)
