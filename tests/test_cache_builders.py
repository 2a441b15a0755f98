"""Processes that build the same model at the same time: one builds, the others wait, and a dead one holds up nobody."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sizewise.cache import open_store

from .cache_support import age, alive
from .processes import Started, run, started

pytestmark = pytest.mark.slow

DECODER = """
import torch
from benchmarks.models import decoder


def make(layers):
    calls = [{"args": (torch.randint(0, 256, (rows, 6)),)} for rows in (3, 1, 8)]
    return decoder(layers, hidden=32), calls, {"ids": {0: ("batch", 1, 8)}}
"""
SMALL = """
import torch


class Small(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.first, self.last, self.scale = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), scale

    def forward(self, x):
        return self.last(torch.relu(self.first(x)) * self.scale) * self.scale


def make(scale):
    return Small(scale).eval(), [{"args": (torch.randn(rows, 6),)} for rows in (4, 1, 8)], {"x": {0: ("n", 1, 8)}}
"""


def case(place: Path, text: str) -> str:
    path = place / "small_case.py"
    path.write_text(text)
    return str(path)


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """What a process serves in most tests."""
    return {"path": case(tmp_path, SMALL), "argument": 1.5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_ten_processes_build_once(tmp_path: Path, folder: Path) -> None:
    model = {"path": case(tmp_path, DECODER), "argument": 2, "splitting_ops": ["sizewise_bench::attention"]}
    with ExitStack() as stack:
        ten = [stack.enter_context(started(folder, **model)) for _ in range(10)]
        for process in ten:
            process.go()
        owners: list[str] = []
        told = []
        for process in ten:
            while "right" not in (found := process.told()):
                owners.append(found["waits_for"])
            told.append(found)
        pids = [process.pid for process in ten]
    assert all(one["right"] for one in told)
    assert sorted(one["traces"] for one in told) == [0] * 9 + [1]
    assert sorted(one["cache_hits"] for one in told) == [0] + [1] * 9
    assert sum(one["hit"] for one in told) == 9
    (builder,) = [one for one in told if one["traces"]]
    assert builder["compilations"] == sum(one["compilations"] for one in told) > 0
    assert builder["cache_misses"] == 1 and "no program was built" in builder["why"]
    assert any(owner.startswith(f"process {pids[told.index(builder)]} on ") for owner in owners)
    assert not builder["warnings"]
    assert len(open_store(folder).entries()) == 1 and not open_store(folder).verify().problems


BEFORE = ("cache.start", "trace.start", "split", "compile.start", "link", "self_test.start", "publish.start")
WRITING = ("blob opened", "blob half", "blob renamed", "blobs there", "manifest half", "manifest synced")
AFTER = ("manifest renamed", "manifest there")


def stopped(stack: ExitStack, folder: Path, stage: str, small: dict[str, Any]) -> Started:
    """A process that waits at ``stage`` of its warm-up."""
    process: Started = stack.enter_context(started(folder, stops_at=stage, **small))
    process.go()
    while "stage" not in (told := process.told()):
        assert "waits_for" in told, told
    assert told == {"stage": stage}
    return process


def test_a_builder_is_killed_at_every_stage(folder: Path, small: dict[str, Any]) -> None:
    """Each process takes over from the one that was killed before it, and is killed one stage later itself."""
    for stage in (*BEFORE, *WRITING):
        with ExitStack() as stack:
            stopped(stack, folder, stage, small).kill()
        store = open_store(folder)
        assert store.entries() == [] and store.verify().problems == [], stage
    left = list(folder.rglob(".tmp-*"))
    # A temporary file for each that was killed with one open.
    assert len(left) == sum(stage.endswith(("opened", "half", "synced")) for stage in WRITING)
    for stage in AFTER:
        with ExitStack() as stack:
            stopped(stack, folder, stage, small).kill()
        assert open_store(folder).verify().problems == []
        told = run(folder, **small)
        # What was renamed is whole, and is served.
        assert (told["right"], told["hit"], told["traces"], told["warnings"]) == (True, True, 0, [])
        for entry in open_store(folder).entries():
            open_store(folder).discard(entry)
    told = run(folder, **small)
    assert (told["right"], told["hit"], told["traces"], told["warnings"]) == (True, False, 1, [])
    for path in left:
        age(path, 3700)
    assert open_store(folder).prune().temporary == len(left) and not list(folder.rglob(".tmp-*"))
    assert run(folder, **small)["hit"]


@pytest.mark.parametrize("stage", ["trace.start", "publish.start", "manifest synced"])
def test_who_waits_takes_over_from_a_builder_that_is_killed(stage: str, folder: Path, small: dict[str, Any]) -> None:
    with ExitStack() as stack:
        builder = stopped(stack, folder, stage, small)
        second, third = (stack.enter_context(started(folder, **small)).go() for _ in range(2))
        for waiting in (second, third):
            assert waiting.told()["waits_for"].startswith(f"process {builder.pid} on ")
        builder.kill()
        told = [last(waiting) for waiting in (second, third)]
    assert all(one["right"] for one in told)
    assert sorted(one["traces"] for one in told) == [0, 1] and sorted(one["hit"] for one in told) == [False, True]
    assert len(open_store(folder).entries()) == 1 and not open_store(folder).verify().problems


def last(process: Started) -> dict[str, Any]:
    """What it says in the end; who waits longer may tell of another owner before."""
    while "right" not in (told := process.told()):
        assert "waits_for" in told, told
    return told


def test_who_waits_is_killed_and_nobody_minds(folder: Path, small: dict[str, Any]) -> None:
    with ExitStack() as stack:
        builder = stopped(stack, folder, "compile.start", small)
        waiting = stopped(stack, folder, "cache.wait", small)
        waiting.kill()
        told = last(builder.go())
    assert (told["right"], told["traces"]) == (True, 1)
    assert run(folder, **small)["hit"]


def test_who_has_waited_long_enough_builds_as_well(folder: Path, small: dict[str, Any]) -> None:
    with ExitStack() as stack:
        builder = stopped(stack, folder, "compile.start", small)
        waiting = stack.enter_context(started(folder, "impatient", **small)).go()
        told = last(waiting)
        assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)
        (line,) = told["warnings"]
        assert f"is still being built by process {builder.pid} on " in line and "it is built here as well" in line
        told = last(builder.go())
    assert (told["right"], told["traces"]) == (True, 1)
    assert run(folder, **small)["hit"] and not open_store(folder).verify().problems


WAITS = """#!/bin/sh
case " $* " in *" -o "*)
    echo $$ >> HERE/compilers
    while [ -e HERE/hold ]; do sleep 0.05; done
