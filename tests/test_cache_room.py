"""Making room in the store, also beside processes that read and write."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sizewise.cache import Store, open_store
from sizewise.cache.tidy import prune

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    OTHER_KEY,
    age,
    all_files,
    child,
    contents,
    publish,
    published,
    store,
)

__all__ = ["store"]


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


def test_what_is_damaged_goes_after_an_hour_when_room_is_made(store: Store) -> None:
    entry = published(store)
    path = store.layout.manifest(KEY, entry.id)
    path.write_text("not what it was")
    assert prune(store.layout, 1 << 30).entries == 0 and path.exists()
    age(path, 3700)
    removed = prune(store.layout, 1 << 30)
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
