"""The store's folder and its disk: whom it is trusted from, read-only, full, of somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sizewise.cache import Store, cache_root, open_store
from sizewise.cache.files import make_folder
from sizewise.errors import cache as errors

from .cache_support import (
    FIELDS,
    FILES,
    KEY,
    OTHER_KEY,
    all_files,
    child,
    contents,
    mounted,
    publish,
    published,
    store,
)

__all__ = ["store"]

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to other users needs root")
NOBODY = 65534


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIZEWISE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert cache_root() == tmp_path / "xdg" / "sizewise"
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "own"))
    assert cache_root() == tmp_path / "own" and open_store().folder == tmp_path / "own" / "programs-1"
    (tmp_path / "link").symlink_to(tmp_path / "own")
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "link"))
    published(open_store())
    assert (tmp_path / "own" / "programs-1" / "entries").is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702, 0o720])
@pytest.mark.parametrize("place", ["", "programs-1", "programs-1/blobs", "programs-1/entries", "programs-1/locks"])
def test_a_folder_that_others_may_write_is_refused(
    store: Store, place: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    entry = published(store)
    before = all_files(store.root)
    (store.root / place).chmod(mode)
    refused = open_store(store.root)
    assert isinstance(refused.problem, errors.CacheFolderRefused)
    assert f"mode {mode:04o}" in str(refused.problem) and "chmod go-w" in str(refused.problem)
    assert refused.candidates(KEY) == refused.entries() == []
    with refused.building(KEY, timeout=5) as token:
        assert token.state == "unavailable"
        assert refused.publish(KEY, {**FIELDS, "n": 2}, FILES, token=token) is None
    for action in (refused.prune, refused.clear, refused.verify):
        with pytest.raises(errors.CacheFolderRefused):
            action()
    refused.discard(entry)
    assert caplog.text.count("[SW604]") == 1
    assert [path for path in all_files(store.root) if path in before] == before


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    store = open_store(tmp_path / "cache")
    assert store.problem is not None and "is no folder" in str(store.problem)
    assert open_store(tmp_path / "cache" / "below").problem is not None


def test_a_link_into_nowhere(tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to(tmp_path / "cache")
    store = open_store(tmp_path / "cache")
    assert store.problem is not None and publish(store) is None


@ROOT_ONLY
def test_a_folder_or_file_of_somebody_else_is_not_used(store: Store) -> None:
    entry = published(store)
    blob = store.layout.blob(entry.facts["caller.py"].sha256)
    os.chown(blob, NOBODY, -1)
    with pytest.raises(errors.CacheFileDamaged, match="belongs to the user 65534, not to 0"):
        store.candidates(KEY)[0].read("caller.py")
    manifest = store.layout.manifest(KEY, entry.id)
    os.chown(manifest, NOBODY, -1)
    assert store.candidates(KEY) == []
    # Published again, both are ours.
    assert contents(published(store)) == FILES and blob.stat().st_uid == 0
    os.chown(store.folder, NOBODY, -1)
    refused = open_store(store.root)
    assert refused.candidates(KEY) == [] and "programs-1 in it belongs to" in str(refused.problem)


AS_SOMEBODY_ELSE = """
os.setgid(65534); os.setuid(65534)
told = []
store = open_store(root, tell=lambda name, **fields: told.append(fields["code"]))
read = [all(entry.read(name) == FILES[name] for name in FILES) for entry in store.candidates(KEY)]
with store.building(KEY, timeout=5) as token:
    kept = store.publish(KEY, {"n": 2}, FILES, token=token)
    kept = kept or store.publish(KEY, {"n": 3}, FILES, token=token)
