"""What a message says to do works when it is done: each remedy is read, followed, and ends in a served call."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import CompiledModule, Dim, SizewiseError
from sizewise.dispatch import Entry
from sizewise.errors import state as state_errors

BATCH = Dim("batch", min=1, max=8)


def compiled(module: nn.Module, shapes: dict[str, Any] | None = None, **options: Any) -> CompiledModule:
    shapes = {"x": {0: BATCH}} if shapes is None else shapes
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes=shapes, backend="eager", **options)
    return fast


def linear(axes: dict[int, Dim] | None = None, **options: Any) -> CompiledModule:
    return compiled(nn.Linear(4, 2), {"input": axes or {0: BATCH}}, **options)


def refused(code: str, action: Any, *args: Any, **kwargs: Any) -> str:
    """The remedy of the error with this code that ``action`` ends in."""
    with pytest.raises(SizewiseError) as seen:
        action(*args, **kwargs)
    assert seen.value.code == code, seen.value
    return str(seen.value)


# -- arguments of torch.compile


def test_presets_that_capture_are_taken() -> None:
    for mode in ("max-autotune", "reduce-overhead"):
        sizewise.compile(nn.Linear(4, 2), mode=mode)
    # Of a preset and a field, the field wins, and is named where it does not fit.
    text = refused(
        "SW144", sizewise.compile, nn.Linear(4, 2), mode="reduce-overhead", cudagraph_mode="FULL_DECODE_ONLY"
    )
    assert text.startswith("cudagraph_mode=FULL_DECODE_ONLY")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"dynamic": True}, "for torch.compile's dynamic: dynamic_shapes="),
        ({"dynamic": False}, "dynamic_shapes={}"),
        ({"fullgraph": True}, "leave it out: a module is always traced as one graph"),
        ({"options": {"max_autotune": True}}, "write inductor_compile_config={'max_autotune': True}"),
        ({"self_tset": False}, "write 'self_test'"),
    ],
)
def test_arguments_of_torch_compile(option: dict[str, Any], says: str) -> None:
    text = refused("SW102", sizewise.compile, nn.Linear(4, 2), **option)
    assert text.startswith("sizewise.compile has no setting ") and says in text
    assert all(name in text for name in ("dynamic_shapes", "on_outside", "on_stale", "inplace", "max_programs"))


# -- sizes and shapes of a call


def test_an_example_outside_is_brought_inside_or_declared() -> None:
    text = refused("SW401", linear().warmup, torch.randn(9, 4))
    assert "on_outside" not in text and "split" not in text
    wider = re.search(r'as (Dim\("batch", min=1, max=9\))', text)
    assert wider is not None
    linear({0: eval(wider[1])}).warmup(torch.randn(9, 4))
    assert "warm up with 1 to 8 entries on axis 0 of input" in text
    assert "Dim(" not in refused("SW401", linear().warmup, torch.randn(0, 4))


def test_a_call_outside() -> None:
    fast = linear({0: Dim("batch", min=2, max=8)}).warmup(torch.randn(3, 4))
    text = refused("SW401", fast, torch.randn(0, 4))
    assert "Dim(" not in text and "split" not in text and 'set on_outside="eager"' in text
    text = refused("SW401", fast, torch.randn(1, 4))
    assert 'Dim("batch", min=1, max=8)' in text and "split" not in text
    text = refused("SW401", fast, torch.randn(9, 4))
    assert 'Dim("batch", min=2, max=9)' in text and "split" in text
    eager = linear(on_outside="eager").warmup(torch.randn(3, 4))
    assert eager(torch.randn(0, 4)).shape == (0, 2)


def test_another_number_of_axes() -> None:
    fast = linear().warmup(torch.randn(3, 4))
    text = refused("SW404", fast, torch.randn(4))
    assert "pass input with 2 axes (input.unsqueeze(0)" in text and "Dim" not in text
    fast(torch.randn(4).unsqueeze(0))
    fast = compiled(nn.Softmax(-1), {"input": {0: BATCH}}).warmup(torch.randn(3, 4))
    text = refused("SW404", fast, torch.randn(4, 4, 2))
    assert "if axis 0 is batch here too, warm up with a call of this shape as well" in text
    fast.warmup_many([((torch.randn(3, 4),), {}), ((torch.randn(4, 4, 2),), {})])
    assert fast(torch.randn(5, 4, 2)).shape == (5, 4, 2)
    # Not where the declared axis is not there.
    deep = compiled(nn.Softmax(-1), {"input": {1: BATCH}}).warmup(torch.randn(2, 3))
    assert "warm up" not in refused("SW404", deep, torch.randn(4))
    assert "squeeze" in refused("SW404", deep, torch.randn(2, 3, 4))


def test_another_size_at_a_fixed_axis() -> None:
    text = refused("SW404", linear().warmup(torch.randn(3, 4)), torch.randn(3, 5))
    assert "pass input with 4 on axis 1" in text


def test_a_list_in_the_place_of_a_tensor() -> None:
    fast = linear().warmup(torch.randn(3, 4))
    text = refused("SW406", fast, [[1, 2, 3, 4]])
    assert "warmup_many" not in text and "pass a tensor of dtype torch.float32" in text
    fast(torch.tensor([[1, 2, 3, 4]], dtype=torch.float32))


class Takes(nn.Module):
    def forward(self, x: Tensor, other: Any = None) -> Tensor:
        return x * 2 if other is None else x + (other if isinstance(other, (Tensor, float)) else other[0])


def test_values_in_the_place_of_others() -> None:
    fast = compiled(Takes()).warmup(torch.randn(3, 4), [1.0])
    assert "pass a list there, as the warm-up did" in refused("SW406", fast, torch.randn(3, 4), torch.randn(3, 4))
    fast = compiled(Takes()).warmup(torch.randn(3, 4), 1.0)
    assert "warm up with each value" in refused("SW406", fast, torch.randn(3, 4), 2.0)
    fast.warmup_many([((torch.randn(3, 4), value), {}) for value in (1.0, 2.0)])
    fast(torch.randn(3, 4), 2.0)


def test_a_keyword_that_is_no_argument() -> None:
    fast = linear().warmup(torch.randn(3, 4))
    text = refused("SW408", fast, x=torch.randn(3, 4))
    assert "it has no argument named 'x'" in text and "write 'input' for 'x'" in text
    fast(input=torch.randn(3, 4))
    two = compiled(Takes()).warmup(torch.randn(3, 4))
    assert "its arguments are x, other" in refused("SW408", two, input_ids=torch.randn(3, 4))
    assert "missing a required argument" in refused("SW408", fast)


# -- what is compiled, and its dims


def test_a_target_that_is_compiled_already() -> None:
    fast = linear()
    text = refused("SW509", sizewise.compile, fast)
    assert "is compiled already" in text and "pass an nn.Module" not in text
    sizewise.compile(fast.__wrapped__)
    text = refused("SW509", sizewise.compile, torch.compile(nn.Linear(4, 2)))
    assert "model._orig_mod" in text
    inplace = sizewise.compile(nn.Linear(4, 2).eval(), dynamic_shapes={"input": {0: BATCH}}, inplace=True)
    assert "model.forward.warmup(...)" in refused("SW509", sizewise.compile, inplace)
    assert "nn.Module instance" in refused("SW509", sizewise.compile, 3)


@pytest.mark.parametrize(("name", "written"), [("my batch", "my_batch"), ("1st", "dim_1st"), ("if", "dim_if")])
def test_a_name_for_a_dim(name: str, written: str) -> None:
    assert f"Dim({written!r}, ...)" in refused("SW201", Dim, name)
    Dim(written)


def test_ranges_of_a_dim() -> None:
    assert 'on_outside="eager"' in refused("SW201", Dim, "n", min=0)
    shapes = {"input": {0: Dim("n", max=3), 1: Dim("n", max=4)}}
    assert "make one Dim and use it at both places" in refused(
        "SW201", compiled(nn.ReLU(), shapes).warmup, torch.ones(2, 2)
    )


class Add(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def test_axes_that_have_to_be_equal() -> None:
    both = torch.randn(3, 4), torch.randn(3, 4)
    apart = compiled(Add(), {"x": {0: Dim("a", max=8)}, "y": {0: Dim("b", max=8)}})
    assert "the same Dim (here a, b differ)" in refused("SW309", apart.warmup, *both)
    compiled(Add(), {"x": {0: BATCH}, "y": {0: BATCH}}).warmup(*both)


# -- what a trace says


class Items(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "item":
            return x + x.max().item()
        if self.kind == "size":
            return x.sum() + torch.arange(int(x.abs().max())).sum()
        if self.kind == "mask":
            return x[x > 0]
        if self.kind == "nonzero":
            return torch.nonzero(x)
        return x + 1 if x.max().item() > 0 else x


@pytest.mark.parametrize(
    ("kind", "reason", "hint"),
    [
        ("item", "it takes a number out of a tensor", "keep the value a tensor"),
        ("size", "it takes a number out of a tensor", "keep the value a tensor"),
        ("mask", "indexing with a mask", "torch.where"),
        ("nonzero", "the result of nonzero", "torch.where"),
        ("branch", "a Python branch or a size goes by a number", "torch.where"),
    ],
)
def test_what_depends_on_the_data_is_said_with_its_line(kind: str, reason: str, hint: str) -> None:
    text = refused("SW207", compiled(Items(kind)).warmup, torch.randn(3, 4))
    assert reason in text and hint in text
    assert f"  at {__file__}:" in text
    told = text.split("graph break")[0]
    assert not re.search(r"\b(zuf|u|s)\d+\b", told), told


class Pairs(nn.Module):
    def __init__(self, padded: bool) -> None:
        super().__init__()
        self.padded = padded

    def forward(self, x: Tensor) -> Tensor:
        if self.padded:
            x = nn.functional.pad(x, (0, 0, 0, x.shape[0] % 2))
        return x.unflatten(0, (-1, 2))


def test_sizes_of_which_only_multiples_fit() -> None:
    text = refused("SW210", compiled(Pairs(False)).warmup, torch.randn(4, 4))
    assert "only multiples of 2 do: pad batch to one in the module" in text and "narrow" not in text
    assert compiled(Pairs(True)).warmup(torch.randn(4, 4))(torch.randn(5, 4)).shape == (3, 2, 4)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[0]]


def test_a_range_that_fits_can_be_copied_and_the_path_opens() -> None:
    text = refused("SW210", compiled(Positions()).warmup, torch.randn(4, 4))
    found = re.search(r'declare (Dim\("batch", min=1, max=6\))', text)
    assert found is not None and f"  at {__file__}:" in text
    compiled(Positions(), {"x": {0: eval(found[1])}}).warmup(torch.randn(4, 4))


def test_the_path_of_a_line_in_torch_opens() -> None:
    text = refused("SW209", linear({1: Dim("width", max=8)}).warmup, torch.randn(3, 4))
    place = re.search(r"  at (.+):(\d+) in ", text)
    assert place is not None
    with open(place[1]) as file:
        assert "F.linear" in file.read().splitlines()[int(place[2]) - 1]


class Counts(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        if how == "attribute":
            self.n = 0
        else:
            self.register_buffer("n", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "in place":
            self.n.add_(1)
        elif self.how == "assigned":
            self.n = self.n + 1
        else:
            self.n += 1
        return x * 2


class Holds(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner = Counts(how)
        self.last: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.inner.how == "list":
            self.last.append(x)
            return x * 2
        y: Tensor = self.inner(x)
        return y


def test_the_attribute_that_changes_is_named_with_its_line() -> None:
    text = refused("SW211", compiled(Holds("attribute")).warmup, torch.randn(3, 4))
    assert "changes Python state while it runs: self.inner.n." in text
    assert f"  at {__file__}:" in text and "self.n += 1" in text
    assert 'self.register_buffer("n", torch.zeros(()))' in text and "self.n.add_(1)" in text
    fast = compiled(Holds("in place")).warmup(torch.randn(3, 4))
    fast(torch.randn(5, 4))
    assert fast.inner.n == 1


@pytest.mark.parametrize("how", ["buffer", "assigned"])
def test_a_buffer_that_is_assigned_to(how: str) -> None:
    text = refused("SW211", compiled(Counts(how)).warmup, torch.randn(3, 4))
    assert "while it runs: self.n." in text and "write into the buffer: self.n.add_(1)" in text


def test_other_side_effects() -> None:
    text = refused("SW211", compiled(Holds("list")).warmup, torch.randn(3, 4))
    assert "while it runs: self.last." in text and "self.last.append(x)" in text


# -- without the self-test


def test_a_program_that_refuses_its_example_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(_: Entry) -> None:
        raise state_errors.Stale(owner="Linear", what="n was 1 and is 2")

    monkeypatch.setattr(Entry, "check_module", stale)
    monkeypatch.setattr("sizewise.guards.Snapshot.check", stale)
    refused("SW503", linear(self_test=False).warmup, torch.randn(3, 4))
