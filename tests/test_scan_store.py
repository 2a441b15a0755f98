"""The index that a scan fills."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sizewise.reference import store as stores
from sizewise.reference.scan import index as indexing
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import index
from sizewise.reference.store import Store

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
    report = index(find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/"), path)
    assert path.read_bytes() == before
    assert "something else" in report.note and Path(report.path) != path and Path(report.path).is_file()


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
    report = index(sources, path)
    assert report.path != str(path) and path.read_bytes().startswith(b"not a database")


def test_a_locked_or_unwritable_index_is_built_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    index(sources, path)
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(indexing, "WAIT", 0.1)
    report = index(sources, path)
    assert "locked" in report.note and report.path != str(path)
    holder.close()
    (tmp_path / "file").write_text("")
    report = index(sources, tmp_path / "file" / "errors.sqlite")
    assert report.note and report.records == 1


def test_an_index_of_an_older_layout_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    with Store(path) as store:
        store.replace(sample()[0].distribution, sample())
    monkeypatch.setattr(stores, "SCHEMA", stores.SCHEMA + 1)
    with Store(path) as store:
        assert list(store.all()) == [] == store.distributions()