tell(read=read, kept=kept is not None, state=token.state, told=told)
"""


@ROOT_ONLY
@pytest.mark.parametrize(("readable", "read"), [(True, [True]), (False, [])])
def test_what_root_made_may_be_read_by_all(readable: bool, read: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = open_store(Path(folder) / "cache")
        published(store)
        if readable:
            subprocess.run(["chmod", "-R", "a+rX", str(store.root)], check=True)
        with child(AS_SOMEBODY_ELSE, store.root) as somebody:
            code = "SW606" if readable else "SW604"
            assert somebody.told() == {"read": read, "kept": False, "state": "unavailable", "told": [code]}
        assert not store.verify().problems and len(store.entries()) == 1


def test_without_the_right_to_write(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere; see test_what_root_made_may_be_read_by_all")
    store = open_store(tmp_path / "cache")
    published(store)
    folders = [path for path in [store.root, *store.root.rglob("*")] if path.is_dir()]
    try:
        for folder in folders:
            folder.chmod(0o500)
        assert contents(open_store(store.root).candidates(KEY)[0]) == FILES
        assert publish(store, n=2) is None
    finally:
        for folder in folders:
            folder.chmod(0o700)
    assert publish(store, n=2) is not None


def test_a_disk_that_is_read_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path / "disk", "size=4m,mode=0700") as disk:
        entry = published(open_store(disk))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        store = open_store(disk)
        assert contents(store.candidates(KEY)[0]) == FILES
        for number in range(2):
            with store.building(KEY, timeout=5) as token:
                assert token.state == "unavailable"
                assert store.publish(KEY, {**FIELDS, "n": number}, FILES, token=token) is None
        assert caplog.text.count("[SW606]") == 1 and "Read-only file system" in caplog.text
        assert not store.verify().problems
        with pytest.raises(errors.CacheUnavailable, match="Read-only file system"):
            store.clear()
        with pytest.raises(errors.CacheUnavailable, match="Read-only file system"):
            store.prune(0)
        store.discard(entry)
        assert contents(store.candidates(KEY)[0]) == FILES
        empty = open_store(disk / "below")
        assert publish(empty) is None and empty.candidates(KEY) == []


def test_a_disk_that_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path / "disk", "size=1m,mode=0700") as disk:
        store = open_store(disk)
        small = published(store)
        before = all_files(disk)
        large = {f"piece_{number}": os.urandom(300_000) for number in range(6)}
        for _ in range(2):
            assert publish(store, OTHER_KEY, large) is None
        assert "No space left on device" in caplog.text and caplog.text.count("[SW606]") == 1
        assert not list(disk.rglob(".tmp-*"))
        # Some of its files found room: they are named by nothing.
        assert {path.parts[-3] for path in set(all_files(disk)) - set(before)} <= {"blobs", "programs-1"}
        assert contents(store.candidates(KEY)[0]) == FILES and contents(small) == FILES
        store.clear()
        assert contents(published(store)) == FILES


def test_not_even_the_manifest_fits(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m,mode=0700") as disk:
        store = open_store(disk)
        filler = disk / "filler"

        def fill(step: str) -> None:
            if step == "blobs there":
                with filler.open("wb") as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                            file.flush()
                    except OSError:
                        pass

        with store.building(KEY, timeout=5) as token:
            assert store.publish(KEY, FIELDS, FILES, token=token, stage=fill) is None
        assert store.candidates(KEY) == [] and not list(disk.rglob(".tmp-*"))
        filler.unlink()
        assert contents(published(store)) == FILES


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
store = open_store(root)
with store.building(KEY, timeout=5) as token:
    state, kept = token.state, store.publish(KEY, FIELDS, FILES, token=token)
    small = store.publish(KEY, FIELDS, {"caller.py": FILES["caller.py"]}, token=token)
tell(state=state, kept=kept is not None, small=small.read("caller.py") == FILES["caller.py"])
"""


def test_a_file_that_may_not_get_that_large(store: Store) -> None:
    """A quota in the middle of a file, without root's rights: the limit of a process."""
    with child(LIMITED, store.root) as limited:
        assert limited.told() == {"state": "held", "kept": False, "small": True}
        assert limited.end() == 0
    assert not list(store.root.rglob(".tmp-*")) and not store.verify().problems


def test_a_folder_that_another_process_makes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, wanted = os.mkdir, tmp_path / "a" / "b" / "c"

    def outrun(path: Path, mode: int = 0o777) -> None:
        if path == wanted and not wanted.parent.exists():
            for folder in (wanted.parent.parent, wanted.parent):
                original(folder)
            raise FileNotFoundError(path)
        original(path, mode)

    monkeypatch.setattr(os, "mkdir", outrun)
    make_folder(wanted)
    assert wanted.is_dir()
    with pytest.raises(FileNotFoundError):
        make_folder(Path("/proc/nowhere/below"))
