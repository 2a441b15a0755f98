"""The store between processes: one builds, killed builders leave nothing wrong, room is made beside the others."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sizewise.cache import Store, open_store
from sizewise.cache.tidy import prune
from sizewise.errors import cache as errors

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    OTHER_KEY,
    Child,
    age,
    all_files,
    child,
    contents,
    publish,
    published,
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


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


FORKS_AND_ENDS = """
store = open_store(root)
with store.building(KEY, timeout=5):
    worker = os.fork()
    if not worker:
        sys.stdin.readline()
        os._exit(0)
# The block has ended; the worker still has the descriptors.
with store.building(KEY, timeout=5) as token:
    tell(state=token.state, waited=token.waited)
tell(worker=worker)
os.waitpid(worker, 0)
"""


def test_a_worker_that_stays_keeps_nobody_waiting(store: Store) -> None:
    with child(FORKS_AND_ENDS, store.root) as builder:
        told = builder.told()
        assert told["state"] == "held" and told["waited"] < 3
        assert alive(builder.told()["worker"])
        with store.building(KEY, timeout=5) as token:
            assert token.state == "held" and token.waited < 3
        builder.go()
        assert builder.end() == 0


A_THREAD_WAITS = """
import threading
store, told = open_store(root), []

def waits():
    with store.building(KEY, timeout=20, on_wait=lambda seconds, owner: told.append(owner)) as token:
        tell(state=token.state, waited=token.waited)

with store.building(KEY, timeout=5):
    thread = threading.Thread(target=waits)
    thread.start()
    while not told:
        time.sleep(0.01)
    worker = os.fork()
    if not worker:
        time.sleep(60)
        os._exit(0)
thread.join()
os.kill(worker, signal.SIGKILL)
"""


def test_a_worker_that_stays_keeps_no_thread_waiting(store: Store) -> None:
    """The worker shares the very lock that the thread waits for; its parent ends that lock for both."""
    with child(A_THREAD_WAITS, store.root) as builder:
        told = builder.told()
        assert told["state"] == "held" and told["waited"] < 10
        assert builder.end() == 0


LEAVES_THE_BLOCK = """
store = open_store(root)
with store.building(KEY, timeout=5) as token:
    worker = os.fork()
    if not worker:
        try:
            raise SystemExit(0)
        finally:
            pass
    os.waitpid(worker, 0)
    # The worker left the block by its exception; the lock is still ours.
    tell(waited=True)
    sys.stdin.readline()
"""


def test_a_worker_that_leaves_the_block_does_not_let_go(store: Store) -> None:
    with child(LEAVES_THE_BLOCK, store.root) as builder:
        builder.told()
        with store.building(KEY, timeout=0.1) as token:
            assert token.state == "timeout"
        assert list((store.folder / "locks").glob("*.threads"))
        builder.go()
        with store.building(KEY, timeout=5) as token:
            assert token.state == "held"


# -- locks within a process


def test_threads_of_one_process_build_one_after_the_other(store: Store) -> None:
    inside, most, built, owners = 0, 0, 0, []

    def work() -> None:
        nonlocal inside, most, built
        own = open_store(store.root)
        with own.building(KEY, timeout=30, on_wait=lambda _, owner: owners.append(owner)) as token:
            assert token.state == "held"
            inside += 1
            most = max(most, inside)
            if not own.candidates(KEY):
                built += 1
                time.sleep(0.05)
                assert own.publish(KEY, FIELDS, FILES, token=token) is not None
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, built) == (1, 1)
    assert owners and all(owner == f"another thread of this process ({os.getpid()})" for owner in owners)


WAITS = """
store = open_store(root)
with store.building(KEY, timeout=float(arguments[0])) as token:
    tell(state=token.state)
