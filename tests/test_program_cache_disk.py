"""Warm-ups where the cache's folder cannot be used as it should: they go on, and say so once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sizewise.cache import open_store

from .cache_support import age, mounted
from .processes import run

pytestmark = pytest.mark.slow

CASE = str(Path(__file__).parent / "cases" / "modules" / "27_constant_not_in_cache_key.py")


def serves(folder: Path, task: str = "serve", argument: int = 0, **more: Any) -> dict[str, Any]:
    """A process that had to build and was right: what it logged, and why it missed."""
    told: dict[str, Any] = run(folder, task, path=CASE, argument=argument, **more)
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1), told
    return told


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A file system that is mounted for reading only; without root's rights, folders that may not be written."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield
        return
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o500)
    try:
        yield
    finally:
        for path in folders:
            path.chmod(0o700)


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A small disk where one can be mounted; else a folder, which serves those who cannot mount."""
    if os.geteuid() != 0:
        folder.mkdir(mode=0o700)
        yield folder
        return
    with mounted(folder, f"{options},mode=0700") as place:
        yield place


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=8m") as folder:
        serves(folder)
        with read_only(folder):
            told = run(folder, path=CASE)
            assert (told["right"], told["hit"], told["traces"], told["warnings"]) == (True, True, 0, [])
            (line,) = serves(folder, argument=1)["warnings"]
            assert "[SW606]" in line
            (line,) = serves(folder / "below")["warnings"]
            assert "[SW606]" in line
        assert not open_store(folder).verify().problems


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=48k,mode=0700") as folder:
        for _ in range(2):
            (line,) = serves(folder)["warnings"]
            assert "No space left on device" in line and "[SW606]" in line
        assert open_store(folder).entries() == [] and not list(folder.rglob(".tmp-*"))


def test_files_that_may_not_get_that_large(tmp_path: Path) -> None:
    (line,) = serves(tmp_path / "cache", before_publishing=":limit_files")["warnings"]
    assert "File too large" in line and "[SW606]" in line
    assert open_store(tmp_path / "cache").entries() == [] and not list(tmp_path.rglob(".tmp-*"))
    assert serves(tmp_path / "cache")["warnings"] == []
    assert run(tmp_path / "cache", path=CASE)["hit"]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files to other users needs root")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    serves(folder)
    os.chown(folder, 65534, -1)
    (line,) = serves(folder)["warnings"]
    assert "belongs to the user 65534, not to 0" in line and "[SW604]" in line
    os.chown(folder, 0, -1)
    assert run(folder, path=CASE)["hit"]


def test_without_locks_each_builds_and_it_is_kept(tmp_path: Path) -> None:
    (line,) = serves(tmp_path / "cache", "without_locks")["warnings"]
    assert "locks do not work in the cache folder" in line and "No locks available" in line
    told = run(tmp_path / "cache", "without_locks", path=CASE)
    assert (told["right"], told["hit"], told["warnings"]) == (True, True, [])


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    (line,) = serves(tmp_path / "cache")["warnings"]
    assert "is no folder" in line and "[SW604]" in line


# -- the folder that is set in the config


def test_the_configs_folder_wins_over_the_environments(tmp_path: Path) -> None:
    own, environments = tmp_path / "own", tmp_path / "environments"
    serves(environments, cache_dir=str(own))
    assert len(open_store(own).entries()) == 1 and not environments.exists()
    told = run(environments, path=CASE, cache_dir=str(own))
    assert (told["right"], told["hit"]) == (True, True)
    # It is no part of the key, nor of what is kept.
    own.rename(environments)
    told = run(environments, path=CASE)
    assert (told["right"], told["hit"]) == (True, True)
    (entry,) = open_store(environments).entries()
    assert "cache_dir" not in str(entry.manifest) and str(own) not in str(entry.manifest)


def test_the_home_folder_is_found(tmp_path: Path) -> None:
    serves(tmp_path / "no", variables={"HOME": str(tmp_path)}, cache_dir="~/kept")
    assert len(open_store(tmp_path / "kept").entries()) == 1 and not (tmp_path / "no").exists()


def test_turned_off_in_the_environment_it_is_off(tmp_path: Path) -> None:
    own = tmp_path / "own"
    told = serves(tmp_path / "no", variables={"SIZEWISE_DISABLE_COMPILE_CACHE": "1"}, cache_dir=str(own))
    assert told["why"] == "the cache is turned off" and not own.exists()


def test_a_folder_in_the_config_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (line,) = serves(tmp_path / "no", cache_dir=str(tmp_path / "file" / "below"))["warnings"]
    assert "[SW604]" in line and "cache_dir in the config" in line


def test_files_left_by_a_limit_are_swept(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    serves(folder, before_publishing=":limit_files")
    for path in (folder / "programs-1" / "blobs").rglob("*"):
        if path.is_file():
            age(path, 3700)
    assert open_store(folder).prune().entries == 0
    assert not [path for path in (folder / "programs-1" / "blobs").rglob("*") if path.is_file()]
