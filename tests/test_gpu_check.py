"""The check that is made on a machine with a GPU, rehearsed on the CPU: its steps run, and a failing one fails it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "scripts" / "gpu_check.py"
BLOCKED = ("pydantic", "platformdirs", "typer", "rich", "transformers")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_rehearsal_passes_with_torch_alone() -> None:
    blocked = f"import sys, runpy; sys.modules.update(dict.fromkeys({BLOCKED!r})); sys.argv = ['x', '--rehearse']; "
    code = blocked + f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["| step | outcome | |", "|---|---|---|"] and all(line.count("|") == 4 for line in lines[2:])
    cells = {line.split(" | ")[0].strip("| "): line.split(" | ")[1].strip() for line in lines[2:]}
    assert {"date", "versions", "GPU", "equal to eager", "pool memory", "failed capture", "illegal times"} <= set(cells)
    assert "| compiled module | passed | left out: pydantic is not installed |" in lines
    assert torch.__version__ in cells["versions"] and cells["all"] == "passed" and "FAILED" not in done.stdout
    assert len([name for name in cells if name.startswith("2 layers")]) == 4


def test_a_step_that_fails_is_in_the_table_and_in_the_exit_code(
    check: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(rig: Any) -> str:
        check.close(torch.ones(3), torch.ones(3) * 1.1)
        return "not reached"

    monkeypatch.setattr(check, "benchmark", lambda rig: [("benchmark", "1 us", "")])
    assert check.main(["--rehearse"], steps=(wrong, check.addresses)) == 1
    said = capsys.readouterr().out
    assert "| wrong | FAILED | Failed: differs from eager mode by 9.1e-02 |" in said
    assert "| addresses | passed | another address: SW631 |" in said and "| all | FAILED |" in said


def test_the_compiled_module_where_pydantic_is_installed(
    check: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "benchmark", lambda rig: [])
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    assert check.main(["--rehearse"], steps=(check.compiled_module,)) == 0
    assert "| compiled module | passed | 8 captures, " in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_it_says_so(check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 1
    assert "no CUDA device" in capsys.readouterr().err
