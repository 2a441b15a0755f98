"""The compiled module as a module: attributes, copies, what it refuses to do."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from sizewise.errors import state as state_errors

from .small import Generates, Net, X, ready


def test_it_is_a_module_with_the_originals_face() -> None:
    module = Net().eval()
    fast = ready(module)
    assert isinstance(fast, nn.Module)
    assert fast.__wrapped__ is module
    assert list(fast.state_dict()) == list(module.state_dict())
    assert fast.a is module.a
    assert fast.label == "net"
    fast.label = "changed"
    assert module.label == "changed"
    assert dict(fast.named_parameters()).keys() == dict(module.named_parameters()).keys()
    assert "state" in dir(fast)
    with pytest.raises(AttributeError, match="nope"):
        fast.nope
    assert not hasattr(fast, "nope")


def test_training_pickling_and_replicas_are_refused() -> None:
    fast = ready()
    with pytest.raises(state_errors.TrainRefused):
        fast.train()
    assert fast.eval() is fast
    assert not fast.training
    with pytest.raises(state_errors.NotPicklable):
        pickle.dumps(fast)


def test_a_deepcopy_is_its_own_and_not_warm() -> None:
    fast = ready()
    other = copy.deepcopy(fast)
    assert other.state == "new"
    assert other.a.weight is not fast.a.weight
    torch.testing.assert_close(other(X), fast(X))


def test_generate_is_refused_by_name() -> None:
    fast = ready(Generates())
    with pytest.raises(state_errors.GenerateRefused, match="inplace=True"):
        fast.generate()
    assert fast.__wrapped__.generate() == "original"
