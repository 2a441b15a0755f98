"""Persistent arguments: caches and counters that are bound once, written in place, and never copied or filled up."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import StaticCache

import sizewise
from sizewise import Dim
from sizewise.errors.call import OtherState
from sizewise.errors.state import BadOption, Closed, NotAvailable
from sizewise.errors.trace import SideEffect

slow = pytest.mark.slow
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
LENGTH, STEPS = 256, 200


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Remembers(nn.Module):
    """Writes each row to its place in a table, and gives the mean of what is there; a counter is moved on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.eval()

    def forward(self, x: torch.Tensor, memory: dict[str, torch.Tensor]) -> torch.Tensor:
        memory["table"].index_copy_(1, memory["next"][None], self.linear(x)[:, None])
        memory["next"].add_(1)
        return memory["table"].sum(1) / memory["next"]


def memory(rows: int = 2) -> dict[str, torch.Tensor]:
    return {"table": torch.zeros(rows, 16, 4), "next": torch.tensor(0)}


def compiled(module: nn.Module, **options: Any) -> Any:
    options.setdefault("cudagraph_mode", "FULL")
    return sizewise.compile(module, dynamic_shapes={}, persistent=("memory",), **options)


@slow
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_state_is_written_where_it_is_and_a_warm_up_leaves_it(backend: str) -> None:
    module, mine, right = Remembers(), memory(), memory()
    for _ in range(3):
        x = torch.randn(2, 4)
        module(x, mine), module(x, right)
    fast = compiled(module, backend=backend).warmup(torch.randn(2, 4), memory=mine)
    assert mine["next"] == 3 and torch.equal(mine["table"], right["table"])
    address = mine["table"].data_ptr()
    with fast.counters.expect(calls_capture=10, calls_program=0, calls_eager=0):
        for _ in range(10):
            x = torch.randn(2, 4)
            torch.testing.assert_close(fast(x, memory=mine), module(x, right))
            torch.testing.assert_close(mine, right)
    assert mine["table"].data_ptr() == address


@slow
def test_by_position_by_keyword_and_another_object() -> None:
    module, mine, right = Remembers(), memory(), memory()
    fast = compiled(module, backend="eager").warmup(torch.randn(2, 4), mine)
    x = torch.randn(2, 4)
    for call in (lambda: fast(x, mine), lambda: fast(x, memory=mine), lambda: fast(memory=mine, x=x)):
        torch.testing.assert_close(call(), module(x, right))
    other = memory()
    with pytest.raises(OtherState, match="memory=another dict"):
        fast(x, other)
    with pytest.raises(sizewise.SizewiseError, match="SW408"):
        fast(x)
    assert other["next"] == 0 and mine["next"] == 3


class MayRemember(nn.Module):
    def forward(
        self, x: torch.Tensor, memory: torch.Tensor | None = None, y: torch.Tensor | None = None
    ) -> torch.Tensor:
        x = x if y is None else x + y
        return x if memory is None else x + memory * 100


@slow
def test_one_by_position_is_not_taken_for_one_that_was_left_out() -> None:
    module, x, y = MayRemember().eval(), torch.ones(2), torch.ones(2)
    fast = compiled(module, backend="eager")
    fast.warmup_many([((x,), {"y": y}), ((x,), {"memory": y, "y": y}), ((x,), {"memory": y})])
    assert torch.equal(fast(x, y), module(x, y))
    assert torch.equal(fast(x, y, y), module(x, y, y))
    assert torch.equal(fast(x, y=y), module(x, y=y))
    assert torch.equal(fast(x, memory=y), module(x, memory=y))
    assert torch.equal(fast(x, memory=None, y=y), module(x, y=y))


@slow
def test_several_sets_each_have_their_program() -> None:
    module = Remembers()
    pairs = {rows: (memory(rows), memory(rows)) for rows in (1, 2, 8)}
    calls = [((torch.randn(rows, 4),), {"memory": mine}) for rows, (mine, _) in pairs.items()]
    fast = compiled(module, backend="eager").warmup_many(calls)
    with fast.counters.expect(calls_capture=12):
        for _ in range(4):
            for rows, (mine, right) in pairs.items():
                x = torch.randn(rows, 4)
                torch.testing.assert_close(fast(x, memory=mine), module(x, right))
    with pytest.raises(sizewise.SizewiseError):
        fast(torch.randn(1, 4), memory=pairs[2][0])


