"""Blocks that read what forward sets on tensors between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim

pytestmark = pytest.mark.slow


class Numbered(nn.Module):
    """Reads what the model writes on the tensor it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return torch.where(y > 6, y * (x.number + 1), y)  # type: ignore[attr-defined]


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Numbered() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = x * 1.0
            x.number = float(number)  # type: ignore[attr-defined]
            x = layer(x)
        return x


def test_an_attribute_that_is_set_on_a_tensor_between_blocks() -> None:
    model = Writes().eval()
    fast: Any = sizewise.compile(model, dynamic_shapes={"x": {0: Dim("batch", 1, 8)}}).warmup(torch.randn(4, 8))
    x = 30 * torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert "the attribute number is set while forward runs, and read" in " ".join(fast.report().blocks)
