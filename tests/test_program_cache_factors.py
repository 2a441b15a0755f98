"""What is a factor of a program's key and what is none: a miss names the one, a hit comes in spite of the other."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim
from sizewise.ambient import NAMES
from sizewise.cache import open_store
from sizewise.saved import keys, machine

from .program_cache_support import Net, Other, answer, asked, compiled, difference, folder, in_that_folder, ready

__all__ = ["folder", "in_that_folder"]
pytestmark = pytest.mark.slow


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


NO_CODE: dict[str, dict[str, Any]] = {
    "max_programs": {"max_programs": 5},
    "on_outside": {"on_outside": "eager"},
    "on_stale": {"on_stale": "eager"},
    "name": {"name": "layers.7"},
}


@pytest.mark.parametrize("what", NO_CODE)
def test_a_hit_whatever_was_set_that_makes_no_code(what: str) -> None:
    assert asked(Net(), **NO_CODE[what]).hit


def test_a_hit_has_the_callers_own_name_and_settings() -> None:
    fast = ready(Net(), name="second tower", max_programs=5)
    assert fast.counters.cache_hits == 1 and fast.report().config["max_programs"] == 5
    fast.__wrapped__.scale = 3.0
    with pytest.raises(sizewise.errors.state.Stale, match="second tower"):
        fast(torch.randn(2, 8))
    assert "max_programs" not in ready(Net()).report().config


SURROUNDINGS = {
    "RANK": "3",
    "LOCAL_RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "elsewhere",
    "CUDA_VISIBLE_DEVICES": "1",
    "HOSTNAME": "another",
    "USER": "another",
    "HOME": "/another",
    "SIZEWISE_LOG": "ERROR",
    "TORCHINDUCTOR_CACHE_DIR": "/another",
    "TORCHINDUCTOR_COMPILE_THREADS": "7",
}


@pytest.mark.parametrize("variable", SURROUNDINGS)
def test_a_hit_whatever_the_process_is_told(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, SURROUNDINGS[variable])
    assert asked(Net()).hit


def test_a_hit_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert asked(Net()).hit


def test_a_hit_for_source_at_another_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A checkout that was moved is in `test_a_second_process_needs_no_compiler`.
    module = sys.modules[Net.__module__]
    copy = shutil.copy(str(module.__file__), tmp_path / "elsewhere.py")
    monkeypatch.setattr(module, "__file__", copy)
    assert asked(Net()).hit


def test_a_hit_in_either_mode_of_gradients() -> None:
    module = Net()
    with torch.enable_grad():
        assert asked(module).hit
    with torch.inference_mode():
        assert asked(module).hit
    assert asked(module.requires_grad_(False)).hit


def with_hook() -> nn.Module:
    module = Net()
    module.first.register_forward_hook(lambda *_: None)
    return module


class Wide(nn.Linear):
    pass


def with_other_layer() -> nn.Module:
    module = Net()
    module.last = Wide(12, 4)
    return module


def transposed() -> nn.Module:
    module = Net()
    module.first.weight = nn.Parameter(torch.randn(8, 12).T)
    return module


def with_buffer() -> nn.Module:
    module = Net()
    module.register_buffer("extra", torch.ones(3))
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
    "a layer's class": (with_other_layer, "modules", "Linear", "Wide"),
    "strides": (transposed, "tensors", "(8, 1)", "(1, 12)"),
    "a buffer": (with_buffer, "tensors", "nothing", "buffer extra"),
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
    found = asked(Net(), dynamic_shapes={})
    assert "dims" in [name for name, _, _ in found.differences]


STATES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "the default dtype": (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "the default device": (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
    "deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "float32 matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "the number of threads": (lambda: torch.set_num_threads(2), lambda: torch.set_num_threads(1)),
}


@pytest.mark.parametrize("name", STATES)
def test_a_miss_names_the_state_around_the_call(name: str) -> None:
    module, x = Net(), torch.randn(4, 8)
    change, change_back = STATES[name]
    change()
    try:
        found = asked(module, x)
    finally:
        change_back()
    assert difference(found)[0] == name
    assert asked(module, x).hit


def test_every_state_has_its_test() -> None:
    assert set(NAMES) == {"autocast", *STATES}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert difference(asked(Net())) == ("autocast", "None", "torch.bfloat16")


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


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the programs of `Several`, for one call of its forward."""
    place = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIZEWISE_CACHE_DIR", str(place))
        patch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")
        torch.set_num_threads(1)
        compiled(Several(), dynamic_shapes=BOTH).warmup(torch.ones(4, 8), mask=torch.ones(4, 3), flag=1)
    return place


