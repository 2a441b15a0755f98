"""Every range and exact size has code of its own, and is compared with eager at one size at least."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim
from sizewise.ranges import Range
from sizewise.verify.selftest import _of_other_ranges


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() @ y.cos()


def warm(shapes: Any, **settings: Any) -> Any:
    config = sizewise.CompilationConfig(backend="eager", **settings)
    compiled: Any = sizewise.compile(Scaled().eval(), dynamic_shapes=shapes, config=config)
    return compiled.warmup(torch.randn(3, 4), torch.randn(4, 3))


@pytest.mark.parametrize("equal", [False, True])
def test_each_is_compared(equal: bool) -> None:
    rows = Dim("rows", 1, 32)
    columns = rows if equal else Dim("columns", 1, 32)
    fast = warm({"x": {0: rows}, "y": {1: columns}}, compile_sizes=[5, 9], compile_ranges_endpoints=[8, 12, 20])
    compared = {size["sizes"]["rows"] for size in fast.report().sizes if size["verdict"] == "equal"}
    ranges = [variant.sizes for variant in fast.built.entries[0].program.variants]
    assert len(ranges) == 6
    for each in ranges:
        own = {size for size in compared if size in each}
        assert own - ({5, 9} if not each.is_single_size() else set()), (each, compared)


def test_a_range_that_exact_sizes_cover_serves_nothing() -> None:
    fast = warm({"x": {0: Dim("rows", 1, 8)}})
    traced = fast.built.entries[0].program.traced
    ranges = [Range(1, 2), Range(1, 1), Range(2, 2), Range(3, 8)]
    found = _of_other_ranges(traced, ranges, [{"rows": 8}])
    assert [sizes["rows"] for sizes in found] == [1, 2]
