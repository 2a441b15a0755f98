"""Equal blocks, attacked: models whose blocks look alike and are not, or that could not be compared at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sizewise import CompiledModule
from sizewise.errors import state as state_errors
from sizewise.verify.tolerance import compare

from .blocks_support import BATCH, Stack, how, ready

LARGEST = BATCH.max
STAMPED = "1 of {} blocks of layers traced"
NOT_ALIKE = ""
"""Blocks that are told apart before the trace are no run, so nothing is said of them."""
OWN = "all blocks traced: a block's own tensor is an argument of blocks"
WRITES = "all blocks traced: a block changes a container that it is given"
DICT = "all blocks traced: a number may be read through the dict of a block"
AROUND = "all blocks traced: block {} is called in another state (autocast, gradients, default dtype) than the first"
INSIDE = "all blocks traced: a block is called inside of a checkpoint or a branch"


@pytest.fixture(autouse=True)
def default_dtype_set_back() -> Iterator[None]:
    """One of these models sets the default dtype: it is set back also where the model fails half-way."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def equal(fast: CompiledModule, module: nn.Module, scale: float = 1.0) -> None:
    with torch.no_grad():
        for rows in (1, LARGEST):
            x = torch.randn(rows, 8) * scale
            difference = compare(module(x.clone()), fast(x.clone()), depth=64)
            assert difference is None, difference


def attacked(module: nn.Module, blocks: str, scale: float = 1.0) -> CompiledModule:
    """Warmed up; right at usual inputs and at those of ``scale``, and ``blocks`` is what the report says."""
    fast = ready(module)
    equal(fast, module)
    equal(fast, module, scale)
    assert how(fast) == blocks
    return fast


def noticed(fast: CompiledModule, module: nn.Module, name: str) -> None:
    """The change of ``name`` is refused at both ends of the range, and taken in by a refresh."""
    for rows in (1, LARGEST):
        with pytest.raises(state_errors.Stale) as seen:
            fast(torch.randn(rows, 8))
        assert name in str(seen.value)
    fast.refresh()
    equal(fast, module)


def load_others(module: nn.Module, assign: bool = False) -> None:
    module.load_state_dict({key: torch.randn_like(one) for key, one in module.state_dict().items()}, assign=assign)


class Plain(nn.Module):
    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.linear(x)
        return y


def stack(make: Callable[[int], nn.Module] = Plain) -> Any:
    return Stack(make, 4)


# -- tensors that blocks share at warm-up, and have no more afterwards


class Rope(Plain):
    def __init__(self, table: Tensor, number: int) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x) * self.table


class Head(Stack):
    def __init__(self) -> None:
        super().__init__(Plain, 4)
        self.head = nn.Linear(8, 8)
        self.head.weight = self.layers[1].linear.weight

    def forward(self, x: Tensor) -> Any:
        return self.head(super().forward(x))


def tied(*pairs: tuple[int, int]) -> Any:
    module = stack()
    for one, other in pairs:
        module.layers[one].linear.weight = module.layers[other].linear.weight
    return module


def new_weight(part: Any) -> None:
    part.weight = nn.Parameter(torch.randn(8, 8))


TIES: dict[str, tuple[Callable[[], Any], Callable[[Any], None], str]] = {
    "two stamped blocks": (lambda: tied((2, 1)), lambda m: new_weight(m.layers[2].linear), "layers.2.linear.weight"),
    "two, all assigned": (lambda: tied((2, 1)), lambda m: load_others(m, True), "layers.2.linear.weight"),
    "the first and another": (lambda: tied((2, 0)), lambda m: new_weight(m.layers[2].linear), "layers.2.linear.weight"),
    "all": (lambda: tied((1, 0), (2, 0), (3, 0)), lambda m: new_weight(m.layers[0].linear), "layers.0.linear.weight"),
    "a head": (Head, lambda m: new_weight(m.head), "head.weight"),
    "a buffer of all": (
        lambda: stack(partial(Rope, torch.randn(8))),
        lambda m: setattr(m.layers[0], "table", torch.randn(8)),
        "layers.0.table",
    ),
}


