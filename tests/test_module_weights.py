"""Weights that change: used, or named as stale."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sizewise
from sizewise.errors import state as state_errors

from .small import X, ready


def test_loading_in_place_is_seen_at_once() -> None:
    fast = ready()
    fast.load_state_dict({name: torch.randn_like(value) for name, value in fast.state_dict().items()})
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_replaced_weights_of_the_same_layout_are_used() -> None:
    fast = ready()
    module = fast.__wrapped__
    fresh = {name: torch.randn_like(value) for name, value in module.state_dict().items()}
    module.load_state_dict(fresh, assign=True)
    torch.testing.assert_close(fast(X), module(X))
    module.a.weight.data = torch.randn(8, 4)
    torch.testing.assert_close(fast(X), module(X))
    module.shift = torch.randn(4)
    torch.testing.assert_close(fast(X), module(X))


CHANGES = {
    "hidden parameter": lambda m: vars(m.a).update(weight=torch.randn(8, 4)),
    "hidden buffer": lambda m: vars(m).update(shift=torch.randn(4)),
    "dtype of one": lambda m: setattr(m.a.weight, "data", m.a.weight.data.double()),
    "dtype of all": lambda m: m.double(),
    "layout": lambda m: setattr(m.a.weight, "data", torch.randn(4, 8).t()),
    "shape": lambda m: setattr(m.b, "weight", nn.Parameter(torch.randn(6, 8))),
    "device": lambda m: m.to("meta"),
    "removed": lambda m: delattr(m, "shift"),
    "sparse": lambda m: setattr(m.a, "weight", nn.Parameter(m.a.weight.detach().to_sparse(), requires_grad=False)),
    "opaque": lambda m: setattr(m, "shift", m.shift.to_mkldnn()),
    "class": lambda m: setattr(m.a.weight, "__class__", Doubled),
}


class Doubled(nn.Parameter):
    """A weight that tells torch what to do with it."""


@pytest.mark.parametrize("change", CHANGES)
def test_weights_of_another_layout_are_stale(change: str) -> None:
    fast = ready()
    CHANGES[change](fast.__wrapped__)
    with fast.counters.expect(stale=1), pytest.raises(state_errors.Stale, match=r"at warm-up|removed"):
        fast(X)


def test_refresh_builds_for_the_module_as_it_is() -> None:
    fast = ready(on_stale="eager")
    fast.double()
    with fast.counters.expect(stale=1, calls_eager=1), pytest.raises(RuntimeError):
        fast(X)  # the original, in double, with a float input: torch's own error
    with pytest.raises(sizewise.SizewiseError):
        fast.refresh()  # the example it was warmed up with is a float as well
    fast.float()
    torch.testing.assert_close(fast.refresh()(X), fast.__wrapped__(X))
