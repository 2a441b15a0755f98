"""What an attack found unwatched: values only returned, tensors only looked at, identities, layouts."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from sizewise import Dim
from sizewise.errors import call as call_errors
from sizewise.errors import state as state_errors
from sizewise.errors import trace as trace_errors
from sizewise.verify.tolerance import compare

from .small import BATCH, X, ready


class Holder:
    def __init__(self) -> None:
        self.a = 1.0


class Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.version, self.names, self.table = 1, ["a", "b"], {"k": 1}
        self.held, self.counts = Holder(), collections.Counter(a=1)
        self.near, self.far = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Any:
        x = x * vars(self.held).get("scale", 1.0) * self.counts["a"]
        x = x * (2 if any(p.requires_grad for p in self.parameters()) else 1)
        x = x.to(self.far.weight.dtype) * self.far.weight.shape[0]
        return self.near(x.float()), x, self.version, self.names[0], self.table


CHANGES: dict[str, Callable[[Returns], Any]] = {
    "a returned number": lambda m: setattr(m, "version", 2),
    "an item of a returned list": lambda m: m.names.__setitem__(0, "z"),
    "an entry of a returned dict": lambda m: m.table.__setitem__("k", 9),
    "an entry more": lambda m: m.table.__setitem__("new", 3),
    "an attribute read through vars": lambda m: setattr(m.held, "scale", 5.0),
    "a count": lambda m: m.counts.__setitem__("a", 7),
    "requires_grad": lambda m: m.requires_grad_(False),
    "the dtype of a tensor that is only looked at": lambda m: m.far.double(),
    "the shape of one": lambda m: setattr(m.far, "weight", nn.Parameter(torch.ones(9, 4))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_noticed(name: str) -> None:
    fast = ready(Returns())
    fast(X)
    CHANGES[name](fast.__wrapped__)
    with pytest.raises(state_errors.Stale):
        fast(X)
    wanted, seen = fast.__wrapped__(X), fast.refresh()(X)
    torch.testing.assert_close(seen[:2], wanted[:2])
    assert seen[2:] == wanted[2:]


def test_weights_tied_after_warm_up_are_noticed() -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x) * (5 if self.a.weight is self.b.weight else 1)

    fast = ready(Asks())
    fast.b.weight = fast.a.weight
    with pytest.raises(state_errors.Stale, match="tied"):
        fast(X)


class AsksForIdentity(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if x is y else x * 3


class DoesNotAsk(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + 2 * y


def test_arguments_that_are_one_tensor() -> None:
    dims = {"x": {0: BATCH}, "y": {0: BATCH}}
    fast = sizewise.compile(AsksForIdentity().eval(), dynamic_shapes=dims, backend="eager")
    with pytest.raises(call_errors.OtherValue, match="the same tensor as x"):
        fast.warmup(X, X)
    assert fast.state == "new"
    fast.warmup(X, X.clone())
    assert torch.equal(fast(X, X.clone()), X * 3)
    with pytest.raises(call_errors.OtherValue, match="the same tensor as x"):
        fast(X, X)
    plain = sizewise.compile(DoesNotAsk().eval(), dynamic_shapes=dims, backend="eager").warmup(X, X)
    assert torch.equal(plain(X, X), X * 3)


def test_a_warm_up_for_a_call_that_cannot_be_served_is_refused() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.add_(1) + y

    dims = {"x": {0: BATCH}, "y": {0: BATCH}}
    with pytest.raises(call_errors.WrittenInputLayout):
        sizewise.compile(Writes().eval(), dynamic_shapes=dims, backend="eager").warmup(X, X)


class ReadsStride(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x * 1, x.stride(0)


def test_the_stride_of_an_axis_of_one() -> None:
    fast = ready(ReadsStride())
    assert fast(torch.randn(1, 4))[1] == 4
    with pytest.raises(call_errors.WrittenInputLayout):
        fast(torch.randn(4, 1).t())


class Kind(enum.IntEnum):
    FIRST = 1


class ReturnsEnum(nn.Module):
    def forward(self, x: Tensor, kind: Kind) -> Any:
        return x * 2, kind


class LogOfSize(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x * math.log2(x.shape[0] + 1)


class FractionOfSize(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return torch.zeros(int(x.shape[0] * 1.3)) + x.sum()


EQUAL: dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = {
    "an enum that is returned": (ReturnsEnum(), (X, Kind.FIRST), {"x": {0: BATCH}}),
    "a logarithm of a size": (LogOfSize(), (X,), {"x": {0: BATCH}}),
    "a fraction of a size": (FractionOfSize(), (X,), {"x": {0: BATCH}}),
    "a length scaled by a fraction": (
        nn.Upsample(scale_factor=1.7, mode="linear"),
        (torch.randn(2, 3, 5),),
        {"input": {0: BATCH, 2: Dim("length", 1, 16)}},
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_it_is_equal_or_refused_by_name(name: str) -> None:
    module, arguments, dims = EQUAL[name]
    try:
        fast = sizewise.compile(module.eval(), dynamic_shapes=dims, backend="eager").warmup(*arguments)
    except trace_errors.SizeAssumption:
        return
    for size in (1, 2, 7, 16):
        x = torch.randn(size, *arguments[0].shape[1:])
        assert compare(module(x, *arguments[1:]), fast(x, *arguments[1:])) is None


@torch.library.custom_op("sizewise_test::size_scale", mutates_args=())
def size_scale(x: Tensor) -> Tensor:
    return x * 2


size_scale.register_fake(torch.empty_like)


class NamedLikeASize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return size_scale(x)


def test_an_operator_named_like_a_generated_name() -> None:
    assert torch.equal(ready(NamedLikeASize())(X), X * 2)


@pytest.mark.parametrize(
    "dims",
    [{"x": {0: torch.export.Dim.AUTO}}, {"x": [{0: BATCH}]}],
    ids=["a hint without a range", "a list for a tensor"],
)
def test_a_declaration_that_would_do_nothing_is_refused(dims: Any) -> None:
    with pytest.raises(trace_errors.BadDynamicShapes):
        sizewise.compile(nn.Tanh().eval(), dynamic_shapes={"input": dims["x"]}, backend="eager").warmup(X)


class ReturnsFloat(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x * 2, x.shape[0] * 2.5


def test_a_float_made_of_a_size_is_refused_in_true_words() -> None:
    with pytest.raises(trace_errors.NotTraceable, match="computed from a size as a float"):
        ready(ReturnsFloat())


def test_parts_by_index() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval()
    fast = sizewise.compile(module, dynamic_shapes={"input": {0: BATCH}}, backend="eager")
    assert fast[0] is module[0]
    assert len(fast) == 2
    assert list(fast) == list(module)
    assert ready()


class ClassTensor(nn.Module):
    table = torch.arange(4.0)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


def test_a_tensor_of_the_class() -> None:
    fast = ready(ClassTensor())
    torch.testing.assert_close(fast(X), X + torch.arange(4.0))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(1)
        return x * 2


def test_a_module_that_is_refused_for_its_side_effects_has_not_run() -> None:
    module = Counts()
    with pytest.raises(trace_errors.SideEffect):
        ready(module)
    assert module.calls == []


def test_a_model_that_sets_itself_up_at_its_first_eager_call_is_not_stale_after_it() -> None:
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes)).eval()
    dims = {"input_ids": {0: BATCH, 1: Dim("seq", 1, 16)}}
    ids = torch.randint(0, 20, (3, 5))
    fast = sizewise.compile(model, dynamic_shapes=dims, backend="eager")
    fast.warmup(input_ids=ids, output_hidden_states=True)
    with torch.no_grad():
        wanted = model(input_ids=ids, output_hidden_states=True)
    assert fast.state == "ready"
    assert compare(wanted, fast(input_ids=ids, output_hidden_states=True)) is None