@pytest.mark.parametrize("name", TIES)
def test_a_tie_that_is_undone_is_noticed(name: str) -> None:
    make, change, where = TIES[name]
    module = make()
    # What is tied is no block of a run; the three others of the stack with a head still are.
    fast = attacked(module, STAMPED.format(3) if name == "a head" else NOT_ALIKE)
    change(module)
    noticed(fast, module, where)


# -- a tensor of the first block is an argument of all


class TwoScales(Plain):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        return x + self.linear(x * self.scale) * scale


class PassesFirst(Stack):
    def forward(self, x: Tensor) -> Any:
        shared: Any = self.layers[0].scale
        for layer in self.layers:
            x = layer(x, shared)
        return x


class PassesTied(Stack):
    def __init__(self) -> None:
        super().__init__(TwoScales, 4)
        self.table = self.layers[0].scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x, self.table)
        return x


@pytest.mark.parametrize("name", ["equal values at warm-up", "values that differ"])
def test_the_first_blocks_tensor_for_all(name: str) -> None:
    module: Any = PassesFirst(TwoScales, 4)
    for layer in module.layers if name == "values that differ" else ():
        nn.init.normal_(layer.scale)
    fast = attacked(module, OWN)
    load_others(module)
    equal(fast, module)


def test_a_tensor_of_the_models_own_that_is_the_first_blocks_too() -> None:
    module = PassesTied()
    fast = attacked(module, STAMPED.format(3))
    load_others(module)
    equal(fast, module)


# -- blocks that write to a container they are given


class Overflow(Plain):
    def forward(self, x: Tensor, seen: Any = None) -> Tensor:
        y: Tensor = x + self.linear(x)
        seen["over"] = seen["over"] | (y.abs().amax() > 5000)
        return y * 3


class Loss(Plain):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.router = nn.Linear(8, 1, bias=False)
        nn.init.zeros_(self.router.weight)  # adds nothing before other weights are loaded

    def forward(self, x: Tensor, seen: Any = None) -> Tensor:
        seen["loss"] = seen["loss"] + self.router(x).square().mean()
        return super().forward(x)


class Mean(Plain):
    def forward(self, x: Tensor, seen: Any = None) -> Tensor:
        seen[0] = seen[0] + x.mean()
        return super().forward(x)


class State(Plain):
    def forward(self, state: Any) -> Any:
        state["x"] = state["x"] + self.linear(state["x"])


class StateBack(State):
    def forward(self, state: Any) -> Any:
        return super().forward(state) or state


class Gives(Stack):
    def __init__(self, make: Callable[[int], nn.Module], key: Any, first: Callable[[Tensor], Tensor]) -> None:
        super().__init__(make, 4)
        self.key, self.first = key, first

    def forward(self, x: Tensor) -> Any:
        seen: Any = [self.first(x)] if self.key == 0 else {self.key: self.first(x)}
        for layer in self.layers:
            x = layer(x, seen)
        return x, seen[self.key]


class PassesState(Stack):
    def forward(self, x: Tensor) -> Any:
        begun = state = {"x": x}
        for layer in self.layers:
            state = layer(state) or state
        return state["x"], begun["x"]


