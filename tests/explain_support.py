"""What the tests of explaining share: a small index, and how an answer is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sizewise.errors.record import pattern_of, slug_of
from sizewise.reference.explain import Answer
from sizewise.reference.explain.paste import read
from sizewise.reference.explain.told import Told
from sizewise.reference.store import Distribution, Site, Store, Stored

LORA = "Loading lora {name} failed: No adapter found for {path}"
MEMORY = (
    "To serve at least one request with the model's max seq len ({a}), ({b} GiB KV cache is needed, which is larger "
    "than the available KV cache memory ({c} GiB). Try increasing `gpu_memory_utilization` (which also controls CPU "
    "memory) or decreasing `max_model_len` when initializing the engine. See the documentation for more details."
)
STATES = "expected to be in states {states} but current state is {state}"
RECORDS = [
    # kind, class, template, path, function, condition
    ("raise", "RuntimeError", "Engine core failed to start. See root cause above.", "vllm/v1/utils.py", "wait", "died"),
    ("raise", "ValueError", LORA, "vllm/lora/worker_manager.py", "Manager._load_adapter", "path is None"),
    ("raise", "ValueError", MEMORY, "vllm/v1/core/kv.py", "check", "needed > available"),
    ("raise", "ValueError", STATES, "torch/fsdp.py", "_assert_in", "state not in states"),
    ("raise", "ValueError", "{a} does not support {b}", "vllm/x.py", "check", ""),
    ("raise", "RuntimeError", "mat1 and mat2 must have the same dtype", "torch/_meta.py", "meta_mm", ""),
    ("raise", "AttributeError", "'{a}' object has no attribute '{b}'", "torch/nn/module.py", "Module.__getattr__", ""),
    ("assert", "AssertionError", "vr must not be None for symbol {k}", "torch/_inductor/x.py", "evaluate", "vr"),
    (
        "assert",
        "AssertionError",
        "assert output == other_output",
        "vllm/e.py",
        "_run_workers",
        "output == other_output",
    ),
    (
        "raise",
        "torch._dynamo.exc.Unsupported",
        "Data-dependent branching\n  Explanation: {x}",
        "torch/_dynamo/s.py",
        "j",
        "",
    ),
    ("raise", "torch.fake.DataDependentOutputException", "{func}", "torch/fake_impls.py", "data_dep", ""),
    ("raise", "RuntimeError", "stack expects each tensor to be equal size", "torch/_refs/__init__.py", "check", ""),
    ("log", None, "Cannot use FlashAttention-2 backend for head size {size}.", "vllm/selector.py", "choose", ""),
    ("warn", "UserWarning", "Detected call of `step()` before `optimizer.step()`.", "torch/lr.py", "step", ""),
]
VLLM_FRAME = '  File "/env/lib/python3.12/site-packages/vllm/lora/worker_manager.py", line 138, in _load_adapter'
LOGGED = "(EngineCore_DP0 pid=1) ERROR 12-15 18:57:10 [core.py:918] "
NO_ADAPTER = "ValueError: Loading lora adapter failed: No adapter found for /data/checkpoint-57"


def stored(number: int, row: tuple[Any, ...]) -> Stored:
    kind, error_class, template, path, qualname, condition = row
    package = Distribution(path.split("/")[0], "1.0", "/nowhere", "", None, "2026-01-01T00:00:00Z")
    site = Site(path, 100 + number, qualname, condition)
    pattern, slug = pattern_of(template), slug_of(template)
    return Stored(f"{number:016x}", kind, error_class, template, pattern, slug, len(template), (site,), package)


def fill(store: Store) -> Store:
    records = [stored(number, row) for number, row in enumerate(RECORDS)]
    for name in ("torch", "vllm"):
        mine = [record for record in records if record.distribution.name == name]
        store.replace(mine[0].distribution, mine)
    return store


def told(text: str) -> list[Told]:
    return list(read(text).told)


def template(answer: Answer) -> str | None:
    return answer.match.record.errorMessage if answer.match else None


def ends(run: Callable[[], Any]) -> bool:
    """Whether ``run`` takes seconds rather than minutes, as a pattern that goes back and forth would.

    No measure of speed: the time is this thread's, of the quickest of three, since a busy machine and the threads of
    other tests take theirs meanwhile.
    """
    for _ in range(3):
        started = time.thread_time()
        run()
        if time.thread_time() - started < 5:
            return True
    return False
