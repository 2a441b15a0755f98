"""The index that a scan fills."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sizewise.errors.command import CannotWrite, IndexUnreadable
from sizewise.reference import store as stores
from sizewise.reference.scan import index as indexing
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import index
from sizewise.reference.store import Store

from .command_line import environment
from .scan_support import sample, write_package

# -- the store


def test_the_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    records = sample()
    with Store(tmp_path / "new" / "errors.sqlite") as store:
        assert store.replace(records[0].distribution, records) == 2
        assert list(store.all()) == records
        assert store.get([records[1].id, "unknown", records[0].id]) == [records[1], records[0]]
        assert store.search(["FIRST", "nothing"]) == [records[0]]
        assert store.search([]) == [] == store.search(['"', "x"])
        assert store.at("mod.py", "m1") == store.at("pack/mod.py", "C.m1") == [records[1]]
        assert store.at("b.py", "f") == store.at("", "f") == records
        assert store.at("b.py", "m1") == [] == store.at("/d.py", "m1")
        assert store.distributions() == [records[0].distribution]
        newer = sample(version="2", texts=["the third"])
        other = sample("other", texts=["the first"])
        store.replace(other[0].distribution, other)
        store.replace(newer[0].distribution, newer)
        assert sorted(record.id for record in store.all()) == ["other-1-0", "pack-2-0"]
        assert store.search(["first"]) == other and store.search(["second"]) == []


def test_a_search_for_many_words_looks_for_the_rare_ones() -> None:
    common = [f"the tensor is number{number}" for number in range(3500)]
    records = sample(texts=[*common, "the tensor is peculiar"])
    with Store(":memory:") as store:
        store.replace(records[0].distribution, records)
        assert store.search(["the", "tensor", "is", "peculiar"]) == [records[-1]]
        assert len(store.search(["the"], limit=7)) == 7


def test_two_stores_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    one, two = sample("one"), sample("two")
    with Store(path) as writer, Store(path) as reader:
        writer.replace(one[0].distribution, one)
        assert len(list(reader.all())) == 2
        reader.replace(two[0].distribution, two)
        assert len(list(writer.all())) == 4
        assert writer.get(["two-1-0"])[0].distribution.name == "two"


def test_another_files_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(stores.NotAnIndex):
        Store(path)
    with pytest.raises(IndexUnreadable, match="something else"):
        index(find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/"), path)
    assert path.read_bytes() == before


def test_a_damaged_index_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    assert index(sources, path).note == ""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * len(content[4096:])
    path.write_bytes(content)
    report = index(sources, path)
    assert "was damaged" in report.note and report.path == str(path)
    with Store(path) as store:
        assert len(list(store.all())) == 1
    path.write_bytes(b"not a database at all" * 300)
    with pytest.raises(IndexUnreadable, match="delete the file"):
        index(sources, path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_locked_or_unwritable_index_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    index(sources, path)
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(indexing, "WAIT", 0.1)
    monkeypatch.setattr(indexing, "scan_all", None)  # nothing is read in vain
    with pytest.raises(CannotWrite, match="locked; another process"):
        index(sources, path)
    holder.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="SIZEWISE_CACHE_DIR"):
        index(sources, tmp_path / "file" / "errors.sqlite")
    (tmp_path / "folder.sqlite").mkdir()
    with pytest.raises(CannotWrite, match="it is a folder"):
        index(sources, tmp_path / "folder.sqlite")
    monkeypatch.setattr(os, "access", lambda *_: False)  # another user's file, or a read-only disk
    with pytest.raises(CannotWrite, match="readonly"):
        index(sources, path)
    with Store(path) as store:
        assert len(list(store.all())) == 1


def test_a_full_disk_is_named_and_costs_nothing_that_was_there(tmp_path: Path) -> None:
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    index(sources, tmp_path / "errors.sqlite")
    (tmp_path / "more").mkdir()
    many = "\n".join(f"def f{n}(): raise ValueError('{n} {n}')" for n in range(999))
    package = write_package(tmp_path / "more", m=many)
    limited = ["bash", "-c", 'ulimit -f 80; exec "$@"', "bash", sys.executable, "-m", "sizewise", "errors", "index"]
    done = subprocess.run(
        [*limited, f"{package}/"],
        capture_output=True,
        text=True,
        env={**environment(), "SIZEWISE_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 3 and "cannot write" in done.stderr and "[SW704]" in done.stderr, done.stderr
    with Store(tmp_path / "errors.sqlite") as store:
        assert len(list(store.all())) == 1


def test_an_index_of_an_older_layout_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    with Store(path) as store:
        store.replace(sample()[0].distribution, sample())
    monkeypatch.setattr(stores, "SCHEMA", stores.SCHEMA + 1)
    with Store(path) as store:
        assert list(store.all()) == [] == store.distributions()
