"""C++ compilers beside Python's work, and what is found out about a machine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import async_compile, codecache, config, cpu_vec_isa

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.compilers import Background
from sizewise.compilers import background as background_room
from sizewise.compilers.machine import SETTING, find_out
from sizewise.errors import build as errors
from sizewise.verify.tolerance import compare

from .command_line import environment

pytestmark = pytest.mark.slow

SHAPES = {"x": {0: Dim("batch", 1, 16)}}


class Steps(nn.Module):
    """Three pieces between products; ``salt`` makes their code new to every cache."""

    def __init__(self, salt: float) -> None:
        super().__init__()
        self.salt = salt
        self.products = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x + self.salt).sin()
        x = (self.products[0](x) * self.salt).cos().softmax(-1)
        return (self.products[1](x) - self.salt).tanh()


def ready(salt: float, **options: Any) -> tuple[Steps, CompiledModule]:
    torch.manual_seed(0)
    module = Steps(salt).eval()
    fast = sizewise.compile(module, dynamic_shapes=SHAPES, splitting_ops=["aten::linear"], **options)
    return module, fast


def check(module: nn.Module, fast: CompiledModule) -> None:
    with torch.no_grad():
        for rows in (1, 5, 16):
            x = torch.randn(rows, 8)
            assert compare(module(x), fast(x), depth=64) is None


def test_kernels_are_promises_until_they_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[bool]] = []
    original = background_room.finish

    def spy(scopes: list[dict[str, Any]]) -> None:
        promised = [isinstance(value, codecache.LambdaFuture) for scope in scopes for value in scope.values()]
        original(scopes)
        seen.append([any(promised), not scopes])

    monkeypatch.setattr("sizewise.compilers.inductor.finish", spy)
    module, fast = ready(0.1234)
    fast.warmup(torch.randn(3, 8))
    assert len(seen) >= 3
    assert [True, True] in seen
    check(module, fast)
    assert fast.report().seconds("link") > 0


def test_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = async_compile.AsyncCompile.cpp_pybinding, async_compile.AsyncCompile.wait
    threads = set(threading.enumerate())
    module, fast = ready(0.2345)
    fast.warmup(torch.randn(3, 8))
    check(module, fast)
    assert (async_compile.AsyncCompile.cpp_pybinding, async_compile.AsyncCompile.wait) == before
    left = [thread.name for thread in set(threading.enumerate()) - threads]
    assert not [name for name in left if name.startswith("sizewise")]


def test_another_threads_torch_compile_goes_on_as_it_does() -> None:
    problems: list[BaseException] = []

    def others() -> None:
        try:
            for number in range(2):
                function = torch.compile(lambda x, n=number: (x * (n + 0.345)).sin().sum(-1))
                x = torch.randn(4, 8)
                torch.testing.assert_close(function(x), (x * (number + 0.345)).sin().sum(-1))
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=others)
    thread.start()
    module, fast = ready(0.3456)
    fast.warmup(torch.randn(3, 8))
    thread.join()
    assert problems == []
    check(module, fast)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def test_a_c_compiler_that_fails_in_the_background_is_told_with_its_piece(tmp_path: Path) -> None:
    refuses = 'case "$*" in *main.cpp*) echo "fatal error: out of luck" >&2; exit 1;; esac; exec g++ "$@"'
    module, fast = ready(0.4567)
    with (
        config.patch({"cpp.cxx": (script(tmp_path / "cxx", refuses),)}),
        pytest.raises(errors.CompileFailed, match=r"the C\+\+ compiler refused the generated code") as seen,
    ):
        fast.warmup(torch.randn(3, 8))
    assert "out of luck" in str(seen.value.__cause__)
    assert Path(__file__).name in seen.value.fields["where"]
    fast.warmup(torch.randn(3, 8))
    check(module, fast)


def test_without_torchs_promises_kernels_are_built_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_room, "_parts", lambda: None)
    module, fast = ready(0.5678)
    fast.warmup(torch.randn(3, 8))
    check(module, fast)


def test_who_sets_compile_threads_gets_inductors_own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise ValueError("the background was used")

    monkeypatch.setattr(Background, "collecting", refuse)
    module, fast = ready(0.6789, inductor_compile_config={"compile_threads": 1})
    fast.warmup(torch.randn(3, 8))
    check(module, fast)


# -- the machine


def fresh_choice() -> None:
    cpu_vec_isa.valid_vec_isa_list.cache_clear()


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    with config.patch({SETTING: None}):
        fresh_choice()
        yield
    fresh_choice()


def test_the_instruction_set_is_the_one_that_inductor_finds(undecided: None) -> None:
    settings = find_out({})
    with config.patch(settings):
        ours = str(cpu_vec_isa.pick_vec_isa())
    fresh_choice()
    assert ours == str(cpu_vec_isa.pick_vec_isa())


def test_a_users_own_setting_is_left_alone(undecided: None) -> None:
    assert find_out({SETTING: False}) == {}
    with config.patch({SETTING: False}):
        fresh_choice()
        assert find_out({}) == {}


def test_a_compiler_that_does_not_know_the_flags_is_asked_as_inductor_does(undecided: None, tmp_path: Path) -> None:
    old = 'case "$*" in *-mavx*) exit 1;; esac; exec g++ "$@"'
    with config.patch({"cpp.cxx": (script(tmp_path / "cxx", old),)}):
        assert find_out({}) == {}


def test_without_a_compiler_nothing_is_claimed(undecided: None) -> None:
    with config.patch({"cpp.cxx": ("/nowhere/cxx",)}):
        assert find_out({}) == {}


def test_it_may_run_beside_a_trace(undecided: None) -> None:
    background = Background(2)
    background.start({})
    _, fast = ready(0.789, backend="eager")
    fast.warmup(torch.randn(3, 8))
    assert background.machine() in ({}, {SETTING: True})
    background.close()
    assert config.cpp.vec_isa_ok is None or os.environ.get("TORCHINDUCTOR_VEC_ISA_OK")


IMPORTS = """
import sys, threading
import torch
import sizewise
seen = []
class Told:
    def find_spec(self, name, path, target=None):
        if name == "setuptools":
            seen.append(threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Told())
shapes = {"input": {0: sizewise.Dim("batch", 1, 8)}}
sizewise.compile(torch.nn.Linear(8, 8).eval(), dynamic_shapes=shapes).warmup(torch.randn(4, 8))
print(seen)
"""


def test_setuptools_is_imported_while_no_other_thread_imports(tmp_path: Path) -> None:
    """It changes `sys.meta_path` meanwhile, and a thread that looks for a module then does not find it."""
    variables = environment(TORCHINDUCTOR_CACHE_DIR=str(tmp_path), SIZEWISE_DISABLE_COMPILE_CACHE="1")
    done = subprocess.run([sys.executable, "-c", IMPORTS], env=variables, capture_output=True, text=True)
    assert done.stdout == "[True]\n", done.stderr
