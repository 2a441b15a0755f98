"""Tapes: the bits of the program, from memory of their own, without a decision in between."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import sizewise
from benchmarks.models import ATTENTION, decoder
from sizewise import Dim
from sizewise.errors.capture import CapturingDisabled
from sizewise.graphs.backend import CannotCapture, Job
from sizewise.graphs.bucket import MISSED, Bucket, Form
from sizewise.graphs.tape import TapeBackend, TapeSession, record
from sizewise.graphs.tape.memory import ALIGNMENT, place
from sizewise.graphs.turns import Turns
from sizewise.monitor import cudagraph_capturing

slow = pytest.mark.slow
SHAPES = {"x": {0: Dim("batch", 1, 16)}}


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def warm(module: nn.Module, *example: torch.Tensor, shapes: Any = SHAPES, **options: Any) -> Any:
    return sizewise.compile(module.eval(), dynamic_shapes=shapes, cudagraph_mode="NONE", **options).warmup(*example)


@dataclass
class Taped:
    """A tape, and the function that serves calls with it."""

    fast: Any
    tape: Any
    function: Any

    def replay(self, *arguments: torch.Tensor) -> Any:
        (entry,) = self.fast.built.entries
        return self.function(entry.weights.fetch(), *arguments)

    @property
    def live(self) -> tuple[str, ...]:
        live: tuple[str, ...] = self.tape.live
        return live


def tape_of(fast: Any, *arguments: torch.Tensor, session: TapeSession | None = None) -> Taped:
    (entry,) = fast.built.entries
    program = entry.program
    rows = arguments[0].shape[0]
    weights = [tensor.detach() for tensor in entry.weights.fetch()]
    tape = (session or TapeSession()).capture(
        Job(program.variant_for(rows).call, arguments, (weights, rows), tuple(weights), label=str(rows))
    )
    axes = {path: {axis: dim.name for axis, dim in axes.items()} for path, axes in program.traced.spec.items()}
    paths = tuple(item.path for item in program.weight_inputs)
    form = Form(program.traced.template, tuple(program.arguments), axes, paths)
    bucket = Bucket(tape, form, {"batch": rows}, weights, Turns())
    return Taped(fast, tape, bucket.function({"batch": rows}))


def same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, Mapping):
        return (
            type(first) is type(second)
            and list(first) == list(second)
            and all(same(first[k], second[k]) for k in first)
        )
    if isinstance(first, (tuple, list)):
        return type(first) is type(second) and all(map(same, first, second))
    if hasattr(first, "__dict__"):
        return type(first) is type(second) and same(vars(first), vars(second))
    return bool(first == second)


# -- what a replay gives


@slow
def test_a_decoder_at_three_sizes_on_one_arena() -> None:
    model = decoder(4)
    fast = warm(model, torch.randint(0, 256, (4, 16)), shapes={"ids": SHAPES["x"]}, splitting_ops=[ATTENTION])
    session = TapeSession()
    tapes = {rows: tape_of(fast, torch.randint(0, 256, (rows, 16)), session=session) for rows in (16, 1, 5)}
    assert all(tape.live == () for tape in tapes.values()), "an operator that writes to what it is given needs no copy"
    for rows in (1, 16, 5, 1, 5, 16):
        ids = torch.randint(0, 256, (rows, 16))
        seen = tapes[rows].replay(ids)
        assert torch.equal(seen, fast(ids))
        with torch.no_grad():
            torch.testing.assert_close(seen, model(ids))
    (entry,) = fast.built.entries
    ids, weights = torch.randint(0, 256, (16, 16)), entry.weights.fetch()
    recording = record(Job(entry.program.variants[0].call, (ids,), (weights, 16), tuple(weights)))
    everything = sum(buffer.storage.nbytes() for buffer in recording.buffers.values())
    assert tapes[16].tape.bytes * 3 < everything, "layers share the memory of their intermediates"
    assert session.bytes == tapes[16].tape.bytes, "all sizes share the memory of the largest"


@slow
def test_results_are_the_callers_own() -> None:
    fast = warm(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(3, 8), shapes={"input": SHAPES["x"]})
    tape = tape_of(fast, torch.randn(3, 8))
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    first = tape.replay(x)
    kept = first.clone()
    tape.replay(y)
    assert torch.equal(first, kept) and torch.equal(kept, fast(x))


class Convolves(nn.Module):
    """A convolution, which gives memory of its own, and a sum that goes through C++ of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x.sin()).relu() * 2).cumsum(1).exp().tanh()


