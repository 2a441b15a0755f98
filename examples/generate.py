"""Greedy decoding with a static cache: tokens per second of eager mode, torch.compile and Sizewise.

    python examples/generate.py                      # a small Llama with random weights
    python examples/generate.py --model PATH         # a model of transformers from a folder, Gemma 270M say
    python examples/generate.py --tokens 32 --skip torch.compile

The prompt is read by eager mode, which also makes the cache's tensors; then each token is one step of the same shape,
which Sizewise replays from one capture. Weights have to be on disk already: nothing is fetched.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import sizewise


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    model, prompt = _model(options)
    name = next(name for name in ("cache", "past_key_values") if name in inspect.signature(model.forward).parameters)
    length = prompt.shape[1] + options.tokens
    fast = sizewise.compile(model, dynamic_shapes={}, persistent=(name,))
    steps: dict[str, Any] = {"eager": model, "torch.compile": torch.compile(model, dynamic=True), "Sizewise": fast}
    told: dict[str, Tensor] = {}
    print(f"{type(model).__name__}, {options.tokens} tokens, {options.threads} thread(s)")
    with torch.no_grad():
        for who, step in steps.items():
            if who not in options.skip:
                told[who] = _generate(who, model, step, prompt, _cache(model.config, length), name, options.tokens)
    first = next(iter(told.values()))
    same = all(torch.equal(first, tokens) for tokens in told.values())
    print(f"the tokens are {'the same' if same else 'NOT the same'}; calls of Sizewise: {fast.counters}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="the folder of a causal language model; a random one without it")
    parser.add_argument("--prompt", default="The cheapest way to serve a model is", help="for --model")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8, help="of the random model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip", action="append", default=[], choices=["eager", "torch.compile", "Sizewise"])
    return parser.parse_args()


def _model(options: argparse.Namespace) -> tuple[Any, Tensor]:
    import transformers

    if options.model:
        words = transformers.AutoTokenizer.from_pretrained(options.model, local_files_only=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, local_files_only=True)
        return model.eval(), words(options.prompt, return_tensors="pt").input_ids
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(num_hidden_layers=options.layers, vocab_size=256, **sizes)
    return transformers.LlamaForCausalLM(config).eval(), torch.randint(0, 256, (1, 8))


def _cache(config: Any, length: int) -> Any:
    """Layers of full length: those of a sliding window count in Python, and the model's mask does what they do."""
    import transformers

    config = copy.deepcopy(config)
    if getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * config.num_hidden_layers
        config.sliding_window = None
    return transformers.StaticCache(config=config, max_cache_len=length)


def _generate(
    who: str, model: Any, step: Callable[..., Any], prompt: Tensor, cache: Any, name: str, tokens: int
) -> Tensor:
    """The tokens after ``prompt``; prints how fast they came."""
    token = model(input_ids=prompt, **{name: cache}).logits[:, -1:].argmax(-1)
    found = [token]
    began = time.perf_counter()
    if isinstance(step, sizewise.CompiledModule):
        step.warmup(input_ids=token, **{name: cache})
    else:
        # Its first calls compile, and write to the cache that they are given.
        own = copy.deepcopy(cache)
        step(input_ids=token, **{name: own}), step(input_ids=token, **{name: own})
    ready = time.perf_counter()
    for _ in range(tokens - 1):
        token = step(input_ids=token, **{name: cache}).logits[:, -1:].argmax(-1)
        found.append(token)
    rate = (tokens - 1) / (time.perf_counter() - ready)
    print(f"{who:14} {rate:8.1f} tokens/s after {ready - began:5.1f} s of warm-up")
    return torch.cat(found, 1)


if __name__ == "__main__":
    main()
