"""What tests of programs on disk share: a small module, and a cache that holds its programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.cache import open_store
from sizewise.warm import Why, why

SHAPES = {"x": {0: Dim("batch", 1, 16)}}
ROOT = Path(sizewise.__file__).parent.parent


class Net(nn.Module):
    def __init__(self, hidden: int = 12, scale: float = 2.0, label: str = "first") -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, hidden), nn.Linear(hidden, 4)
        self.scale, self.label = scale, label

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x))) * self.scale


class Other(Net):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with the programs of one `Net`."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIZEWISE_CACHE_DIR", str(place))
        patch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")
        torch.set_num_threads(1)
        assert ready(Net()).counters.cache_misses == 1
        yield place


@pytest.fixture(autouse=True)
def in_that_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(folder))
    monkeypatch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")


def compiled(module: nn.Module, **options: Any) -> CompiledModule:
    fast: CompiledModule = sizewise.compile(module.eval(), **{"dynamic_shapes": SHAPES, **options})
    return fast


def ready(module: nn.Module, **options: Any) -> CompiledModule:
    return compiled(module, **options).warmup(torch.randn(4, 8))


def asked(module: nn.Module, x: torch.Tensor | None = None, **options: Any) -> Why:
    """Whether the cache has the programs of this module, and else what differs."""
    return answer(compiled(module, **options), torch.randn(4, 8) if x is None else x)


def answer(fast: CompiledModule, *args: Any, **kwargs: Any) -> Why:
    (found,) = why(*fast._sw_plan([(args, kwargs)]), open_store())
    return found


def difference(found: Why) -> tuple[str, str, str]:
    assert not found.hit
    return found.differences[0]
