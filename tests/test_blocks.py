"""Equal blocks are traced once: what a stamped graph is, and what holds after warm-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sizewise
from benchmarks.families import FAMILIES
from benchmarks.models import ATTENTION, Decoder, decoder
from sizewise import CompiledModule
from sizewise.errors import state as state_errors
from sizewise.structure import structural_key
from sizewise.trace import blocks
from sizewise.verify.tolerance import compare

from .blocks_support import (
    BATCH,
    Block,
    Numbered,
    Stack,
    check,
    graph_of,
    how,
    own_forward,
    ready,
    replace_part,
    set_scale,
    stamped,
    traced_in_full,
)

# -- what a stamped graph is


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
    ours_code, full_code = (graph_of(fast).code.digests for fast in (ours, full))
    assert full_code <= ours_code
    assert not {name for name, _ in ours_code - full_code if name.startswith(("flatten", "_flatten", "_rebuild"))}
    assert not {name for name, _ in ours_code - full_code if "marked" in name or "standing_in" in name}
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


def test_blocks_with_a_shared_part_or_tied_tensors_are_all_traced() -> None:
    module = Shares()
    assert blocks.find_runs(module) == []
    traced_in_full(module)


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
