"""The one comparison rule: it lets rounding pass and catches a missing part."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.models import Decoder, decoder
from sizewise.verify.tolerance import compare, sum_depth


def changed(model: Decoder, change: str) -> Decoder:
    other = copy.deepcopy(model)
    with torch.no_grad():
        if change == "a layer dropped":
            del other.layers[2]
        elif change == "a head dropped":
            other.layers[1].out.weight[:, :16] = 0
        elif change == "a bias dropped":
            other.head.bias = None
        elif change == "one weight changed by a percent":
            other.layers[0].qkv.weight[0] *= 1.01
    return other


@pytest.fixture
def model() -> Decoder:
    model = decoder(4)
    model.head = nn.Linear(64, 256)
    return model.eval()


@pytest.mark.parametrize(
    "change", ["a layer dropped", "a head dropped", "a bias dropped", "one weight changed by a percent"]
)
@torch.no_grad()
def test_a_missing_part_is_caught(model: Decoder, change: str) -> None:
    ids = torch.randint(0, 256, (3, 7))
    reference = model(ids)
    assert reference.square().mean().sqrt() > 0.1
    assert compare(reference, changed(model, change)(ids), sum_depth(model)) is not None


@torch.no_grad()
def test_another_order_of_sums_passes(model: Decoder) -> None:
    ids = torch.randint(0, 256, (3, 7))
    one_by_one = torch.cat([model(row[None]) for row in ids])
    assert compare(model(ids), one_by_one, sum_depth(model)) is None
    in_double = copy.deepcopy(model).double()(ids).float()
    assert compare(model(ids), in_double, sum_depth(model)) is None


def test_cancellation_is_judged_by_eagers_own_error() -> None:
    x = torch.randn(64, 512)
    x = x - x.mean(-1, keepdim=True)
    sums, other = x.sum(-1), x.flip(-1).sum(-1)
    exact = x.double().sum(-1)
    assert compare(sums, other) is not None
    assert compare(sums, other, exact=exact) is None


@pytest.mark.parametrize(
    ("reference", "seen", "says"),
    [
        (torch.ones(2), torch.ones(3), "shape"),
        (torch.ones(2), torch.ones(2).double(), "dtype"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2 values"),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), "NaN or infinity in other places"),
        (torch.tensor([1.0, float("inf")]), torch.tensor([1.0, float("-inf")]), "NaN or infinity"),
        ({"a": 1}, {"b": 1}, "parts"),
        ([1], (1,), "tuple instead of a list"),
        ((1, 2), (1,), "parts"),
        (3, 4, "4 instead of 3"),
        (None, torch.ones(1), "instead of a NoneType"),
    ],
)
def test_what_is_never_equal(reference: Any, seen: Any, says: str) -> None:
    difference = compare(reference, seen)
    assert difference is not None
    assert says in difference.what


@pytest.mark.parametrize(
    "value", [float("nan"), {"a": [torch.tensor([float("inf"), 1.0])]}, torch.zeros(3), "text", None]
)
def test_a_value_equals_itself(value: Any) -> None:
    assert compare(value, copy.deepcopy(value)) is None
