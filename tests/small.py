"""The small module that tests of the compiled module share, compiled with its pieces in eager mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim

BATCH = Dim("batch", 1, 16)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)
        self.register_buffer("shift", torch.ones(4))
        self.label = "net"

    def forward(self, x: Tensor, mask: Tensor | None = None, *, double: bool = False) -> Tensor:
        y = self.b(self.a(x).relu()) + self.shift
        y = y if mask is None else y * mask[:, None]
        return y * 2 if double else y


def ready(module: nn.Module | None = None, **options: Any) -> CompiledModule:
    module = (module or Net()).eval()
    fast: CompiledModule = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager", **options)
    return fast.warmup(torch.randn(3, 4))


class Generates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1

    def generate(self) -> str:
        return "original"

    def encode(self, x: Tensor) -> Tensor:
        return self(x) * 2


X = torch.randn(3, 4)