@slow
def test_a_tensor_of_the_state_that_is_replaced() -> None:
    module, mine, right = Remembers(), memory(), memory()
    fast = compiled(module, backend="eager").warmup(torch.randn(2, 4), memory=mine)
    x = torch.randn(2, 4)
    torch.testing.assert_close(fast(x, memory=mine), module(x, right))
    mine["table"] = torch.zeros(2, 16, 4)
    right["table"] = torch.zeros(2, 16, 4)
    with fast.counters.expect(calls_capture=0, calls_program=1):
        torch.testing.assert_close(fast(x, memory=mine), module(x, right))
    fast.refresh()
    with fast.counters.expect(calls_capture=1):
        torch.testing.assert_close(fast(x, memory=mine), module(x, right))
    mine["table"] = torch.zeros(2, 32, 4)
    with pytest.raises(sizewise.SizewiseError, match="SW503"):
        fast(x, memory=mine)
    assert fast.state == "stale"


class Two(nn.Module):
    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        memory.mul_(0.5).add_(x.sum(0))
        return x + memory


@slow
def test_a_size_that_changes_is_not_filled_up_into_the_state() -> None:
    mine, right = torch.zeros(4), torch.zeros(4)
    dims = {"x": {0: Dim("rows", 1, 8)}}
    fast = sizewise.compile(
        Two().eval(), dynamic_shapes=dims, persistent=("memory",), cudagraph_capture_sizes=[4, 8]
    ).warmup(torch.randn(3, 4), memory=mine)
    for rows in (1, 4, 5, 8, 3, 2, 4):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(fast(x, memory=mine), Two()(x, right))
        torch.testing.assert_close(mine, right)
    assert fast.counters.calls_capture >= 3


class Noted:
    def __init__(self) -> None:
        self.table = torch.zeros(4)
        self.calls = 0


class CountsInPython(nn.Module):
    def forward(self, x: torch.Tensor, memory: Noted) -> torch.Tensor:
        memory.calls += 1
        return x + memory.calls


class Returns(nn.Module):
    def forward(self, x: torch.Tensor, memory: Noted) -> tuple[torch.Tensor, Noted]:
        memory.table.add_(x)
        return x * 2, memory


@slow
def test_python_state_that_moves_is_refused_by_name() -> None:
    with pytest.raises(SideEffect, match="calls"):
        compiled(CountsInPython().eval()).warmup(torch.randn(4), memory=Noted())


@slow
def test_a_persistent_argument_may_be_returned() -> None:
    mine = Noted()
    fast = compiled(Returns().eval(), backend="eager").warmup(torch.randn(4), memory=mine)
    x = torch.randn(4)
    doubled, same = fast(x, memory=mine)
    assert same is mine and torch.equal(doubled, x * 2) and torch.equal(mine.table, x)


@slow
def test_a_program_that_returns_it_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIZEWISE_DISABLE_COMPILE_CACHE")
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    for traces, hits in ((1, 0), (0, 1)):
        mine = Noted()
        fast = compiled(Returns().eval()).warmup(torch.randn(4), memory=mine)
        assert (fast.counters.traces, fast.counters.cache_hits) == (traces, hits)
        x = torch.randn(4)
        with fast.counters.expect(calls_capture=1):
            doubled, same = fast(x, memory=mine)
        assert same is mine and torch.equal(doubled, x * 2) and torch.equal(mine.table, x)


@slow
def test_calls_of_several_threads_come_one_after_another() -> None:
    module, mine, right = Remembers(), memory(), memory()
    mine["table"], right["table"] = torch.zeros(2, 512, 4), torch.zeros(2, 512, 4)
    fast = compiled(module, backend="eager").warmup(torch.randn(2, 4), memory=mine)
    x = torch.randn(2, 4)

    def many() -> None:
        with torch.no_grad():
            for _ in range(100):
                fast(x, memory=mine)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(400):
        module(x, right)
    torch.testing.assert_close(mine, right)


@slow
def test_the_end() -> None:
    mine = memory()
    fast = compiled(Remembers(), backend="eager").warmup(torch.randn(2, 4), memory=mine)
    assert fast.state == "ready" and fast.built is not None and fast.report().captures
    with pytest.raises(NotAvailable, match="persistent"):
        fast.save("nowhere")
    fast.reset()
    assert fast.state == "new" and fast.built is None
    fast(torch.randn(2, 4), memory=mine)
    assert fast.state == "ready"
    fast.close()
    with pytest.raises(Closed):
        fast(torch.randn(2, 4), memory=mine)


def test_what_is_no_such_argument() -> None:
    for bad in ("memory", ("nope",), (1,), ("memory", "memory"), {"memory"}):
        with pytest.raises(BadOption, match="persistent="):
            sizewise.compile(Remembers(), persistent=bad)
    with pytest.raises(NotAvailable):
        sizewise.compile(lambda x, memory: x, persistent=("memory",))
    with pytest.raises(NotAvailable):
        sizewise.compile(Remembers(), persistent=("memory",), inplace=True)


# -- decoders


