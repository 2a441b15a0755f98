"""Programs kept between processes: what a hit gives, what is built in spite of the cache, what is said."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise.cache import open_store

from .program_cache_support import ROOT, Net, asked, difference, folder, in_that_folder, ready

__all__ = ["folder", "in_that_folder"]
pytestmark = pytest.mark.slow


def test_a_hit_traces_and_compiles_nothing_and_gives_the_same_bits() -> None:
    torch.manual_seed(3)
    module = Net()
    fast = ready(module)
    assert (fast.counters.cache_hits, fast.counters.traces, fast.counters.compilations) == (1, 0, 0)
    assert fast.report().cache["hit"]
    for rows in (1, 3, 16):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), module(x))


def test_a_hit_can_be_refreshed_saved_and_reported(tmp_path: Path) -> None:
    module = Net()
    fast = ready(module)
    assert fast.report().guards
    assert [size["verdict"] for size in fast.report().sizes]
    fast.save(tmp_path / "net.sizewise")
    again = sizewise.load(tmp_path / "net.sizewise", module)
    x = torch.randn(5, 8)
    assert torch.equal(again(x), fast(x))
    assert fast.refresh().counters.cache_hits == 2
    with pytest.raises(sizewise.errors.state.NotWarm, match="from a bundle"):
        again.refresh()


def test_turned_off_it_neither_looks_nor_keeps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "1")
    before = len(open_store().entries())
    fast = ready(Net())
    assert (fast.counters.cache_hits, fast.counters.cache_misses, fast.counters.traces) == (0, 0, 1)
    assert len(open_store().entries()) == before
    assert fast.report().cache["why"] == "the cache is turned off"


def test_required_warm_a_hit_serves_and_a_miss_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    assert ready(Net()).counters.cache_hits == 1
    with pytest.raises(sizewise.errors.state.NotWarm, match=r"it has to be built \(.*allows to load only"):
        ready(Net(scale=7.0))


def test_what_cannot_be_written_is_built_and_said(caplog: pytest.LogCaptureFixture) -> None:
    fast = ready(Net(), backend="eager")
    assert fast.counters.traces == 1
    assert "it is not kept: it needs piece 0, for which eager makes no code" in fast.report().cache["why"]


def script(place: Path, body: str, helper: str = "def act(x):\n    return x.relu()\n") -> Path:
    place.mkdir(exist_ok=True)
    (place / "helper.py").write_text(helper)
    (place / "app.py").write_text(
        textwrap.dedent(
            """
            import json, os, sys
            import torch
            from torch import nn
            import helper
            torch.set_num_threads(1)
            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.one = nn.Linear(8, 8)
                def forward(self, x):
                    return helper.act(self.one(x)) * BODY
            import sizewise
            from sizewise import Dim
            torch.manual_seed(0)
            model = Model().eval()
            x = torch.randn(3, 8)
            fast = sizewise.compile(model, dynamic_shapes={"x": {0: Dim("batch", 1, 16)}})
            fast.warmup(x)
            with torch.no_grad():
                same = torch.allclose(fast(x), model(x), atol=1e-5)
            stack = sorted(m for m in sys.modules if m in ("torch._dynamo", "torch._inductor", "sympy", "pydantic"))
            print(json.dumps({"same": same, "stack": stack, **fast.counters.as_dict(), "cache": dict(
                hit=all(one.hit for one in fast.built.lookups), why=fast.built.lookups[0].why)}))
            """
        ).replace("BODY", body)
    )
    return place / "app.py"


def run(path: Path, folder: Path, **environment: str) -> dict[str, Any]:
    variables = {
        **os.environ,
        "SIZEWISE_CACHE_DIR": str(folder),
        "SIZEWISE_DISABLE_COMPILE_CACHE": "0",
        "PYTHONPATH": str(ROOT),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, str(path)], env=variables, cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**answer, "log": done.stderr}


def test_a_second_process_needs_no_compiler(tmp_path: Path) -> None:
    first = run(script(tmp_path / "app", "2"), tmp_path / "cache")
    assert (first["same"], first["cache"]["hit"], first["traces"]) == (True, False, 1)
    moved = tmp_path / "moved"
    (tmp_path / "app").rename(moved)
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    # Neither a compiler on the path, nor anything in Inductor's own cache.
    bare = {"PATH": "", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "empty"), "SIZEWISE_REQUIRE_WARM": "1"}
    second = run(moved / "app.py", tmp_path / "elsewhere", **bare)
    assert (second["same"], second["cache"]["hit"], second["traces"], second["stack"]) == (True, True, 0, [])
    assert not (tmp_path / "empty").exists()


def test_a_folder_that_cannot_be_used_is_said_once_and_everything_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(open_to_all))
    with caplog.at_level(logging.WARNING, logger="sizewise"):
        fast = ready(Net(scale=9.0))
    assert fast.counters.traces == 1
    assert len([record for record in caplog.records if "SW604" in record.getMessage()]) == 1
    x = torch.randn(2, 8)
    torch.testing.assert_close(fast(x), fast.__wrapped__(x))


def test_a_setting_that_has_no_key_is_built_and_said() -> None:
    fast = ready(Net(), splitting_ops=[nn.Linear], backend="eager")
    assert fast.counters.traces == 1
    assert "no key can be made" in fast.report().cache["why"]
    assert "Linear" in fast.report().config["splitting_ops"]


def test_what_cannot_be_kept_for_any_reason_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise OSError("the library is gone")

    monkeypatch.setattr("sizewise.warm.manifest.make", fails)
    fast = ready(Net(scale=11.0), backend="eager")
    x = torch.randn(3, 8)
    torch.testing.assert_close(fast(x), fast.__wrapped__(x))
    assert "it is not kept: OSError: the library is gone" in fast.report().cache["why"]


def test_who_asks_is_told_of_damage_and_takes_nothing_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(copy))
    for entry in open_store().entries():
        for name in entry.names:
            if name.startswith("piece"):
                os.truncate(entry.layout.blob(entry.facts[name].sha256), 1)
    before = [entry.id for entry in open_store().entries()]
    name, there, here = difference(asked(Net()))
    assert (name, there) == ("its files", "as they were published") and "has 1 bytes" in here
    assert [entry.id for entry in open_store().entries()] == before