esac
exec REAL "$@"
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Path]:
    """A folder with a g++ that waits while ``hold`` lies there and notes its process in ``compilers``."""
    real = shutil.which("g++")
    if real is None:
        pytest.skip("no g++ here")
    place = tmp_path / "bin"
    place.mkdir()
    (place / "g++").write_text(WAITS.replace("HERE", str(place)).replace("REAL", real))
    (place / "g++").chmod(0o755)
    (place / "hold").touch()
    yield place
    (place / "hold").unlink(missing_ok=True)


def test_the_compilers_of_a_dead_builder_hold_no_lock_and_publish_nothing(
    folder: Path, small: dict[str, Any], compiler: Path
) -> None:
    # A constant that no cache of Inductor's has seen, so that the C++ compiler is needed.
    small = {**small, "argument": 1 + time.time() % 1}
    path = {"PATH": f"{compiler}:{os.environ['PATH']}"}
    with started(folder, variables=path, **small) as builder:
        builder.go()
        noted = compiler / "compilers"
        until = time.monotonic() + 200
        while not (noted.exists() and noted.read_text().endswith("\n")):
            assert time.monotonic() < until, "the C++ compiler was not started"
            time.sleep(0.02)
        builder.kill()
        pids = [int(line) for line in noted.read_text().split()]
        assert all(map(alive, pids))
        assert not [open_there for pid in pids for open_there in files_of(pid) if open_there.startswith(str(folder))]
        told = run(folder, **small)
        assert (told["right"], told["hit"], told["traces"], told["warnings"]) == (True, False, 1, [])
        assert all(map(alive, pids))
        before = contents(folder)
        (compiler / "hold").unlink()
        while any(map(alive, pids)):
            assert time.monotonic() < until
            time.sleep(0.02)
    assert contents(folder) == before and not open_store(folder).verify().problems
    again = run(folder, **small)
    assert (again["right"], again["hit"]) == (True, True)


def files_of(pid: int) -> list[str]:
    """What a process has open."""
    return [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those of locks."""
    return {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.parent.name != "locks"
    }


def test_a_library_that_was_replaced_meanwhile_is_not_kept(folder: Path, small: dict[str, Any]) -> None:
    """A compiler that outlives its builder writes the very file that the next one has loaded."""
    told = run(folder, before_publishing=":replace_libraries", **small)
    assert (told["right"], told["traces"]) == (True, 1)
    assert "it is not kept: it needs the library" in told["why"] and "replaced on disk" in told["why"]
    assert open_store(folder).entries() == []
    told = run(folder, **small)
    assert (told["right"], told["hit"]) == (True, False) and "not kept" not in told["why"]