def decoders() -> dict[str, tuple[Any, Any]]:
    own = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 512}
    gemma = transformers.Gemma3TextConfig(**TINY, head_dim=16, sliding_window=64)
    return {
        "Llama": (transformers.LlamaConfig(**TINY), transformers.LlamaForCausalLM),
        "Qwen3": (transformers.Qwen3Config(**TINY, head_dim=16), transformers.Qwen3ForCausalLM),
        "Gemma3": (gemma, transformers.Gemma3ForCausalLM),
        "GPT-2": (transformers.GPT2Config(**own, bos_token_id=0, eos_token_id=0), transformers.GPT2LMHeadModel),
    }


def argument(model: Any) -> str:
    """What transformers calls the argument of a cache; it was ``past_key_values`` before 5.20 or so."""
    known = inspect.signature(getattr(model, "__wrapped__", model).forward).parameters
    return next(name for name in ("cache", "past_key_values") if name in known)


def step(model: Any, ids: torch.Tensor, cache: StaticCache) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids, **{argument(model): cache}).logits
    return logits


def cache_for(config: Any) -> StaticCache:
    """Layers of full length: those of a sliding window count in Python, and its mask does what they do."""
    config = copy.deepcopy(config)
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * config.num_hidden_layers
        config.sliding_window = None
    return StaticCache(config=config, max_cache_len=LENGTH)


@slow
@pytest.mark.parametrize("name", decoders())
def test_a_decoder_with_a_static_cache_step_by_step(name: str) -> None:
    config, kind = decoders()[name]
    model = kind(config).eval()
    batches = (1, 4) if name == "Llama" else (2,)
    caches = {batch: (cache_for(config), cache_for(config)) for batch in batches}
    calls = []
    for batch, pair in caches.items():
        prompt = torch.randint(0, 256, (batch, 5))
        for cache in pair:
            step(model, prompt, cache)
        calls.append(((), {"input_ids": torch.randint(0, 256, (batch, 1)), argument(model): pair[0]}))
    fast = sizewise.compile(model, dynamic_shapes={}, persistent=(argument(model),)).warmup_many(calls)
    for mine, _ in caches.values():
        assert mine.layers[0].cumulative_length == 5, "the warm-up left the state as it was"
    with fast.counters.expect(calls_capture=STEPS * len(batches), calls_program=0, calls_eager=0):
        for _ in range(STEPS):
            for batch, (mine, right) in caches.items():
                ids = torch.randint(0, 256, (batch, 1))
                seen, wanted = step(fast, ids, mine), step(model, ids, right)
                torch.testing.assert_close(seen, wanted, rtol=1e-4, atol=1e-5)
    for mine, right in caches.values():
        for one, two in zip(mine.layers, right.layers, strict=True):
            torch.testing.assert_close(one.keys, two.keys, rtol=1e-4, atol=1e-5)
            assert one.cumulative_length == two.cumulative_length == 5 + STEPS


@slow
def test_two_sequences_in_a_batch_do_not_mix() -> None:
    config, kind = decoders()["Llama"]
    model = kind(config).eval()
    both, first, second = (cache_for(config) for _ in range(3))
    prompt = torch.randint(0, 256, (2, 4))
    for rows, cache in ((prompt, both), (prompt[:1], first), (prompt[1:], second)):
        step(model, rows, cache)
    fast = sizewise.compile(model, dynamic_shapes={}, persistent=(argument(model),))
    fast.warmup(input_ids=torch.randint(0, 256, (2, 1)), **{argument(model): both})
    for _ in range(20):
        ids = torch.randint(0, 256, (2, 1))
        seen = step(fast, ids, both)
        torch.testing.assert_close(seen[:1], step(model, ids[:1], first), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(seen[1:], step(model, ids[1:], second), rtol=1e-4, atol=1e-5)


@slow
def test_a_stock_cache_of_a_sliding_window_is_refused_by_its_counter() -> None:
    config, kind = decoders()["Gemma3"]
    model, cache = kind(config).eval(), StaticCache(config=config, max_cache_len=LENGTH)
    step(model, torch.randint(0, 256, (2, 5)), cache)
    with pytest.raises(SideEffect, match="cumulative_length_int"):
        sizewise.compile(model, dynamic_shapes={}, persistent=(argument(model),)).warmup(
            input_ids=torch.randint(0, 256, (2, 1)), **{argument(model): cache}
        )


@slow
def test_the_example_generates_the_same_tokens() -> None:
    example = Path(__file__).parent.parent / "examples" / "generate.py"
    command = [sys.executable, str(example), "--layers", "1", "--tokens", "6", "--skip", "torch.compile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the tokens are the same" in done.stdout and "calls_capture=5" in done.stdout
    assert done.stdout.count("tokens/s") == 2