"""


def test_a_thread_that_gives_up_does_not_lose_the_lock_of_another(store: Store) -> None:
    """Record locks go when any descriptor of their file is closed, in whichever thread."""
    with store.building(KEY, timeout=5) as token:

        def gives_up() -> None:
            with open_store(store.root).building(KEY, timeout=0.01) as other:
                assert other.state == "timeout"

        thread = threading.Thread(target=gives_up)
        thread.start()
        thread.join()
        store.prune(0)
        store.clear()
        store.verify()
        with child(WAITS, store.root, "0.2") as somebody:
            assert somebody.told() == {"state": "timeout"}
        assert token.state == "held"
    with child(WAITS, store.root, "5") as somebody:
        assert somebody.told() == {"state": "held"}


def test_other_keys_do_not_wait(store: Store) -> None:
    with store.building(KEY, timeout=5), store.building(OTHER_KEY, timeout=5) as token:
        assert token.state == "held" and token.waited < 3


def test_an_error_in_the_block_lets_go(store: Store) -> None:
    with pytest.raises(KeyError), store.building(KEY, timeout=5):
        raise KeyError
    with store.building(KEY, timeout=0) as token:
        assert token.state == "held"


def test_a_progress_line_is_called_now_and_then(store: Store) -> None:
    told: list[float] = []

    def on_wait(seconds: float, owner: str) -> None:
        told.append(seconds)
        raise BrokenPipeError

    with child(WAITS + "    sys.stdin.readline()\n", store.root, "5") as holder:
        holder.told()
        with store.building(KEY, timeout=2.3, on_wait=on_wait) as token:
            assert token.state == "timeout"
    assert 2 <= len(told) <= 3 and told[0] < 1


@pytest.mark.parametrize("name", ["lockf", "flock"])
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_where_locks_do_not_work_it_builds_without_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, name, fails)
    with store.building(KEY, timeout=30) as token:
        assert token.state == "unavailable" and token.waited < 3
        entry = store.publish(KEY, FIELDS, FILES, token=token)
    assert entry is not None and contents(entry) == FILES


def test_a_lock_whose_file_was_removed_is_taken_anew(store: Store) -> None:
    with child(WAITS + "    sys.stdin.readline()\n", store.root, "5") as holder:
        holder.told()
        (store.folder / "locks" / f"{KEY}.lock").unlink()
        with store.building(KEY, timeout=5) as token:
            assert token.state == "held"
            with child(WAITS, store.root, "0.1") as third:
                assert third.told() == {"state": "timeout"}


WAITS_ALOUD = """
sys.stdin.readline()
store = open_store(root)
with store.building(KEY, timeout=float(arguments[0]), on_wait=lambda *_: tell(waits=True)) as token:
    tell(state=token.state)