class Sorts(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, order = (x * 2).sin().sort(-1)
        return values.cos(), order + 1


@slow
@pytest.mark.parametrize("module, shape", [(Convolves, (4, 6)), (Sorts, (9,))])
def test_what_makes_memory_of_its_own_is_copied(module: Any, shape: tuple[int, ...]) -> None:
    fast = warm(module(), torch.randn(3, *shape))
    tape = tape_of(fast, torch.randn(5, *shape))
    assert tape.live
    for _ in range(3):
        x = torch.randn(5, *shape)
        assert same(tape.replay(x), fast(x))


Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclass
class Result:
    value: torch.Tensor
    rows: int
    nothing: None
    more: Pair


class Nests(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = x.sin() + self.bias
        return {
            "list": [y, (y.sum(-1),)],
            "fields": Result(x.cos(), x.shape[0] * 2, None, Pair(y, x.exp())),
            "text": "constant",
            "bias": self.bias,
        }


@slow
def test_any_nesting_sizes_and_constants() -> None:
    module = Nests()
    fast = warm(module, torch.randn(3, 8))
    tape = tape_of(fast, torch.randn(7, 8))
    x = torch.randn(7, 8)
    seen = tape.replay(x)
    assert same(seen, fast(x))
    assert seen["fields"].rows == 14 and seen["bias"] is module.bias
    assert seen["list"][0] is seen["fields"].more.first, "one tensor stays one"


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


@slow
def test_the_modules_own_tensors_are_written_at_each_replay() -> None:
    module = Counts()
    fast = warm(module, torch.randn(3, 8))
    tape = tape_of(fast, torch.randn(2, 8))
    module.total.zero_()
    wanted = torch.zeros(8)
    for _ in range(3):
        x = torch.randn(2, 8)
        wanted += x.sum(0)
        torch.testing.assert_close(tape.replay(x), x + wanted)
    torch.testing.assert_close(module.total, wanted)


@slow
def test_weights_in_place_and_elsewhere() -> None:
    layer = nn.Linear(8, 8)
    fast = warm(layer, torch.randn(3, 8), shapes={"input": SHAPES["x"]})
    tape = tape_of(fast, torch.randn(2, 8))
    x = torch.randn(2, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(8, 8))
        assert torch.equal(tape.replay(x), layer(x))
    before = layer.weight.data
    layer.weight.data = torch.randn(8, 8)
    assert tape.replay(x) is MISSED
    layer.weight.data = before
    torch.testing.assert_close(tape.replay(x), layer(x))
    layer.weight = nn.Parameter(torch.randn(8, 8))
    assert tape.replay(x) is MISSED


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@slow
def test_a_replay_allocates_nothing_but_its_results() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8))
    fast = warm(model, torch.randn(3, 8), shapes={"input": SHAPES["x"]})
    tape = tape_of(fast, torch.randn(4, 8))
    with torch.no_grad(), _Seen() as seen:
        tape.replay(torch.randn(4, 8))
    counted = collections.Counter(seen.names)
    assert counted.pop("aten.randn.default") == 1
    assert counted.pop("aten.clone.default") == 1
    # A product called by its address shows what it does inside; with the bias that is a view and a copy.
    inside = {"aten.copy_.default", "aten.expand.default"}
    assert counted["aten.copy_.default"] and all(".out" in name or name in inside for name in counted), counted


# -- what is refused


class Returns(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x.sin()


@slow
def test_an_argument_that_is_returned_is_the_callers() -> None:
    tape = tape_of(warm(Returns(), torch.randn(3, 8)), torch.randn(2, 8))
    x = torch.randn(2, 8)
    first, second = tape.replay(x)
    assert first is x and torch.allclose(second, x.sin())


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:, :2], x.sin()


