"""One decode step of a Llama with a static cache, replayed, against eager mode and torch.compile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import sizewise

from . import harness

LENGTH, PROMPT = 256, 5
_SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
_LARGE = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4}


@torch.no_grad()
def run(quick: bool = False) -> harness.Result:
    torch.set_num_threads(1)
    rounds = 10 if quick else 60
    rows = _compared(24 if not quick else 4, _SMALL, 1, rounds, (5.0, 8.0), (2.0, 3.0))
    for batch in (1, 4) if not quick else ():
        rows += _compared(12, _LARGE, batch, rounds, (1.15, 1.3), (1.0, 1.1))
    notes = [
        f"LlamaForCausalLM with random weights, vocabulary 256, StaticCache of {LENGTH} tokens; each contestant has a "
        "cache of its own, and its counter is set back before each round. Every step of Sizewise's replayed a capture, "
        f"by its counters; its logits were compared with eager's. Median of {rounds} interleaved rounds of 8 steps, "
        "CPU time, one thread. torch.compile with dynamic=True, whole model.",
    ]
    return harness.Result("decode_step", "A decode step", "the other", rows, notes)


def _compared(
    layers: int,
    sizes: dict[str, int],
    batch: int,
    rounds: int,
    eager: tuple[float, float],
    compiled: tuple[float, float],
) -> list[harness.Row]:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(num_hidden_layers=layers, vocab_size=256, max_position_embeddings=512, **sizes)
    model: Any = LlamaForCausalLM(config).eval()
    name = next(name for name in ("cache", "past_key_values") if name in inspect.signature(model.forward).parameters)
    prompt, ids = torch.randint(0, 256, (batch, PROMPT)), torch.randint(0, 256, (batch, 1))
    caches = {who: StaticCache(config=config, max_cache_len=LENGTH) for who in ("ours", "torch.compile", "eager")}
    for cache in caches.values():
        model(input_ids=prompt, **{name: cache})
    fast = sizewise.compile(model, dynamic_shapes={}, persistent=(name,), cudagraph_mode="FULL")
    fast.warmup(input_ids=ids, **{name: caches["ours"]})
    functions = {"ours": fast, "torch.compile": torch.compile(model, dynamic=True), "eager": model}
    steps = {who: _step(function, ids, name, caches[who]) for who, function in functions.items()}
    for who in ("ours", "torch.compile"):
        steps[who](), steps[who]()
        _set_back(caches[who])
    wanted = steps["eager"]().logits
    torch.testing.assert_close(steps["ours"]().logits, wanted, rtol=1e-3, atol=1e-4)
    rounds_of = {who: _round(step, caches[who]) for who, step in steps.items()}
    with fast.counters.expect(calls_capture=8 * (rounds + 1), calls_program=0, calls_eager=0):
        medians = harness.interleaved(rounds_of, rounds, 1)
    label = f"{layers} layers, hidden {sizes['hidden_size']}, batch {batch}"
    ours = medians["ours"] / 8 * 1e6
    return [
        harness.Row(f"{label}, against eager", ours, medians["eager"] / 8 * 1e6, "us", *eager),
        harness.Row(f"{label}, against torch.compile", ours, medians["torch.compile"] / 8 * 1e6, "us", *compiled),
    ]


def _step(function: Any, ids: Tensor, name: str, cache: Any) -> Callable[[], Any]:
    return lambda: function(input_ids=ids, **{name: cache})


def _set_back(cache: Any) -> None:
    for layer in cache.layers:
        layer.cumulative_length.fill_(PROMPT)


def _round(step: Callable[[], Any], cache: Any) -> Callable[[], None]:
    def steps() -> None:
        _set_back(cache)
        for _ in range(8):
            step()

    return steps
