"""``python -m benchmarks`` runs all; ``python -m benchmarks NAME ... --quick --json DIR`` some of them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from pathlib import Path

from .harness import Result

NAMES = (
    "cold_minilm",
    "cold_decoder",
    "cold_llama",
    "cold_families",
    "warm_start",
    "ten_processes",
    "never_recompiles",
    "small_calls",
    "minilm_latency",
    "captured_calls",
    "captured_minilm",
    "decode_step",
    "capture_memory",
    "capture_load",
    "captured_families",
    "peers",
    "explain",
    "explain_truth",
)


BY_HAND = ("vllm_cpu",)
"""Not run by this command: they need what has to be installed by hand. Their JSON is part of the page."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which to run; all by default")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works, not for figures")
    parser.add_argument("--json", type=Path, metavar="DIR", help="also write DIR/NAME.json")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in options.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        if options.list:
            print(f"{name:<20} {(module.__doc__ or '').strip().splitlines()[0]}")
            continue
        result = module.run(quick=options.quick)
        print(result.table(), "\n", flush=True)
        if options.json:
            options.json.mkdir(parents=True, exist_ok=True)
            (options.json / f"{name}.json").write_text(json.dumps(result.as_json(), indent=1) + "\n")
    if options.json and not options.list:
        options.json.with_suffix(".md").write_text(page(options.json))


def page(folder: Path) -> str:
    """The tables of all JSON files in ``folder`` as one page, with the machine of each."""
    parts = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks --json docs/benchmarks`. Ratios are baseline / Sizewise, from one run with",
        "interleaved rounds: above 1 Sizewise is faster. Misses are shown as they are.",
    ]
    for name in (*NAMES, *BY_HAND):
        file = folder / f"{name}.json"
        if file.exists():
            data = json.loads(file.read_text())
            machine = data["machine"]
            where = f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, {machine['date']}."
            parts += ["", Result.from_json(data).table(), "", where]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