"""


def test_who_waited_for_a_file_that_was_removed_waits_for_the_new_one(store: Store) -> None:
    stays = WAITS + "    sys.stdin.readline()\n"
    with child(stays, store.root, "5") as first, child(WAITS_ALOUD, store.root, "4") as waiting:
        assert first.told() == {"state": "held"}
        waiting.go()
        assert waiting.told() == {"waits": True}
        (store.folder / "locks" / f"{KEY}.lock").unlink()
        with child(stays, store.root, "5") as second:
            assert second.told() == {"state": "held"}
            first.go()
            while "state" not in (told := waiting.told()):
                pass
            assert told == {"state": "timeout"} and waiting.end() == 0


def test_locks_of_nobody_are_swept(store: Store) -> None:
    published(store)
    (store.folder / "locks" / f"{OTHER_KEY}.0-1.threads").touch()
    with child(WAITS + "    sys.stdin.readline()\n", store.root, "5", key=OTHER_KEY) as holder:
        holder.told()
        for path in (store.folder / "locks").iterdir():
            age(path, 4000)
        store.prune()
        names = sorted(path.name for path in (store.folder / "locks").iterdir())
        assert len(names) == 2 and f"{OTHER_KEY}.lock" in names and f"{OTHER_KEY}.0-1.threads" not in names
        with store.building(OTHER_KEY, timeout=0.1) as token:
            assert token.state == "timeout"


def test_a_token_is_for_its_block_and_key(store: Store) -> None:
    with store.building(KEY, timeout=5) as token:
        with pytest.raises(errors.NotTheBuilder, match=f"it builds {KEY}"):
            store.add(OTHER_KEY, FIELDS, FILES, token=token)
    with pytest.raises(errors.NotTheBuilder, match="its block has ended"):
        store.add(KEY, FIELDS, FILES, token=token)
    assert store.publish(KEY, FIELDS, FILES, token=token) is None and store.entries() == []


# -- making room


def test_the_entries_used_longest_ago_go_first(store: Store) -> None:
    keys = [f"{number:064x}" for number in range(5)]
    entries = [published(store, key, {"a": os.urandom(1000), "shared": FILES["piece_0.so"]}) for key in keys]
    for number, entry in enumerate(entries):
        age(store.layout.manifest(entry.key, entry.id), 1000 - number)
    store.entries()[-1].read("a")  # the first is now the one used last
    each = entries[0].manifest_bytes + 1000
    before = store.size()
    removed = store.prune(3 * each + len(FILES["piece_0.so"]) + 100)
    assert (removed.entries, removed.blobs) == (2, 2) and removed.bytes == 2 * each == before - store.size()
    assert [entry.key for entry in store.entries()] == [keys[0], keys[4], keys[3]]
    assert all(contents(entry)["shared"] == FILES["piece_0.so"] for entry in store.entries())
    assert not store.verify().problems
    assert store.prune(0).entries == 3 and not all_files(store.folder / "blobs") and not store.entries()
    assert not list((store.folder / "entries").glob("*/*"))


def test_old_files_that_are_named_stay(store: Store) -> None:
    entries = [published(store), published(store, OTHER_KEY)]
    for path in all_files(store.folder):
        age(path, 100_000)
    removed = store.prune()
    assert (removed.entries, removed.blobs, removed.bytes) == (0, 0, 0)
    assert [contents(entry) for entry in entries] == [FILES, FILES] and not store.verify().problems


def test_files_that_nothing_names_have_an_hour(store: Store) -> None:
    entry = published(store)
    store.discard(entry)
    assert store.prune(0).blobs == 0
    for path in all_files(store.folder / "blobs"):
        age(path, 3500)
    assert store.prune(0).blobs == 0
    # Who publishes it again counts on it, which starts the hour anew.
    with store.building(KEY, timeout=5) as token:
        steps = {"blobs there": lambda: age_of_all(store)}
        store.add(KEY, FIELDS, FILES, token=token, stage=lambda step: steps.get(step, lambda: None)())
    store.discard(entry)
    for path in all_files(store.folder / "blobs"):
        age(path, 3700)
    assert store.prune(0).blobs == len(FILES)


def age_of_all(store: Store) -> None:
    assert all(time.time() - path.stat().st_mtime < 60 for path in all_files(store.folder / "blobs"))


def test_what_is_of_no_use_goes_after_an_hour(store: Store) -> None:
    entry = published(store)
    path = store.layout.manifest(KEY, entry.id)
    path.write_text("not what it was")
    assert store.prune().entries == 0 and path.exists()
    age(path, 3700)
    removed = store.prune()
    assert not path.exists() and removed.bytes == len("not what it was")


def test_publishing_keeps_to_the_limit(tmp_path: Path) -> None:
    store = open_store(tmp_path / "cache", limit=100_000)
    for number in range(12):
        entry = published(store, f"{number:064x}", {"a": os.urandom(20_000)})
        age(store.layout.manifest(entry.key, entry.id), 1000 - number)
        assert store.size() <= 100_000
    kept = {int(entry.key, 16) for entry in store.entries()}
    assert max(kept) == 11 and kept == set(range(min(kept), 12)) and 3 <= len(kept) <= 5
    assert not store.verify().problems


def test_a_program_larger_than_the_limit_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path / "cache", limit=50_000)
    small = published(store, OTHER_KEY, {"a": b"x"})
    assert publish(store) is None and "limited to 50000" in caplog.text
    assert contents(small) == {"a": b"x"} and not list(store.folder.rglob(".tmp-*"))


def test_a_blob_that_is_tidied_away_while_it_is_counted_on_is_written_again(store: Store) -> None:
    published(store)
    with store.building(OTHER_KEY, timeout=5) as token:

        def somebody_clears(step: str) -> None:
            if step == "blobs there":
                open_store(store.root).clear()

        entry = store.publish(OTHER_KEY, FIELDS, FILES, token=token, stage=somebody_clears)
    assert entry is not None and contents(entry) == FILES and not store.verify().problems


def test_an_entry_used_since_it_was_listed_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = published(store)
    age(store.layout.manifest(KEY, entry.id), 100)
    (listed,) = store.entries()
    entry.mark_used()
    from sizewise.cache import tidy

    removed = tidy.Removed()
    assert not tidy._remove_entry(store.layout, listed, removed) and removed.entries == 0
    assert prune(store.layout, 0, keep=entry.id).entries == 0
    assert contents(store.candidates(KEY)[0]) == FILES


READS = """
store, counts = open_store(root), {"read": 0, "miss": 0, "lost": 0, "wrong": 0}
tell(ready=True)
until = time.monotonic() + 3
while time.monotonic() < until:
    found = store.candidates(KEY)
    counts["miss"] += not found
    for entry in found:
        try:
            right = all(entry.read(name) == FILES[name] for name in FILES)
        except CacheError as problem:
            assert problem.code == "SW605", problem
            counts["lost"] += 1
        else:
            counts["read" if right else "wrong"] += 1
tell(**counts)
"""
PUBLISHES = """
store, counts = open_store(root), {"kept": 0, "not": 0}
tell(ready=True)
until, number = time.monotonic() + 3, 0
while time.monotonic() < until:
    number += 1
    with store.building(KEY, timeout=5) as token:
        entry = store.publish(KEY, {"n": number, "pid": os.getpid()}, FILES, token=token)
    counts["kept" if entry is not None else "not"] += 1
tell(**counts)
"""


def test_readers_and_writers_beside_somebody_who_tidies(store: Store) -> None:
    with (
        child(READS, store.root) as reader,
        child(PUBLISHES, store.root) as writer,
        child(PUBLISHES, store.root) as second,
    ):
        everyone = (reader, writer, second)
        for each in everyone:
            each.told()
        until = time.monotonic() + 3.2
        while time.monotonic() < until:
            store.prune(0)
            time.sleep(0.01)
            store.clear()
            time.sleep(0.02)
        read, kept, also = (each.told() for each in everyone)
        assert [each.end() for each in everyone] == [0, 0, 0]
    assert read["wrong"] == 0 and read["read"] > 0, read
    assert kept["kept"] > 0 and also["kept"] > 0, (kept, also)
    assert not [problem for problem in store.verify().problems if "missing" not in problem.problem]
    assert contents(published(store)) == FILES