class Shares(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin() * 2
        return y, y[:, :4]


@torch.library.custom_op("tape_tests::largest", mutates_args=())
def largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(0, keepdim=True) + x


@largest.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Splits(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tape_tests.largest(x.sin()).cos()


@slow
def test_an_operator_that_makes_its_result_is_copied() -> None:
    fast = warm(Splits(), torch.randn(3, 8), splitting_ops=["tape_tests::largest"])
    tape = tape_of(fast, torch.randn(6, 8))
    assert tape.live == ("tape_tests::largest",)
    for _ in range(3):
        x = torch.randn(6, 8)
        assert torch.equal(tape.replay(x), fast(x))


@slow
@pytest.mark.parametrize("module, words", [(Views, "with an argument"), (Shares, "with one another")])
def test_results_that_are_no_memory_of_their_own(module: Any, words: str) -> None:
    fast = warm(module(), torch.randn(3, 8))
    with pytest.raises(CannotCapture, match=words):
        tape_of(fast, torch.randn(2, 8))


def call_by_hand(weights: Any, size: int, x: torch.Tensor) -> Any:
    return operator(x)


def operator(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: x + 1, "aten.add.Tensor runs outside"),
        (lambda x: torch.zeros(3), "aten.zeros.default runs outside"),
        (lambda x: x.view(-1).sum().item(), "aten.sum.default runs outside"),
    ],
)
def test_what_escapes_the_recorders(monkeypatch: pytest.MonkeyPatch, function: Any, words: str) -> None:
    monkeypatch.setitem(call_by_hand.__globals__, "operator", function)
    with pytest.raises(CannotCapture, match=words):
        record(Job(call_by_hand, (torch.randn(3, 4),), ([], 3)))


def test_an_operator_that_gives_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def call(weights, size, x):\n    return op_0(x)\n"
    scope: dict[str, Any] = {"op_0": lambda x: float(x.sum())}
    exec(source, scope)
    with pytest.raises(CannotCapture, match="gives a float, which may depend on data"):
        record(Job(scope["call"], (torch.randn(3, 4),), ([], 3)))


def test_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = torch.randn(3, 4)
    scope: dict[str, Any] = {"op_0": torch.add, "held": [foreign]}
    exec("def call(weights, size, x):\n    return op_0(x, held[0])\n", scope)
    with pytest.raises(CannotCapture, match="neither the tape's nor the module's"):
        record(Job(scope["call"], (torch.randn(3, 4),), ([], 3)))


@slow
def test_a_size_that_needs_more_memory_than_the_first_has_some_of_its_own() -> None:
    fast = warm(nn.Linear(8, 8), torch.randn(3, 8), shapes={"input": SHAPES["x"]})
    session = TapeSession()
    small, large = (tape_of(fast, torch.randn(rows, 8), session=session) for rows in (2, 16))
    assert session.bytes == small.tape.bytes + large.tape.bytes
    for rows, tape in ((2, small), (16, large), (2, small)):
        x = torch.randn(rows, 8)
        assert torch.equal(tape.replay(x), fast(x))


def test_the_gate_is_asked() -> None:
    with cudagraph_capturing(False), pytest.raises(CapturingDisabled), TapeBackend().session():
        pass


# -- memory


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 10)).map(lambda t: (t[0], t[1], t[1] + t[2])),
        max_size=30,
    )
)
def test_no_two_that_live_at_one_time_overlap(spans: list[tuple[int, int, int]]) -> None:
    offsets, total = place(spans)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for one, (size, first, last) in enumerate(spans):
        assert offsets[one] + size <= total
        for other in range(one):
            other_size, other_first, other_last = spans[other]
            together = first <= other_last and other_first <= last and size and other_size
            apart = offsets[one] + size <= offsets[other] or offsets[other] + other_size <= offsets[one]
            assert apart or not together
    busiest = max((sum(s for s, first, last in spans if first <= step <= last) for step in range(31)), default=0)
    assert total >= busiest
