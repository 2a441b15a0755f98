"""A bundle: one file, a ZIP archive without compression, of a manifest and the files it lists with their digests.

Nothing in it is run, or loaded, before the whole archive was checked: its names, its size, each file's digest. Who
can write the file can run code in the process that loads it: the digests tell damage, not malice. On the first path
nothing is a pickle; pieces on the second path (`pieces`) are pickles of torch's, unpickled after that check.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..errors import bundle as errors
from .temporary import create, remove_stale

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
"""Of the manifest itself, as the command sha256sum writes it."""
MOST_FILES = 10_000
MOST_BYTES = 4 << 30
"""Larger archives are refused before anything is read."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_AT_ONCE = ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY")
"""Of opening a file; not every system has all of them."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def listed(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """What a manifest says about its files."""
    return {name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in files.items()}


def check_writable(path: Path) -> None:
    """Raises CannotSave (SW614) where `write` could not put a bundle; changes nothing."""
    with _named(path):
        _refuse_other_kinds(path)
        # Only trying tells: root, quotas and read-only mounts all escape the permission bits.
        handle, temporary = create(path)
        os.close(handle)
        os.unlink(temporary)


def write(path: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write a bundle, whole or not at all. The same contents give the same bytes.

    Raises:
        CannotSave (SW614), which is an OSError.
    """
    with _named(path):
        _refuse_other_kinds(path)
        remove_stale(path)
        handle, temporary = create(path)
        try:
            with os.fdopen(handle, "wb") as stream:
                _write_archive(stream, manifest, files)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _write_archive(stream: IO[bytes], manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        text = json.dumps({**manifest, "files": listed(files)}, indent=1).encode()
        for name, data in {MANIFEST: text, DIGEST: _digest_line(text), **files}.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except errors.CannotSave:
        raise
    except FileNotFoundError as problem:
        words = f"there is no directory {path.parent}" if not path.parent.exists() else problem.strerror or str(problem)
        raise errors.CannotSave(path=path, problem=words) from problem
    except OSError as problem:
        raise errors.CannotSave(path=path, problem=problem.strerror or str(problem)) from problem
    except ValueError as problem:
        # A path with a zero byte in it.
        raise errors.CannotSave(path=path, problem=str(problem)) from problem


def _refuse_other_kinds(path: Path) -> None:
    """What is there is replaced, which would take a device or a pipe away. Raises CannotSave, OSError."""
    with suppress(FileNotFoundError):
        kind = _kind(os.stat(path).st_mode)
        if kind:
            raise errors.CannotSave(path=path, problem=f"it is {kind}")


def _kind(mode: int) -> str:
    """What it is that is no regular file, in words, or ""."""
    if stat.S_ISREG(mode):
        return ""
    kinds = {stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a device")


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files, each checked against it.

    Raises:
        NotABundle (SW611): the file is none, is damaged, or holds something that no bundle does.
    """
    try:
        with _opened(path) as stream, zipfile.ZipFile(stream) as archive:
            names = _checked_names(archive, os.fstat(stream.fileno()).st_size)
            contents = {name: archive.read(name) for name in names}
    except _Refused as problem:
        raise errors.NotABundle(path=path, problem=str(problem)) from None
    except FileNotFoundError:
        raise errors.NotABundle(path=path, problem="there is no such file") from None
    except OSError as problem:
        raise errors.NotABundle(path=path, problem=f"it cannot be read ({problem.strerror or problem})") from None
    except Exception as problem:
        # Of a damaged archive zipfile raises many kinds.
        words = f"it is damaged, or no archive at all ({type(problem).__name__}: {problem})"
        raise errors.NotABundle(path=path, problem=words) from None
    try:
        manifest = _checked_manifest(contents.pop(MANIFEST), contents.pop(DIGEST), contents)
    except _Refused as problem:
        raise errors.NotABundle(path=path, problem=str(problem)) from None
    return manifest, contents


def _opened(path: Path) -> IO[bytes]:
    """A regular file, open for reading: anything else could keep a reader waiting, or never end.

    Raises:
        _Refused, OSError.
    """
    # Before it is opened, which does something to some devices; and after it, since it may be another file by then.
    _refuse_reading(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | sum(getattr(os, name, 0) for name in _AT_ONCE))
    try:
        _refuse_reading(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_reading(info: os.stat_result) -> None:
    kind = _kind(info.st_mode)
    if kind:
        raise _Refused(f"it is {kind}, not a file")


class _Refused(Exception):
    """Why an archive is not read."""


def _digest_line(manifest: bytes) -> bytes:
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


def _checked_names(archive: zipfile.ZipFile, whole: int) -> list[str]:
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(names) > MOST_FILES:
        raise _Refused(f"it holds {len(names)} files, and {MOST_FILES} at most are read")
    if len(set(names)) != len(names):
        raise _Refused("it holds two files of one name")
    for name in (MANIFEST, DIGEST):
        if name not in names:
            raise _Refused(f"it holds no {name}")
    for entry in entries:
        if not _NAME.fullmatch(entry.filename):
            raise _Refused(f"it holds a file with the name {entry.filename!r}, which is no plain one")
        if entry.is_dir() or (entry.external_attr >> 28) not in (0, 0o10):
            raise _Refused(f"its {entry.filename} is no plain file")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise _Refused(f"its {entry.filename} is compressed or encrypted, which bundles are not")
    size = sum(entry.file_size for entry in entries)
    if size > MOST_BYTES:
        raise _Refused(f"its files take {size} bytes, and {MOST_BYTES} at most are read")
    if size > whole:
        raise _Refused(f"its files take {size} bytes and it has {whole}: they lie in one another")
    return names


def _checked_manifest(text: bytes, digest_line: bytes, contents: Mapping[str, bytes]) -> dict[str, Any]:
    if digest_line != _digest_line(text):
        raise _Refused(f"its {MANIFEST} is not what was written (another digest)")
    try:
        manifest = json.loads(text)
        files = {name: (item["sha256"], item["size"]) for name, item in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise _Refused(f"its {MANIFEST} is damaged ({type(problem).__name__}: {problem})") from None
    strangers = sorted(contents.keys() ^ files.keys())
    if strangers:
        what = "holds {} without listing it" if strangers[0] in contents else "lists {} without holding it"
        raise _Refused(f"it {what.format(strangers[0])}")
    for name, (digest, size) in files.items():
        if len(contents[name]) != size or hashlib.sha256(contents[name]).hexdigest() != digest:
            raise _Refused(f"its {name} is not what the manifest lists (another digest)")
    found: dict[str, Any] = manifest
    return found
