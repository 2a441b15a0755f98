"""`sizewise doctor`: each check on this machine, and on machines that lack something."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sizewise.cli import doctor as command
from sizewise.cli import machine, toolchain
from sizewise.cli.checkup import FAIL, OK, WARN, Row, examine

from .command_line import APP, process, sizewise


def test_this_machine_is_healthy() -> None:
    done = sizewise("doctor", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == 0 and answer["healthy"] is True
    rows = {row["name"]: row for row in answer["rows"]}
    assert len(rows) == len(command.CHECKS)
    assert all(row["seen"] for row in rows.values())
    assert rows["C++ compiler"]["status"] == OK
    assert "HF_HUB_OFFLINE" in rows["network"]["seen"]


def test_text_names_every_row_and_a_failure_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Row:
        return Row("broken", FAIL, "seen [here]", "do this")

    monkeypatch.setattr(command, "CHECKS", (machine.python, broken))
    done = sizewise("doctor")
    assert done.exit_code == 1
    assert "python" in done.stdout and "seen [here]" in done.stdout and "do this" in done.stdout
    assert json.loads(sizewise("doctor", "--json").stdout)["healthy"] is False


def test_a_check_that_breaks_is_a_row() -> None:
    def broken_check() -> Row:
        raise OSError("no such thing")

    first, second = examine([broken_check, machine.network])
    assert (first.name, first.status) == ("broken check", FAIL) and "no such thing" in first.seen
    assert second.status == OK


@pytest.mark.parametrize(("version", "status"), [((3, 10), FAIL), ((3, 11), OK), ((3, 12), OK), ((3, 14), WARN)])
def test_python_versions(version: tuple[int, int], status: str) -> None:
    assert machine.python(version).status == status


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.10.1", FAIL), ("2.11.0", OK), ("2.13.0+cpu", OK), ("2.14.1", OK), ("2.15.0", FAIL), ("main", FAIL)],
)
def test_torch_versions(version: str, status: str) -> None:
    row = machine.judge_torch(version)
    assert row.status == status
    assert (row.todo == "") == (status == OK)


def test_switches_that_turn_tracing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.switches().status == OK
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    row = machine.switches()
    assert row.status == FAIL and "TORCHDYNAMO_DISABLE" in row.seen


def test_misspelt_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARMTH", "1")
    row = machine.sizewise_variables()
    assert row.status == FAIL and "SIZEWISE_REQUIRE_WARM" in row.todo


def test_optional_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_installed", lambda name: "" if name == "transformers" else "1.0")
    row = machine.optional_packages()
    assert row.status == OK and "transformers absent" in row.seen and "sizewise[demo]" in row.todo


# -- the compiler


@pytest.fixture
def without_compiler(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that finds no C++ compiler, and nothing that was compiled before."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "app.py").write_text(APP)
    return {
        "PATH": str(tmp_path / "empty"),
        "CXX": str(tmp_path / "empty" / "g++"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "SIZEWISE_CACHE_DIR": str(tmp_path / "programs"),
    }


def test_without_a_compiler_the_doctor_points_to_bundles(without_compiler: dict[str, str]) -> None:
    done = process("doctor", "--json", changes=without_compiler)
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 1 and rows["C++ compiler"]["status"] == FAIL
    assert rows["C++ compiler"]["seen"] == "none found"
    assert "sizewise compile TARGET -o m.sizewise" in rows["C++ compiler"]["todo"]
    assert "sizewise.load" in rows["C++ compiler"]["todo"]


def test_without_a_compiler_a_build_is_a_named_error_that_points_to_bundles(
    without_compiler: dict[str, str], tmp_path: Path
) -> None:
    done = process("compile", "app.py:make", "-o", "m.sizewise", "--json", changes=without_compiler, cwd=tmp_path)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "SW306"
    assert "sizewise compile TARGET -o m.sizewise" in error["message"] and "sizewise.load" in error["message"]
    assert not (tmp_path / "m.sizewise").exists()


def test_a_compiler_that_fails_for_real_points_to_bundles(without_compiler: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "empty" / "g++"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *-version*) echo g++ 12;; *) echo "error: no cc1plus" >&2; exit 1;; esac'
    )
    broken.chmod(0o755)
    done = process("doctor", "--json", changes=without_compiler)
    row = next(row for row in json.loads(done.stdout)["rows"] if row["name"] == "C++ compiler")
    assert row["status"] == FAIL and "no cc1plus" in row["seen"] and "-o m.sizewise" in row["todo"]


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_find_compiler", lambda: "")
    row = toolchain.compiler()
    assert row.status == FAIL
    assert "apt-get install g++" in row.todo and 'backend="eager"' in row.todo
    # One missing thing is one failure.
    assert {toolchain.python_headers().status, toolchain.openmp().status} == {WARN}


def test_inductors_own_search_finds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch._inductor.config

    with torch._inductor.config.patch({"cpp.cxx": (str(tmp_path / "no-compiler"),)}):
        from torch._inductor.cpp_builder import cpp_compiler_search

        if hasattr(cpp_compiler_search, "cache_clear"):
            cpp_compiler_search.cache_clear()
        assert toolchain._find_compiler() == ""


def test_a_compiler_that_does_not_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\necho 'fatal error: Python.h: No such file' >&2\nexit 1\n")
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(toolchain, "_find_compiler", lambda: str(fake))
    for check in (toolchain.compiler, toolchain.python_headers, toolchain.openmp):
        row = check()
        assert row.status == FAIL and "Python.h" in row.seen and row.todo


def test_what_is_compiled_is_run() -> None:
    path = toolchain._find_compiler()
    assert toolchain.build_and_run(path, "int main() { return 3; }") == ("cannot run what it compiled: exit code 3", "")
    problem, _ = toolchain.build_and_run(path, "int main() { return x; }")
    assert problem.startswith("cannot compile: probe.cpp:1")
    problem, _ = toolchain.build_and_run("/no/such/compiler", "")
    assert "FileNotFoundError" in problem


# -- the machine


def test_more_threads_than_processors() -> None:
    assert machine.judge_threads(2, 2, None).status == OK
    row = machine.judge_threads(16, 16, 3.5)
    assert row.status == WARN and "OMP_NUM_THREADS=3" in row.todo and "3.5" in row.seen
    assert "OMP_NUM_THREADS=1" in machine.judge_threads(4, 8, 0.5).todo


def test_limits_of_a_container(tmp_path: Path) -> None:
    assert machine.cgroup_cores(tmp_path) is None
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cgroup_cores(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.cgroup_cores(tmp_path) == 1.5
    old = tmp_path / "old"
    (old / "cpu").mkdir(parents=True)
    (old / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert machine.cgroup_cores(old) is None
    (old / "cpu/cpu.cfs_quota_us").write_text("200000\n")
    assert machine.cgroup_cores(old) == 2.0


def test_memory(tmp_path: Path) -> None:
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    cgroup.mkdir()
    assert machine.judge_memory(meminfo, cgroup).status == WARN
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:   8388608 kB\n")
    assert machine.judge_memory(meminfo, cgroup) == Row("memory", OK, "8.0 GiB available")
    (cgroup / "memory.max").write_text("max\n")
    assert machine.judge_memory(meminfo, cgroup).status == OK
    (cgroup / "memory.max").write_text(f"{2**30}\n")
    row = machine.judge_memory(meminfo, cgroup)
    assert row.status == WARN and "1.0 GiB" in row.seen
    meminfo.write_text("MemAvailable:   1024 kB\n")
    assert machine.judge_memory(meminfo, tmp_path).status == WARN


class _Facts:
    f_frsize, f_bavail, f_flag = 4096, 2**20, 0


def test_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert toolchain.judge_cache(tmp_path).status == OK
    facts = _Facts()
    monkeypatch.setattr(os, "statvfs", lambda path: facts)
    facts.f_bavail = 10
    assert toolchain.judge_cache(tmp_path).status == WARN
    facts.f_flag = os.ST_NOEXEC
    row = toolchain.judge_cache(tmp_path)
    assert row.status == FAIL and "noexec" in row.todo


def test_a_cache_directory_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    row = toolchain.inductor_cache()
    assert row.status == FAIL and "TORCHINDUCTOR_CACHE_DIR" in row.todo


def test_a_gpu_is_not_measured_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    row = machine.gpu()
    assert row.status == WARN and row.todo == "CUDA: written, not yet measured"


@pytest.mark.slow
def test_deep_compiles_a_model() -> None:
    done = sizewise("doctor", "--deep", "--json")
    row = json.loads(done.stdout)["rows"][-1]
    assert done.exit_code == 0 and row["name"] == "mini compile" and "equal to eager" in row["seen"]
