"""What the tests of equal blocks share: blocks, stacks of them, changes of a block, and how one was traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.verify.tolerance import compare

BATCH = Dim("batch", 1, 16)


class Block(nn.Module):
    """Everything a block of other people's may have: a number, a setting, a buffer, a plain tensor, a dropout."""

    def __init__(self, number: int, width: int = 8) -> None:
        super().__init__()
        self.number, self.scale, self.sizes = number, 0.5, [width, 2 * width]
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("shift", torch.randn(width))
        self.plain = torch.randn(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.down(self.drop(self.up(x)).relu()) * self.scale + self.shift - self.plain
        return x + (y if mask is None else y * mask[:, None])


class Stack(nn.Module):
    def __init__(self, make: Callable[[int], nn.Module] = Block, count: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make(number) for number in range(count))

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def ready(module: nn.Module, **options: Any) -> CompiledModule:
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager", **options)
    return fast.warmup(torch.randn(3, 8))


def how(fast: CompiledModule) -> str:
    return "; ".join(fast.report().blocks)


def check(fast: CompiledModule, module: nn.Module) -> None:
    """The same as eager at sizes between those of the self-test."""
    with torch.no_grad():
        for rows in (1, 2, 7, 16):
            x = torch.randn(rows, 8)
            difference = compare(module(x), fast(x), depth=64)
            assert difference is None, difference


def stamped(module: nn.Module, **options: Any) -> CompiledModule:
    fast = ready(module, **options)
    assert "1 of" in how(fast), how(fast)
    check(fast, module)
    return fast


def traced_in_full(module: nn.Module, **options: Any) -> str:
    fast = ready(module, **options)
    assert "1 of" not in how(fast)
    check(fast, module)
    return how(fast)


def graph_of(fast: CompiledModule) -> Any:
    return fast.built.entries[0].program.traced


class Numbered(Block):
    """Tells an operator its number, and multiplies with it."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out = torch.empty(x.shape[0], 1, 8, 1)
        wide = x[:, None, :, None].contiguous()
        torch.ops.sizewise_bench.attention(wide, wide, wide, self.number, out)
        return super().forward(x, mask) + out[:, 0, :, 0] * 0.1 + x * self.number


def set_scale(block: Any) -> None:
    block.scale = 0.75


def replace_part(block: Any) -> None:
    block.down = nn.Sequential(nn.Linear(16, 8))


def own_forward(block: Any) -> None:
    original = type(block).forward
    block.forward = lambda x: original(block, x) * 2
