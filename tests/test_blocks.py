"""Equal blocks are traced once: which are equal, what a stamped graph is, what stops the stamping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from benchmarks.families import FAMILIES
from benchmarks.models import ATTENTION, Decoder, decoder
from sizewise import CompiledModule, Dim
from sizewise.errors import state as state_errors
from sizewise.structure import structural_key
from sizewise.trace import blocks
from sizewise.trace.blocks.alike import NotAlike, pair
from sizewise.verify.tolerance import compare

BATCH = Dim("batch", 1, 16)


class Block(nn.Module):
    """Everything a block of other people's may have: a number, a setting, a buffer, a plain tensor, a dropout."""

    def __init__(self, number: int, width: int = 8) -> None:
        super().__init__()
        self.number, self.scale, self.sizes = number, 0.5, [width, 2 * width]
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("shift", torch.randn(width))
        self.plain = torch.randn(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.down(self.drop(self.up(x)).relu()) * self.scale + self.shift - self.plain
        return x + (y if mask is None else y * mask[:, None])


class Stack(nn.Module):
    def __init__(self, make: Callable[[int], nn.Module] = Block, count: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make(number) for number in range(count))

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def ready(module: nn.Module, **options: Any) -> CompiledModule:
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager", **options)
    return fast.warmup(torch.randn(3, 8))


def how(fast: CompiledModule) -> str:
    return "; ".join(fast.report().blocks)


def check(fast: CompiledModule, module: nn.Module) -> None:
    """The same as eager at sizes between those of the self-test."""
    with torch.no_grad():
        for rows in (1, 2, 7, 16):
            x = torch.randn(rows, 8)
            difference = compare(module(x), fast(x), depth=64)
            assert difference is None, difference


def stamped(module: nn.Module, **options: Any) -> CompiledModule:
    fast = ready(module, **options)
    assert "1 of" in how(fast), how(fast)
    check(fast, module)
    return fast


def traced_in_full(module: nn.Module, **options: Any) -> str:
    fast = ready(module, **options)
    assert "1 of" not in how(fast)
    check(fast, module)
    return how(fast)


# -- which blocks are alike


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


def set_scale(block: Any) -> None:
    block.scale = 0.75


def set_true(block: Any) -> None:
    block.number = True


def replace_part(block: Any) -> None:
    block.down = nn.Sequential(nn.Linear(16, 8))


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


def own_forward(block: Any) -> None:
    original = type(block).forward
    block.forward = lambda x: original(block, x) * 2


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


# -- what a stamped graph is


def graph_of(fast: CompiledModule) -> Any:
    return fast.built.entries[0].program.traced


def keys_of(fast: CompiledModule) -> list[str]:
    programs = [entry.program for entry in fast.built.entries]
    return [structural_key(piece.graph, program.traced.symbols) for program in programs for piece in program.pieces]


def guards_of(fast: CompiledModule) -> set[str]:
    """What of the module is compared at a call, by name.

    What is on a class may be reached by any object of it, so that is left out; so is what hooks get, which matters
    only where there are hooks.
    """
    names = {line.partition(": ")[0].partition(" on ")[2] for line in fast.report().guards}
    own = {name for name in names if name.startswith("self") and "(its class)" not in name}
    return {name for name in own if not name.endswith("_with_kwargs")}


def in_full(build: Callable[[], CompiledModule], monkeypatch: pytest.MonkeyPatch) -> CompiledModule:
    with monkeypatch.context() as patched:
        patched.setattr(blocks, "find_runs", lambda module: [])
        return build()


@pytest.mark.parametrize("make", [lambda: Stack(), lambda: decoder(5)], ids=["stack", "decoder"])
def test_it_is_the_graph_of_a_full_trace(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    module = make().eval()

    def build() -> CompiledModule:
        if not isinstance(module, Decoder):
            return ready(module)
        options: dict[str, Any] = {"backend": "eager", "splitting_ops": [ATTENTION]}
        fast: CompiledModule = sizewise.compile(module, dynamic_shapes={"ids": {0: BATCH}}, **options)
        return fast.warmup(torch.randint(0, 256, (2, 16)))

    ours, full = build(), in_full(build, monkeypatch)
    assert how(ours) == "1 of 5 blocks of layers traced"
    assert how(full) == ""
    assert keys_of(ours) == keys_of(full)
    assert guards_of(full) <= guards_of(ours)
    paths = [[item.path for item in graph_of(fast).inputs] for fast in (ours, full)]
    assert sorted(paths[0]) == sorted(paths[1])
    assert graph_of(full).code <= graph_of(ours).code
    assert all("sizewise" not in code.co_filename for code in graph_of(ours).code - graph_of(full).code)
    nodes = [[(node.op, str(node.target)) for node in graph_of(fast).graph.graph.nodes] for fast in (ours, full)]
    calls = [[node for node in listed if node[0].startswith("call")] for listed in nodes]
    assert calls[0] == calls[1]


NAMES = [item.name for item in FAMILIES if item.name not in ("Mamba", "custom operator without a fake")]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_gives_the_pieces_of_a_full_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = next(item for item in FAMILIES if item.name == name)
    torch.manual_seed(0)
    model, example, dims = family.make()

    def build() -> CompiledModule:
        fast = sizewise.compile(model, dynamic_shapes=dims, backend="eager", **family.options)
        return fast.warmup(**example)

    ours, full = build(), in_full(build, monkeypatch)
    assert keys_of(ours) == keys_of(full)
    assert guards_of(full) <= guards_of(ours)
    assert compare(full(**example), ours(**example), depth=1) is None


def test_most_families_of_transformers_are_stamped() -> None:
    names = ("BERT", "Llama, with a mask", "Gemma3", "GPT-2", "Qwen3-MoE", "ViT", "CLIP text")
    for family in (item for item in FAMILIES if item.name in names):
        model, _, _ = family.make()
        assert blocks.find_runs(model), family.name


def test_with_the_compiler() -> None:
    module = decoder(6)
    fast = sizewise.compile(module, dynamic_shapes={"ids": {0: BATCH}}, splitting_ops=[ATTENTION])
    fast.warmup(torch.randint(0, 256, (2, 16)))
    assert fast.report().pieces.distinct == 3
    with torch.no_grad():
        for rows in (1, 5, 16):
            ids = torch.randint(0, 256, (rows, 16))
            assert compare(module(ids), fast(ids), depth=512) is None


# -- forms of calling that are stamped


class Forms(nn.Module):
    """Blocks that take and give containers, keyword arguments and one tensor twice."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.linear = number, nn.Linear(8, 8)

    def forward(self, state: Any, pair: tuple[Tensor, Tensor], *, options: dict[str, Any], flag: bool = True) -> Any:
        x, kept = state["x"], state["kept"]
        y = self.linear(x) * pair[0] + pair[1] + options["shift"] * options["times"]
        return {"x": y if flag else x, "kept": kept, "list": [None, (y * 2, None)], "none": None}


class CallsForms(Stack):
    def __init__(self) -> None:
        super().__init__(Forms)
        self.shift = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Any:
        state: Any = {"x": x, "kept": x * 3}
        for layer in self.layers:
            state = layer(state, (self.shift, self.shift), options={"shift": self.shift, "times": 2}, flag=True)
            state = {"x": state["x"] + state["list"][1][0], "kept": state["kept"]}
        return state["x"], state["kept"]


def test_containers_keywords_and_one_tensor_twice() -> None:
    stamped(CallsForms())


class Numbered(Block):
    """Tells an operator its number, and multiplies with it."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        out = torch.empty(x.shape[0], 1, 8, 1)
        wide = x[:, None, :, None].contiguous()
        torch.ops.sizewise_bench.attention(wide, wide, wide, self.number, out)
        return super().forward(x, mask) + out[:, 0, :, 0] * 0.1 + x * self.number


def test_a_number_that_only_operators_get_is_each_blocks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Stack(Numbered)
    fast = stamped(module)
    full = in_full(lambda: ready(module), monkeypatch)
    assert keys_of(fast) == keys_of(full)
    assert guards_of(full) <= guards_of(fast)
    numbers = [node.args[3] for node in graph_of(fast).graph.graph.nodes if "attention" in str(node.target)]
    assert numbers == [0, 1, 2, 3, 4]


class WritesItsArgument(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x.add_(super().forward(x, mask))
        return x


class CopiesFirst(Stack):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x.clone())


def test_blocks_that_write_their_argument_and_return_it() -> None:
    stamped(CopiesFirst(WritesItsArgument))


class Shares(Stack):
    """Every block has the same part, and tied tensors of its own."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(8, 16)
        for layer in self.layers:
            layer.up = shared
            layer.shift = layer.plain


def test_a_shared_part_and_tied_tensors() -> None:
    module = Shares()
    assert len(blocks.find_runs(module)) == 1
    fast = stamped(module)
    names = [item.path for item in graph_of(fast).inputs]
    assert len([name for name in names if name.endswith("up.weight")]) == 1


class SomeBlocks(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in self.layers[:3]:
            x = layer(x)
        return x.relu()


def test_blocks_that_are_not_called() -> None:
    stamped(SomeBlocks())


class InSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(Block(number) for number in range(4)))

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


def test_a_sequential_of_blocks() -> None:
    stamped(InSequence())


# -- what is traced in full, and right


class Branches(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) if self.number < 3 else x * 2


class Indexes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * [1.0, 2.0, 3.0, 4.0, 5.0][self.number]


class Computes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * (self.number * self.number + 1)


class Sizes(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) + torch.ones(self.number + 1, 8).sum(0)


class Names(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask) * len(f"{10**self.number}")


class ReturnsView(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return x.view(-1, 8)


class ReturnsWeight(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return x + self.shift, self.shift


class TakesFirst(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)[0]
        return x


class ReturnsNumber(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return super().forward(x, mask), self.number


class Backwards(Stack):
    def forward(self, x: Tensor) -> Any:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Twice(Stack):
    def forward(self, x: Tensor) -> Any:
        return super().forward(super().forward(x))


class OtherArguments(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer(x, x[:, 0]) if number == 3 else layer(x)
        return x


class OneTensor(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, None) + (0 if mask is x else 1)


class OneTensorTwice(Stack):
    def forward(self, x: Tensor) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer(x, x if number % 2 else x * 1)
        return x


class GetsAWeight(Stack):
    """The first block is given its own weight, the others are given another one."""

    def forward(self, x: Tensor) -> Any:
        first: Any = self.layers[0]
        for layer in self.layers:
            x = layer(x * first.shift, first.shift[:1].expand(x.shape[0]))
        return x


class Unknown:
    def __init__(self, x: Tensor) -> None:
        self.x = x


class TakesAnObject(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, held: Unknown) -> Unknown:
        return Unknown(self.linear(held.x))


class PassesObjects(Stack):
    def forward(self, x: Tensor) -> Any:
        held = Unknown(x)
        for layer in self.layers:
            held = layer(held)
        return held.x


class CallsItsNeighbour(Stack):
    """The first block ends in a call of the second."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            vars(layer)["others"] = self.layers

    def forward(self, x: Tensor) -> Any:
        return super().forward(x)


FULL: dict[str, Callable[[], nn.Module]] = {
    "a branch on the number": lambda: Stack(Branches),
    "a list indexed with the number": lambda: Stack(Indexes),
    "arithmetic with the number": lambda: Stack(Computes),
    "a size made from the number": lambda: Stack(Sizes),
    "a text made from the number": lambda: Stack(Names),
    "a view of an argument is returned": lambda: Stack(ReturnsView),
    "a weight is returned": lambda: TakesFirst(ReturnsWeight),
    "a number is returned": lambda: TakesFirst(ReturnsNumber),
    "called in reverse": Backwards,
    "called twice": Twice,
    "other arguments": OtherArguments,
    "one tensor given twice, now and then": lambda: OneTensorTwice(OneTensor),
    "objects are passed": lambda: PassesObjects(TakesAnObject),
}


@pytest.mark.parametrize("name", FULL)
def test_it_is_traced_in_full(name: str) -> None:
    assert traced_in_full(FULL[name]()).startswith("all blocks traced: ")


def test_a_weight_of_the_first_block_outside_of_it() -> None:
    module = GetsAWeight()
    check(ready(module), module)


def test_modules_kept_aside_are_no_blocks() -> None:
    assert traced_in_full(CallsItsNeighbour()) == ""


def test_nothing_of_the_marks_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    run_node, sources = torch._dynamo.utils.run_node, torch.compiler.config.unbacked_sources
    for module in (Stack(Numbered), Stack(Branches)):
        fast = ready(module)
        assert all("forward" not in vars(part) for part in module.modules())
        assert "__marked" not in str(graph_of(fast).graph.code)
    assert torch._dynamo.utils.run_node is run_node
    assert torch.compiler.config.unbacked_sources == sources


def test_a_torch_without_the_hooks_traces_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._dynamo.utils, "run_node")
    with pytest.raises(NotAlike), blocks.markers.symbolic(["a"]):
        pass


# -- after warm-up


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a setting of a stamped block": set_scale,
    "its number, which an operator gets": lambda block: setattr(block, "number", 9),
    "a hook": lambda block: block.register_forward_hook(lambda *_: None),
    "a hook of a part": lambda block: block.up.register_forward_hook(lambda *_: None),
    "a forward of its own": own_forward,
    "a part": replace_part,
    "a forward of a part": lambda block: setattr(block.up, "forward", lambda x: x.repeat(1, 2)),
    "training": lambda block: block.train(),
    "a tensor of another shape": lambda block: setattr(block, "shift", torch.randn(1, 8)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("number", [0, 3])
def test_a_change_of_any_block_is_noticed(name: str, number: int) -> None:
    module = Stack(Numbered)
    fast = stamped(module)
    CHANGES[name](module.layers[number])
    with pytest.raises((state_errors.Stale, sizewise.SizewiseError)) as seen:
        fast(torch.randn(3, 8))
    assert f"layers.{number}" in str(seen.value) or name == "training"


def test_new_values_of_any_blocks_tensors_are_used() -> None:
    module = Stack(Numbered)
    fast = stamped(module)
    with torch.no_grad():
        for layer in module.layers:
            for tensor in (*layer.parameters(), *layer.buffers(), layer.plain):
                tensor.copy_(torch.randn_like(tensor))
    check(fast, module)
    module.layers[2].up.weight = nn.Parameter(torch.randn(16, 8))
    check(fast, module)
