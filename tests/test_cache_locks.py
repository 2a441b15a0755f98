"""The lock of a key: threads and processes wait for one another, and never for nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from typing import Any

import pytest

from sizewise.cache import Store, open_store
from sizewise.errors import cache as errors

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    OTHER_KEY,
    age,
    alive,
    child,
    contents,
    published,
    store,
)

__all__ = ["store"]


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
