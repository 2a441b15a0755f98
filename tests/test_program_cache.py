"""Programs kept between processes: what is a hit, what is a miss, and which factor is named."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.cache import open_store
from sizewise.saved import keys, machine
from sizewise.warm import Why, why

pytestmark = pytest.mark.slow

SHAPES = {"x": {0: Dim("batch", 1, 16)}}
ROOT = Path(sizewise.__file__).parent.parent


class Net(nn.Module):
    def __init__(self, hidden: int = 12, scale: float = 2.0, label: str = "first") -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, hidden), nn.Linear(hidden, 4)
        self.scale, self.label = scale, label

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x))) * self.scale


class Other(Net):
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with the programs of one `Net`."""
    place = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIZEWISE_CACHE_DIR", str(place))
        patch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")
        torch.set_num_threads(1)
        assert ready(Net()).counters.cache_misses == 1
        yield place


@pytest.fixture(autouse=True)
def in_that_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(folder))
    monkeypatch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")


def compiled(module: nn.Module, **options: Any) -> CompiledModule:
    fast: CompiledModule = sizewise.compile(module.eval(), **{"dynamic_shapes": SHAPES, **options})
    return fast


def ready(module: nn.Module, **options: Any) -> CompiledModule:
    return compiled(module, **options).warmup(torch.randn(4, 8))


def asked(module: nn.Module, x: torch.Tensor | None = None, **options: Any) -> Why:
    fast = compiled(module, **options)
    (answer,) = why(*fast._sw_plan([((torch.randn(4, 8) if x is None else x,), {})]), open_store())
    return answer


def difference(answer: Why) -> tuple[str, str, str]:
    assert not answer.hit
    return answer.differences[0]


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


NOTHING_TO_THE_CODE = {
    "other weights": lambda: Net(),
    "an attribute that forward does not read": lambda: Net(label="layers.7"),
    "a rank": lambda: Net(label="rank 3 of 8"),
}


@pytest.mark.parametrize("what", NOTHING_TO_THE_CODE)
def test_a_hit_in_spite_of(what: str) -> None:
    assert asked(NOTHING_TO_THE_CODE[what]()).hit


def test_a_hit_for_another_example_size() -> None:
    assert asked(Net(), torch.randn(9, 8)).hit


def test_a_hit_whatever_was_set_that_makes_no_code() -> None:
    assert asked(Net(), max_programs=5).hit


def with_hook() -> nn.Module:
    module = Net()
    module.first.register_forward_hook(lambda *_: None)
    return module


def tied() -> nn.Module:
    module = Net(8)
    module.last = nn.Linear(8, 8)
    module.first.weight = module.last.weight
    return module


def of_another_forward() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x))) * self.scale

    cls = type("Net", (Net,), {"forward": forward, "__module__": Net.__module__, "__qualname__": "Net"})
    return cls()


MODULES = {
    "class": (lambda: Other(), "class", "Net", "Other"),
    "shape": (lambda: Net(13), "tensors", "(12, 8)", "(13, 8)"),
    "dtype": (lambda: Net().double(), "tensors", "float32", "float64"),
    "attribute": (lambda: Net(scale=3.0), "scale", "2.0", "3.0"),
    "kind of attribute": (lambda: Net(scale=2), "scale", "float 2.0", "int 2"),
    "hook": (with_hook, "first._forward_hooks", "of 0", "of 1"),
    "forward": (of_another_forward, "Net.forward", "function", "function"),
}


@pytest.mark.parametrize("what", MODULES)
def test_a_miss_names_what_differs_in_the_module(what: str) -> None:
    make, factor, cached, here = MODULES[what]
    module = make()
    x = torch.randn(4, 8, dtype=next(module.parameters()).dtype)
    found = {name: (before, now) for name, before, now in asked(module, x).differences}
    before, now = found[factor]
    assert (cached in before, here in now) == (True, True), found


def test_a_miss_names_tied_weights() -> None:
    module = Net(8)
    module.last = nn.Linear(8, 8)
    ready(module)
    name, before, now = difference(asked(tied()))
    assert name == "tensors"
    assert "is first.weight" in now
    assert "is first.weight" not in before


