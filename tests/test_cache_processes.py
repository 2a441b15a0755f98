"""The store between processes: one builds, and killed builders leave nothing wrong."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sizewise.cache import Store, open_store

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    Child,
    age,
    alive,
    child,
    contents,
    store,
)

__all__ = ["store"]


# -- one builds, the others wait

ONE_OF_TEN = """
store = open_store(root)
tell(ready=True)
sys.stdin.readline()
found, waits, how = store.candidates(KEY), [], "found"
if not found:
    with store.building(KEY, timeout=60, on_wait=lambda seconds, owner: waits.append(owner)) as token:
        found, how = store.candidates(KEY), "waited"
        if not found:
            how = "built"
            time.sleep(0.5)
            found = [store.publish(KEY, FIELDS, FILES, token=token)]
    assert token.state == "held"
right = all(found[0].read(name) == FILES[name] for name in FILES)
tell(how=how, right=right, count=len(found), waits=waits, pid=os.getpid())
"""


def test_ten_processes_build_once(store: Store) -> None:
    children = [Child(ONE_OF_TEN, store.root) for _ in range(10)]
    for each in children:
        each.told()
    for each in children:
        each.go()
    told = [each.told() for each in children]
    assert [each.end() for each in children] == [0] * 10
    assert sorted(one["how"] for one in told) == ["built"] + ["waited"] * 9, told
    assert all(one["right"] and one["count"] == 1 for one in told)
    builder = next(one["pid"] for one in told if one["how"] == "built")
    owners = {owner for one in told for owner in one["waits"]}
    assert any(owner.startswith(f"process {builder} on ") for owner in owners), owners
    assert len(store.entries()) == 1 and not store.verify().problems
    # No file of a lock is left but the one of the key.
    assert [path.name for path in (store.folder / "locks").iterdir()] == [f"{KEY}.lock"]


# -- SIGKILL at every step

STOPS_AT = """
step, seen = int(arguments[0]), []

def stage(name):
    seen.append(name)
    if len(seen) == step:
        os.kill(os.getpid(), signal.SIGKILL)

with open_store(root).building(KEY, timeout=5) as token:
    open_store(root).publish(KEY, FIELDS, FILES, token=token, stage=stage)
"""
STEPS = [
    *(f"blob {step}" for _ in FILES for step in ("opened", "half", "written", "synced", "renamed")),
    "blobs there",
    *(f"manifest {step}" for step in ("opened", "half", "written", "synced", "renamed")),
    "manifest there",
]


def test_the_steps_of_publishing(store: Store) -> None:
    seen: list[str] = []
    with store.building(KEY, timeout=5) as token:
        store.add(KEY, FIELDS, FILES, token=token, stage=seen.append)
    assert seen == STEPS


@pytest.mark.parametrize("step", range(1, len(STEPS) + 1), ids=lambda step: f"{step}-{STEPS[step - 1]}")
def test_a_builder_that_is_killed(store: Store, step: int) -> None:
    with child(STOPS_AT, store.root, str(step)) as builder:
        assert builder.end() == -9
    there = STEPS[step - 1] in ("manifest renamed", "manifest there")
    assert [contents(entry) for entry in store.candidates(KEY)] == [FILES] * there
    checkup = store.verify()
    assert not checkup.problems and checkup.entries == there
    with store.building(KEY, timeout=5) as token:
        assert token.state == "held" and token.waited < 3
        assert store.publish(KEY, FIELDS, FILES, token=token) is not None
    assert [contents(entry) for entry in open_store(store.root).candidates(KEY)] == [FILES] * len(store.entries())
    left = list(store.folder.rglob(".tmp-*"))
    assert len(left) == (STEPS[step - 1].split()[-1] in ("opened", "half", "written", "synced"))
    # What it left is taken away, but not at once: a writer may be at work.
    assert store.prune().temporary == 0
    for path in left:
        age(path, 3700)
    assert store.prune().temporary == len(left) and not list(store.folder.rglob(".tmp-*"))
    assert contents(store.candidates(KEY)[0]) == FILES


HAS_CHILDREN = """
import subprocess, threading
store = open_store(root)
with store.building(KEY, timeout=5) as token:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    worker = os.fork()
    if not worker:
        sys.stdin.readline()  # the test ends the pipe or says go
        refused = store.publish(KEY, FIELDS, FILES, token=token)
        try:
            store.add(KEY, FIELDS, FILES, token=token)
        except CacheError as problem:
            tell(refused=refused is None, code=problem.code, text=str(problem), held=token.state)
        time.sleep(60)
    tell(program=program.pid, worker=worker, builder=os.getpid())
    time.sleep(60)
"""


def test_the_children_of_a_dead_builder_hold_nothing_and_publish_nothing(store: Store) -> None:
    with child(HAS_CHILDREN, store.root) as builder:
        pids = builder.told()
        try:
            waiting: list[Any] = []
            with store.building(KEY, timeout=0.2, on_wait=lambda *told: waiting.append(told)) as token:
                assert token.state == "timeout" and 0.2 <= token.waited < 5
            assert waiting[0][1].startswith(f"process {pids['builder']} on ") and token.owner == waiting[0][1]
            builder.process.kill()
            builder.process.wait()
            assert alive(pids["program"]) and alive(pids["worker"])
            with store.building(KEY, timeout=10) as token:
                assert token.state == "held" and token.waited < 5
                builder.go()  # the worker has the other end of the pipe as well
                told = builder.told()
                assert told["refused"] and told["code"] == "SW608"
                assert f"forked from the builder, process {pids['builder']}" in told["text"]
                assert store.candidates(KEY) == []
                # Here it is allowed.
                assert store.publish(KEY, FIELDS, FILES, token=token) is not None
        finally:
            for name in ("program", "worker"):
                os.kill(pids[name], 9)
