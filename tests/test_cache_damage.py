"""Damage to the store's files, and manifests that nobody here wrote: as if they were not there, and mended."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewise.cache import Entry, Removed, Store, open_store
from sizewise.cache.manifest import digest_of
from sizewise.errors import cache as errors

from .cache_support import (
    FILES,
    KEY,
    OTHER_KEY,
    age,
    all_files,
    contents,
    publish_fields,
    published,
    store,
)

__all__ = ["store"]


def flip(position: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(position * (len(data) - 1))] ^= 1
        path.write_bytes(data)

    return damage


def swap_with_blob(path: Path) -> None:
    folder = next(parent for parent in path.parents if parent.name == "programs-1")
    other = next(blob for blob in all_files(folder / "blobs") if blob != path)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def link_to_a_copy(path: Path) -> None:
    copy = path.parents[5] / "copy"
    shutil.copy(path, copy)
    path.unlink()
    path.symlink_to(copy)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    (path / "folder").mkdir(parents=True)
    (path / "folder" / "file").write_text("x")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "zeros, as after a power cut": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "first byte": flip(0),
    "middle byte": flip(0.5),
    "last byte": flip(1),
    "deleted": lambda path: path.unlink(),
    "swapped": swap_with_blob,
    "a link": link_to_a_copy,
    "a folder": replace_by_folder,
    "a pipe": replace_by_pipe,
    "writable by others": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["manifest", *FILES])
def test_damage_is_a_miss_or_an_error_and_is_mended(store: Store, which: str, damage: str) -> None:
    entry = published(store)
    path = store.layout.manifest(KEY, entry.id)
    if which != "manifest":
        path = store.layout.blob(entry.facts[which].sha256)
    DAMAGES[damage](path)
    # Damage that was done to an entry in use, and what a process that starts now sees.
    right = {name: read_or_none(entry, name) for name in FILES}
    assert all(data in (None, FILES[name]) for name, data in right.items())
    if which == "manifest":
        assert open_store(store.root).candidates(KEY) == []
    else:
        (found,) = open_store(store.root).candidates(KEY)
        with pytest.raises(errors.CacheFileDamaged) as raised:
            found.read(which)
        assert raised.value.fields["name"] == which and str(entry.id) in str(raised.value)
    if (which, damage) != ("manifest", "deleted"):
        assert store.verify().problems
    assert contents(published(store)) == FILES
    assert contents(store.candidates(KEY)[0]) == FILES
    assert store.verify().problems == []


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["manifest", "caller.py"])
def test_damage_is_removed_with_the_programs_that_need_it(store: Store, which: str, damage: str) -> None:
    other = published(store, OTHER_KEY, {"own": b"x" * 999, "piece_0.so": FILES["piece_0.so"]})
    entry = published(store, files=FILES | {"other": b"y" * 300})
    manifest, blob = store.layout.manifest(KEY, entry.id), store.layout.blob(entry.facts["caller.py"].sha256)
    DAMAGES[damage](manifest if which == "manifest" else blob)
    theirs = contents(other) if damage != "swapped" else None
    removed = store.prune()
    if theirs is not None:
        assert [one.id for one in store.entries()] == [other.id] and contents(other) == theirs
        assert removed.entries == ((which, damage) != ("manifest", "deleted"))
    assert not manifest.exists() and (which == "manifest" or not blob.exists())
    assert not store.verify().problems
    assert store.prune() == Removed()
    assert contents(published(store)) == FILES


def test_what_the_system_does_not_let_be_read_is_not_removed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, a disk that is away for a moment: the next time it may be there."""
    published(store)

    def fails(path: Path, limit: int) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    for path in all_files(store.folder):
        age(path, 7200)
    before = all_files(store.folder / "blobs") + all_files(store.folder / "entries")
    for place, number in (("tidy", len(FILES)), ("entry", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"sizewise.cache.{place}.read", fails)
            problems = store.verify().problems
            assert [problem.damaged for problem in problems] == [False] * number
            assert store.prune() == Removed()
        assert all_files(store.folder / "blobs") + all_files(store.folder / "entries") == before


def read_or_none(entry: Entry, name: str) -> bytes | None:
    try:
        return entry.read(name)
    except errors.CacheFileDamaged:
        return None


def test_a_manifest_under_another_key_or_id_is_not_there(store: Store) -> None:
    entry = published(store)
    path = store.layout.manifest(KEY, entry.id)
    other = store.layout.manifest(OTHER_KEY, entry.id)
    other.parent.mkdir(parents=True)
    shutil.copy(path, other)
    assert store.candidates(OTHER_KEY) == []
    shutil.copy(path, path.with_name(f"{digest_of(b'')}.json"))
    shutil.copy(path, path.with_name("notes.json"))
    assert [found.id for found in store.candidates(KEY)] == [entry.id]
    assert sorted(problem.problem for problem in store.verify().problems) == [
        "is not what its name says: its SHA-256 is another",
        "lies under another key than its own",
    ]


def put_manifest(store: Store, data: bytes, key: str = KEY) -> str:
    """What somebody else wrote."""
    entry_id = digest_of(data)
    path = store.layout.manifest(key, entry_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    store.root.chmod(0o700)
    path.write_bytes(data)
    return entry_id


GOOD = {"schema": 1, "key": KEY, "files": {}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"3",
        b"\xff\xfe",
        json.dumps(GOOD).encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
        b'{"schema": 1, "key": "' + KEY.encode() + b'", "files": {}, "x": NaN}',
        b"[" * 200_000,
        b"9" * 5000,
        *(
            json.dumps(GOOD | changes).encode()
            for changes in (
                {"schema": 2},
                {"schema": "1"},
                {"schema": True},
                {"schema": 1.0},
                {"key": OTHER_KEY},
                {"key": None},
                {"files": None},
                {"files": []},
                *(
                    {"files": {name: {"sha256": KEY, "size": 1}}}
                    for name in ("", ".", "..", "/etc/passwd", "a/b", "..\\a", "a\0b", "../a", "é", "a" * 201)
                ),
                *({"files": {"a": told}} for told in (None, [], {}, {"sha256": KEY}, {"size": 1})),
                *({"files": {"a": {"sha256": KEY, "size": size}}} for size in (-1, "1", True, 1.0, None)),
                *({"files": {"a": {"sha256": digest, "size": 1}}} for digest in (KEY.upper(), "../x", 3, KEY + "\n")),
            )
        ),
    ],
)
def test_a_manifest_that_is_odd_is_not_there(store: Store, data: bytes) -> None:
    entry_id = put_manifest(store, data)
    assert store.candidates(KEY) == [] and store.entries() == []
    assert [problem.path.stem for problem in store.verify().problems] == [entry_id]
    assert contents(published(store)) == FILES


def test_a_manifest_that_is_too_long_is_not_read(store: Store) -> None:
    put_manifest(store, json.dumps({**GOOD, "x": "x" * (16 << 20)}).encode())
    assert store.candidates(KEY) == []
    assert "more than 16777216" in store.verify().problems[0].problem


def test_a_good_manifest_of_somebody_else_is_there(store: Store) -> None:
    put_manifest(store, json.dumps({**GOOD, "files": {"a": {"sha256": KEY, "size": 10**30, "x": 1}}}).encode())
    (entry,) = store.candidates(KEY)
    with pytest.raises(errors.CacheFileDamaged, match="No such file"):
        entry.read("a")
    with pytest.raises(errors.CacheFileDamaged, match="names no such file"):
        entry.read("b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
FACT = st.fixed_dictionaries(
    {"sha256": st.sampled_from([digest_of(b""), digest_of(b"x"), "x"]) | JSON, "size": st.integers(-1, 2) | JSON}
)
WRITTEN = st.fixed_dictionaries(
    {"schema": st.just(1) | JSON, "key": st.just(KEY) | JSON, "files": st.dictionaries(st.text("a./"), FACT) | JSON}
)
MANY = settings(max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(MANY, max_examples=50)
@given(fields=st.dictionaries(st.text(), JSON, max_size=5), data=st.binary())
def test_any_json_comes_back_exactly(fields: dict[str, Any], data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        entry = publish_fields(store, fields, {"a": data})
        if entry is None:
            assert {"schema", "key", "files"} & set(fields)
            return
        (again,) = open_store(Path(folder)).candidates(KEY)
        told = {**fields, **{name: again.manifest[name] for name in ("schema", "key", "files")}}
        assert again.manifest == told and json.dumps(again.manifest, sort_keys=True) == json.dumps(told, sort_keys=True)
        assert contents(again) == {"a": data}


@MANY
@given(written=WRITTEN | JSON, more=st.dictionaries(st.text(), JSON, max_size=2))
def test_any_manifest_is_read_exactly_or_not_there(written: Any, more: dict[str, Any]) -> None:
    whole = {**more, **written} if isinstance(written, dict) else written
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        (store.folder / "blobs").mkdir(parents=True)
        for content in (b"", b"x"):
            path = store.layout.blob(digest_of(content))
            path.parent.mkdir()
            path.write_bytes(content)
        put_manifest(store, json.dumps(whole).encode())
        for entry in store.candidates(KEY):
            assert entry.manifest == whole and entry.manifest["schema"] == 1 and entry.manifest["key"] == KEY
            for name in entry.names:
                data = read_or_none(entry, name)
                told = whole["files"][name]
                assert data is None or (digest_of(data), len(data)) == (told["sha256"], told["size"])
                assert "/" not in name and ".." not in name