OPTIONS = {
    "dims": ({"dynamic_shapes": {"x": {0: Dim("batch", 1, 17)}}}, "dims"),
    "dim's name": ({"dynamic_shapes": {"x": {0: Dim("rows", 1, 16)}}}, "argument tensors"),
    "backend": ({"backend": "eager"}, "config"),
    "ranges": ({"compile_ranges_endpoints": [8]}, "config"),
    "Inductor's options": ({"inductor_compile_config": {"cpp.simdlen": 256}}, "config"),
    "self-test": ({"self_test": False}, "config"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_a_miss_names_the_option(what: str) -> None:
    options, factor = OPTIONS[what]
    names = [name for name, _, _ in asked(Net(), **options).differences]
    assert factor in names


def test_a_miss_names_the_arguments() -> None:
    assert difference(asked(Net().double(), torch.randn(4, 8).double()))[0] in ("argument tensors", "tensors")
    fast = compiled(Net(), dynamic_shapes={})
    (answer,) = why(*fast._sw_plan([((torch.randn(4, 8),), {})]), open_store())
    assert "dims" in [name for name, _, _ in answer.differences]


def test_a_miss_names_the_state_around_the_call() -> None:
    torch.set_num_threads(2)
    try:
        assert difference(asked(Net())) == ("the number of threads", "1", "2")
    finally:
        torch.set_num_threads(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert difference(asked(Net()))[0] == "autocast"


PARTS = {
    "torch": "2.0.0",
    "sizewise": "0.0.0",
    "python": "cpython-39",
    "instruction_set": "AVX2 of old",
    "platform": "Plan9 mips",
    "format": "0",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_miss_names_the_version(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.versions()
    monkeypatch.setattr(machine, "versions", lambda: {**here, part: PARTS[part]})
    assert difference(asked(Net())) == (part, here[part], PARTS[part])


def test_a_miss_names_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor_flags", lambda: ["sse2"])
    assert difference(asked(Net()))[0] == "processor"


def test_a_miss_names_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "digests", lambda passes: {"fuse": "0123"})
    assert difference(asked(Net()))[0] == "passes"


def test_a_miss_names_torchs_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    assert difference(asked(Net()))[0] == "environment"
    monkeypatch.delenv("TORCHINDUCTOR_FREEZING")
    from torch._inductor import config

    with config.patch({"epilogue_fusion": not config.epilogue_fusion}):
        assert difference(asked(Net()))[0] == "inductor"


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


def test_source_that_changed_is_built_anew_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert not run(script(tmp_path / "app", "2"), folder)["cache"]["hit"]
    path = script(tmp_path / "app", "2", "def act(x):\n    return x.tanh()\n")
    changed = run(path, folder)
    assert (changed["same"], changed["cache"]["hit"]) == (True, False)
    assert "Source code has changed since the last compilation. Recompiling the model." in changed["log"]
    assert "the source of helper was" in changed["cache"]["why"]
    own = run(script(tmp_path / "app", "3"), folder)
    assert (own["same"], own["cache"]["hit"]) == (True, False)
    # Both versions of the helper are kept beside each other.
    assert run(script(tmp_path / "app", "2"), folder)["cache"]["hit"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "empty"])
def test_damaged_files_are_built_anew(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    path = script(tmp_path / "app", "2")
    run(path, folder)
    blobs = sorted((folder / "programs-1" / "blobs").rglob("*"), key=lambda p: p.stat().st_size)
    for blob in [file for file in blobs if file.is_file()]:
        data = bytearray(blob.read_bytes())
        if damage == "delete":
            blob.unlink()
            continue
        data[len(data) // 2] ^= 0xFF
        blob.write_bytes({"truncate": bytes(data[: len(data) // 2]), "flip": bytes(data), "empty": b""}[damage])
    again = run(path, folder)
    assert (again["same"], again["cache"]["hit"]) == (True, False)
    assert run(path, folder)["cache"]["hit"]


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    folder, path = tmp_path / "cache", script(tmp_path / "app", "5")
    variables = {
        **os.environ,
        "SIZEWISE_CACHE_DIR": str(folder),
        "SIZEWISE_DISABLE_COMPILE_CACHE": "0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(path)]
    running = [
        subprocess.Popen(
            command, env=variables, cwd=path.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    assert sorted(answer["traces"] for answer in answers) == [0, 0, 0, 1]
    assert all(answer["same"] for answer in answers)


def test_a_builder_that_is_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    folder, path = tmp_path / "cache", script(tmp_path / "app", "6")
    variables = {
        **os.environ,
        "SIZEWISE_CACHE_DIR": str(folder),
        "SIZEWISE_DISABLE_COMPILE_CACHE": "0",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        [sys.executable, str(path)],
        env=variables,
        cwd=path.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    locks = folder / "programs-1" / "locks"
    deadline = time.monotonic() + 120
    while not (locks.is_dir() and any(locks.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    answer = run(path, folder)
    assert (answer["same"], answer["traces"]) == (True, 1)
    assert run(path, folder)["cache"]["hit"]


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
