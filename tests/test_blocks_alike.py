"""Equal blocks are traced once: which are equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from sizewise.trace import blocks
from sizewise.trace.blocks.alike import NotAlike, pair

from .blocks_support import Block, Stack, check, how, own_forward, ready, replace_part, set_scale, stamped


def runs_of(module: nn.Module) -> list[list[str]]:
    return [run.keys for run in blocks.find_runs(module)]


def test_equal_blocks_are_a_run() -> None:
    (run,) = blocks.find_runs(Stack())
    assert (run.path, run.keys, run.numbers) == ("layers", ["0", "1", "2", "3", "4"], {("", "number")})


def test_two_equal_blocks_are_not_worth_it() -> None:
    assert runs_of(Stack(count=2)) == []


def test_kinds_that_alternate_are_runs_of_their_own() -> None:
    module = Stack(count=7)
    for number in (1, 3, 5):
        module.layers[number].scale = 0.25  # type: ignore[assignment]
    assert runs_of(module) == [["0", "2", "4", "6"], ["1", "3", "5"]]
    fast = stamped(module)
    assert how(fast).count("1 of") == 2


def set_true(block: Any) -> None:
    block.number = True


def to_double(block: Any) -> None:
    block.up.weight = nn.Parameter(block.up.weight.double())
    block.up.bias = nn.Parameter(block.up.bias.double())


def no_bias(block: Any) -> None:
    block.up = nn.Linear(8, 16, bias=False)


def tie(block: Any) -> None:
    block.shift = block.plain


def overlap(block: Any) -> None:
    memory = torch.randn(16)
    block.shift, block.plain = memory[:8], memory[8:]


def transposed(block: Any) -> None:
    block.up.weight = nn.Parameter(torch.randn(8, 16).t())


class Louder(Block):
    pass


DIFFERENCES: dict[str, Callable[[Any], Any]] = {
    "an attribute": set_scale,
    "an attribute more": lambda block: setattr(block, "extra", 1),
    "the class of an attribute": set_true,
    "an item of a list": lambda block: block.sizes.__setitem__(1, 3),
    "a hook": lambda block: block.register_forward_hook(lambda *_: None),
    "a hook of a part": lambda block: block.up.register_forward_pre_hook(lambda *_: None),
    "a dtype": to_double,
    "strides": transposed,
    "requires_grad": lambda block: block.up.weight.requires_grad_(False),
    "another dropout": lambda block: setattr(block, "drop", nn.Dropout(0.2)),
    "a replaced part": replace_part,
    "a part of another class": lambda block: setattr(block, "drop", nn.Identity()),
    "a missing parameter": no_bias,
    "tied tensors": tie,
    "tensors that share memory": overlap,
    "a forward of its own": own_forward,
    "its class": lambda block: setattr(block, "__class__", Louder),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_planted_difference_takes_a_block_out(name: str) -> None:
    module = Stack().eval()
    DIFFERENCES[name](module.layers[2])
    runs = runs_of(module)
    assert all("2" not in keys for keys in runs)
    assert ["0", "1", "3", "4"] in runs
    if name != "a dtype":
        fast = ready(module)
        check(fast, module)
        assert "1 of 4 blocks" in how(fast)


@pytest.mark.parametrize("name", sorted(DIFFERENCES.keys() - {"a forward of its own"}))
def test_a_planted_difference_is_seen_from_either_side(name: str) -> None:
    module = Stack(count=2)
    DIFFERENCES[name](module.layers[0])
    for first, other in (module.layers, list(module.layers)[::-1]):
        with pytest.raises(NotAlike):
            pair(first, other)


@dataclass
class Settings:
    width: int = 8


class Other:
    pass


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        (Settings(), Settings(), True),
        (Settings(), Settings(9), False),
        (Other(), Other(), False),
        (torch.relu, torch.relu, True),
        (torch.relu, torch.sigmoid, False),
        (float("nan"), float("nan"), True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({1, 2}, {1, 2}, True),
        (torch.float32, torch.float64, False),
        (nn.Linear(1, 1), nn.Linear(1, 1), True),
        (None, 0, False),
    ],
)
def test_attributes_are_compared_by_what_they_hold(ours: Any, theirs: Any, alike: bool) -> None:
    first, other = Block(0), Block(1)
    first.held, other.held = ours, theirs
    if alike:
        pair(first, other)
    else:
        with pytest.raises(NotAlike):
            pair(first, other)


def test_a_module_that_is_no_part_and_a_list_in_a_circle_are_not_gone_into() -> None:
    first, other = Block(0), Block(1)
    for block in (first, other):
        vars(block)["aside"] = nn.Linear(1, 1)
    with pytest.raises(NotAlike, match="no part"):
        pair(first, other)
    module = Stack()
    for layer in module.layers:
        circle: list[Any] = []
        circle.append(circle)
        layer.circle = circle  # type: ignore[assignment]
    assert runs_of(module) == []


def test_a_block_in_two_places_is_no_block_of_a_run() -> None:
    module = Stack()
    module.layers[3] = module.layers[1]
    assert runs_of(module) == [["0", "2", "4"]]
    stamped(module)
