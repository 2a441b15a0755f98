"""The benchmarks: that each is there and says what it captures, what tables and pages hold, what parts measure."""

from __future__ import annotations

import ast
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import captured_calls, captured_families, harness
from benchmarks.__main__ import BY_HAND, NAMES, page
from benchmarks.families import FAMILIES
from benchmarks.models import decoder
from sizewise import Dim

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
DEFAULTS = {"families", "never_recompiles", "warm_start"}
"""Benchmarks that leave what is captured to the default, as users do; the last refuses to run with captures."""


@pytest.mark.parametrize("name", [*NAMES, *BY_HAND])
def test_every_benchmark_is_there(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert callable(module.run) and (module.__doc__ or "").strip()


def test_every_benchmark_says_what_it_captures() -> None:
    """Or a benchmark of programs would measure captures where they are the default, and say nothing."""
    silent, seen = set(), 0
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "sizewise.compile":
                seen += 1
                if "cudagraph_mode" not in {keyword.arg for keyword in node.keywords}:
                    silent.add(file.stem)
    assert silent == DEFAULTS and seen > 10


def result() -> harness.Result:
    rows = [
        harness.Row("faster", 1.0, 3.5, "ms", 2.0, 3.0),
        harness.Row("not so much", 1.0, 2.5, "ms", 2.0, 3.0),
        harness.Row("slower", 2.0, 1.0, "ms", 1.0),
        harness.Row("alone", 30.0, None, "us", lower_is_better_limit=25),
    ]
    words = [["model", "why"], ["MLP", "a|b"]]
    return harness.Result("made_up", "Made up", "the other", rows, ["A note."], words)


def test_a_table_says_what_was_met() -> None:
    table = result().table()
    assert "| faster | 1 ms | 3.5 ms | 3.50x | 2.0x | 3.0x | aim met |" in table
    assert "2.50x | 2.0x | 3.0x | floor met |" in table and "0.50x | 1.0x |  | missed |" in table
    assert "| alone | 30 us |  |  | 25 us |  | missed |" in table
    assert "\n\n| model | why |\n|---|---|\n| MLP | a/b |\n\nA note." in table


def test_a_page_holds_the_same_tables(tmp_path: Path) -> None:
    first, second = result(), result()
    first.name, second.name = NAMES[:2]
    old = second.as_json()
    del old["words"]  # as files have it that were written before there were words
    (tmp_path / f"{first.name}.json").write_text(json.dumps(first.as_json()))
    (tmp_path / f"{second.name}.json").write_text(json.dumps(old))
    text = page(tmp_path)
    second.words = []
    assert first.table() in text and second.table() in text


def test_listed_sizes_of_families() -> None:
    assert captured_families.listed({"batch": Dim("batch", 1, 6)}) == [3, 6]
    dims = {"batch": Dim("batch", 1, 6), "seq": Dim("seq", 4, 4)}
    assert captured_families.listed(dims) == {"batch": [3, 6], "seq": [4]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, cells",
    [
        ("MLP", ["2 of 2", "", "batch proved", "4 of 4, 4 replayed"]),
        ("custom operator without a fake", ["refused", "", "", "SW207 NotTraceable"]),
    ],
)
def test_a_line_of_the_families(name: str, cells: list[str]) -> None:
    family = next(item for item in FAMILIES if item.name == name)
    assert captured_families.line(family) == [name, *cells]


@pytest.mark.slow
@torch.no_grad()
def test_a_call_without_its_replay() -> None:
    model = decoder(1)
    fast = captured_calls._ours(model, "FULL")
    other = captured_calls.without_replays(fast)
    ids = torch.randint(0, 128, (3, 1))
    fast(ids + 128)
    with fast.counters.expect(calls_capture=0, calls_program=0, calls_eager=0):
        made = other(ids)
    right = model(ids)
    assert made.shape == right.shape and not torch.allclose(made, right, atol=1e-3), "something ran"
    with fast.counters.expect(calls_capture=1):
        torch.testing.assert_close(fast(ids), right)
    # Where a call does not replay, this raises.
    parts = captured_calls._parts(fast, ids, rounds=2)
    assert set(parts) == {"beyond", "difference", "check", "replay"} and parts["replay"] > 0


@pytest.mark.slow
def test_memory_of_sizes_is_shared() -> None:
    cache: dict[str, Any] = {"cache": os.environ["TORCHINDUCTOR_CACHE_DIR"]}
    answer = harness.fresh("benchmarks.capture_memory", "mlp", "all", **cache)
    assert answer["captures"] == len(answer["each"]) == 16
    assert max(answer["each"]) <= answer["bytes"] < sum(answer["each"])