GAIN = 1.5
BOTH = {name: {0: Dim("batch", 1, 16)} for name in ("x", "mask")}


class Several(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, flag: Any = 1) -> torch.Tensor:
        y = x * GAIN if mask is None else x * GAIN * mask[:, :1]
        return y + 1 if flag else y

    def encode(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, flag: Any = 1) -> torch.Tensor:
        return x * GAIN if mask is None else x * GAIN * mask[:, :1]


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "a value": ({"flag": 2}, "arguments"),
    "a value's type": ({"flag": True}, "arguments"),
    "none in the place of a tensor": ({"mask": None}, "argument tensors"),
    "a size that is no dim": ({"mask": torch.ones(4, 2)}, "argument tensors"),
    "a dtype": ({"mask": torch.ones(4, 3, dtype=torch.float64)}, "argument tensors"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_miss_names_what_differs_in_the_call(what: str, several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(several))
    call: dict[str, Any] = {"mask": torch.ones(4, 3), "flag": 1}
    fast = compiled(Several(), dynamic_shapes=BOTH)
    assert answer(fast, torch.ones(4, 8), **call).hit
    changed, factor = CALLS[what]
    found = answer(fast, torch.ones(4, 8), **{**call, **changed})
    assert not found.hit and factor in [name for name, _, _ in found.differences], found


def test_a_miss_names_the_method_and_a_global(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(several))
    call: dict[str, Any] = {"mask": torch.ones(4, 3), "flag": 1}
    method: Any = sizewise.compile(Several().eval().encode, dynamic_shapes=BOTH)
    found = answer(method, torch.ones(4, 8), **call)
    assert ("method", "__call__", "encode") in found.differences
    monkeypatch.setattr(sys.modules[__name__], "GAIN", 2.5)
    name, before, now = difference(answer(compiled(Several(), dynamic_shapes=BOTH), torch.ones(4, 8), **call))
    assert "GAIN" in name and "1.5" in before and "2.5" in now


def test_a_miss_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    there = keys._device("cuda")
    monkeypatch.setattr(keys, "_device", lambda kind: there)
    assert difference(asked(Net())) == ("device", "cpu", "cuda GPU 9.0")


def test_a_miss_names_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "processor_flags", lambda: ["sse2"])
    assert difference(asked(Net()))[0] == "processor"


def test_a_miss_names_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "digests", lambda passes: {"fuse": "0123"})
    assert difference(asked(Net()))[0] == "passes"


def test_a_miss_names_torchs_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHINDUCTOR_FREEZING", "TORCHDYNAMO_INLINE", "TORCH_COMPILE_X"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert difference(asked(Net()))[0] == "environment"
    assert asked(Net()).hit
    from torch._inductor import config

    with config.patch({"epilogue_fusion": not config.epilogue_fusion}):
        assert difference(asked(Net()))[0] == "inductor"


TESTED = {"class", "method", "modules", "tensors", "arguments", "argument tensors", "dims", "config", "device"}
TESTED |= {"autocast", *STATES, *PARTS, "passes", "processor", "environment", "inductor"}


def test_every_factor_has_its_test(folder: Path) -> None:
    (entry, *_) = open_store(folder).entries()
    assert set(entry.manifest["factors"]) == TESTED
