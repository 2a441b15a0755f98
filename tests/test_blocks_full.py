"""Equal blocks are traced once: what stops the stamping, so that every block is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sizewise.trace import blocks
from sizewise.trace.blocks.alike import NotAlike

from .blocks_support import Block, Numbered, Stack, check, graph_of, ready, traced_in_full


class Branches(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) if self.number < 3 else x * 2


class Indexes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * [1.0, 2.0, 3.0, 4.0, 5.0][self.number]


class Computes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * (self.number * self.number + 1)


class Sizes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) + torch.ones(self.number + 1, 8).sum(0)


class Names(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * len(f"{10**self.number}")


class ReturnsView(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return x.view(-1, 8)


class ReturnsWeight(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return x + self.shift, self.shift


class TakesFirst(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)[0]
        return x


class ReturnsNumber(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return super().forward(x, mask), self.number


class Backwards(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Twice(Stack):
    def forward(self, x: Tensor) -> Any:
        return super().forward(super().forward(x))


class OtherArguments(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer(x, x[:, 0]) if number == 3 else layer(x)
        return x


class OneTensor(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, None) + (0 if mask is x else 1)


class OneTensorTwice(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer(x, x if number % 2 else x * 1)
        return x


class GetsAWeight(Stack):
    """The first block is given its own weight, the others are given another one."""

    def forward(self, x: Tensor) -> Any:
        first: Any = self.layers[0]
        for layer in self.layers:
            x = layer(x * first.shift, first.shift[:1].expand(x.shape[0]))
        return x


class Unknown:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class TakesAnObject(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, held: Unknown) -> Unknown:
        return Unknown(self.linear(held.x))


class PassesObjects(Stack):
    def forward(self, x: Tensor) -> Any:
        held = Unknown(x)
        for layer in self.layers:
            held = layer(held)
        return held.x


class CallsItsNeighbour(Stack):
    """The first block ends in a call of the second."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            vars(layer)["others"] = self.layers

    def forward(self, x: Tensor) -> Any:
        return super().forward(x)


FULL: dict[str, Callable[[], nn.Module]] = {
    "a branch on the number": lambda: Stack(Branches),
    "a list indexed with the number": lambda: Stack(Indexes),
    "arithmetic with the number": lambda: Stack(Computes),
    "a size made from the number": lambda: Stack(Sizes),
    "a text made from the number": lambda: Stack(Names),
    "a view of an argument is returned": lambda: Stack(ReturnsView),
    "a weight is returned": lambda: TakesFirst(ReturnsWeight),
    "a number is returned": lambda: TakesFirst(ReturnsNumber),
    "called in reverse": Backwards,
    "called twice": Twice,
    "other arguments": OtherArguments,
    "one tensor given twice, now and then": lambda: OneTensorTwice(OneTensor),
    "objects are passed": lambda: PassesObjects(TakesAnObject),
}


@pytest.mark.parametrize("name", FULL)
def test_it_is_traced_in_full(name: str) -> None:
    assert traced_in_full(FULL[name]()).startswith("all blocks traced: ")


def test_a_weight_of_the_first_block_outside_of_it() -> None:
    module = GetsAWeight()
    check(ready(module), module)


def test_modules_kept_aside_are_no_blocks() -> None:
    assert traced_in_full(CallsItsNeighbour()) == ""


def test_nothing_of_the_marks_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    run_node, sources = torch._dynamo.utils.run_node, torch.compiler.config.unbacked_sources
    for module in (Stack(Numbered), Stack(Branches)):
        fast = ready(module)
        assert all("forward" not in vars(part) for part in module.modules())
        assert "__marked" not in str(graph_of(fast).graph.code)
    assert torch._dynamo.utils.run_node is run_node
    assert torch.compiler.config.unbacked_sources == sources


def test_a_torch_without_the_hooks_traces_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._dynamo.utils, "run_node")
    with pytest.raises(NotAlike), blocks.markers.symbolic(["a"]):
        pass