WRITING: dict[str, Callable[[], nn.Module]] = {
    "a flag": lambda: Gives(Overflow, "over", lambda x: x.new_zeros((), dtype=torch.bool)),
    "a loss": lambda: Gives(Loss, "loss", lambda x: x.new_zeros(())),
    "an entry of a list": lambda: Gives(Mean, 0, torch.mean),
    "a state": lambda: PassesState(State, 4),
    "a state, returned": lambda: PassesState(StateBack, 4),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_container_that_blocks_write(name: str) -> None:
    module = WRITING[name]()
    # The flag is set by a later block only, at inputs that no self-test has.
    fast = attacked(module, WRITES, scale=300.0)
    load_others(module)
    equal(fast, module)


# -- values that differ: limits of 100, 200, ... show at large inputs only


OWN_LIST: Any = type("OwnList", (list,), {})
OWN_DICT: Any = type("OwnDict", (dict,), {})


class Limited(Plain):
    """``holder``: what of a block the limit is an attribute of; ``read``: how the forward reads it."""

    name = "limit"

    def __init__(self, number: int, holder: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.read, self.listed, self.named = read, OWN_LIST([1]), OWN_DICT(a=1)
        setattr(holder(self), self.name, 100 * (number + 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.linear(x)).clamp(max=self.read(self))


class ReadsItself(Limited):
    name = "kept"

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["kept"] if name == "limit" else super().__getattr__(name)


LIMITS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "a number in __dict__": (Limited, lambda block: block, lambda block: block.__dict__["limit"], DICT),
    "a number in vars()": (Limited, lambda block: block, lambda block: vars(block)["limit"], DICT),
    "a number by __getattr__": (ReadsItself, lambda block: block, lambda block: block.limit, NOT_ALIKE),
    "on a tensor": (Limited, lambda block: block.linear.weight, lambda block: block.linear.weight.limit, NOT_ALIKE),
    "on a list": (Limited, lambda block: block.listed, lambda block: block.listed.limit, NOT_ALIKE),
    "on a dict": (Limited, lambda block: block.named, lambda block: block.named.limit, NOT_ALIKE),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_each_blocks_own(name: str) -> None:
    make, holder, read, blocks = LIMITS[name]
    attacked(stack(lambda number: make(number, holder, read)), blocks, scale=1000.0)


# -- blocks called in another state than the first


class AsksAutocast(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y = (x + self.linear(x)).float()
        return y.clamp(max=50.0) if torch.is_autocast_enabled("cpu") else y


class AsksGradients(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=100.0 if torch.is_grad_enabled() else 10000.0)


class AsksDtype(Plain):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x.float())
        return y if x.dtype == torch.float32 else y + (y.abs() > 50) * 100


class AsksDefault(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (torch.zeros(1).dtype == torch.float64)


class Casts(Stack):
    def __init__(self, make: Callable[[int], nn.Module], cast: tuple[int, ...], asks: bool = False) -> None:
        super().__init__(make, 4)
        self.cast, self.asks = cast, asks

    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=number in self.cast):
                x = layer(x)
        return x if self.asks and x.dtype == torch.float32 else x.float()


class Gradients(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            with torch.set_grad_enabled(number > 0):
                x = layer(x)
        return x


class Defaults(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64 if number else torch.float32)
            x = layer(x)
            torch.set_default_dtype(before)
        return x


STATES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "autocast, asked": (lambda: Casts(AsksAutocast, (1, 2, 3)), 1),
    "a dtype that autocast gave": (lambda: Casts(AsksDtype, (1, 2, 3)), 1),
    "autocast for the last": (lambda: Casts(lambda number: nn.Linear(8, 8), (3,), asks=True), 3),
    "gradients, asked": (lambda: Gradients(AsksGradients, 4), 1),
    "default dtype, asked": (lambda: Defaults(AsksDefault, 4), 1),
}


@pytest.mark.parametrize("name", STATES)
def test_blocks_called_in_another_state(name: str) -> None:
    make, block = STATES[name]
    attacked(make(), AROUND.format(block), scale=1e5)


# -- attributes that could not be compared, calls that could not be stamped


@dataclasses.dataclass(slots=True)
class Settings:
    scale: float = 0.5


class Set(Plain):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.settings = Settings(scale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x) * self.settings.scale


def test_a_dataclass_with_slots() -> None:
    module = stack(lambda number: Set(0.5))
    fast = attacked(module, STAMPED.format(4))
    module.layers[2].settings.scale = 0.75
    noticed(fast, module, "layers.2.settings.scale")
    attacked(stack(lambda number: Set(0.5 + number)), NOT_ALIKE)


class Checkpoints(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def test_blocks_under_a_checkpoint() -> None:
    module = Checkpoints(Plain, 4)
    fast = attacked(module, INSIDE)
    load_others(module)
    equal(fast, module)


class Refuses:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Holds(Plain):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held  # never read by the forward


ONE = Refuses()
HELD: dict[str, Callable[[], Any]] = {
    "tensors as keys": lambda: {torch.ones(2): 1},
    "keys whose == raises": lambda: {Refuses(): 1},
    "one key whose repr raises": lambda: {ONE: 1},
}


@pytest.mark.parametrize("name", HELD)
def test_attributes_that_cannot_be_compared(name: str) -> None:
    module = stack(lambda number: Holds(HELD[name]()))
    fast = attacked(module, NOT_ALIKE)
    load_others(module)
    equal(fast, module)
