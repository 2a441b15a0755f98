"""Reading files that are what they seem, and writing files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Stage = Callable[[str], None]
"""Called by tests with the name of each step of writing."""

TEMPORARY = ".tmp-"
"""How the names of files that are being written begin."""

_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
# Not every system has all of them. Without O_NONBLOCK, opening a pipe that lies there would wait for ever.
_READ = os.O_RDONLY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_SAFELY = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_WITHOUT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


class Unfit(Exception):
    """A file that is not what it has to be; the text says why and fits behind the file's name."""


def no_stage(step: str) -> None:
    """The `Stage` of everyone but tests."""


def distrust(info: os.stat_result) -> str:
    """Why a file or folder is not trusted, or "": as ssh, only what the user or root alone can change is."""
    if sys.platform == "win32":
        return ""
    if info.st_uid not in (os.geteuid(), 0):
        return f"belongs to the user {info.st_uid}, not to {os.geteuid()}"
    if info.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(info.st_mode):04o})"
    return ""


def read(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
    """A regular, trusted file of at most ``limit`` bytes. Raises Unfit, and OSError where nothing can be read."""
    try:
        descriptor = os.open(path, _READ | _SAFELY)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise Unfit("is a symbolic link") from None
        raise
    try:
        info = os.fstat(descriptor)
        wrong = "" if stat.S_ISREG(info.st_mode) else "is a folder" if stat.S_ISDIR(info.st_mode) else "is no file"
        wrong = wrong or distrust(info)
        if not wrong and info.st_size > limit:
            wrong = f"has {info.st_size} bytes, more than {limit}"
        if wrong:
            raise Unfit(wrong)
        return _all_of(descriptor, info.st_size), info
    finally:
        os.close(descriptor)


def _all_of(descriptor: int, size: int) -> bytes:
    parts, left = [], size
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write(path: Path, data: bytes, stage: Stage = no_stage) -> None:
    """Put ``data`` at ``path``, over what is there: whole or not at all, also after a power cut.

    The name itself is only sure to stay after `sync_folder` of the folder. Raises OSError.
    """
    descriptor, temporary = _open_temporary(path.parent)
    try:
        try:
            stage("opened")
            middle = len(data) // 2
            _put(descriptor, memoryview(data)[:middle])
            stage("half")
            _put(descriptor, memoryview(data)[middle:])
            stage("written")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        stage("synced")
        _replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    stage("renamed")


def _replace(temporary: Path, path: Path) -> None:
    """Raises OSError."""
    try:
        os.replace(temporary, path)
    except IsADirectoryError:
        remove(path)
        os.replace(temporary, path)


def remove(path: Path) -> None:
    """Remove a file of the store, or the folder that somebody put in its place, with all that is in it.

    Raises FileNotFoundError where there is none, OSError.
    """
    try:
        os.unlink(path)
    except OSError:
        if not path.is_dir() or path.is_symlink():
            raise
        # Only where it is needed: warm starts count milliseconds.
        import shutil

        shutil.rmtree(path)


def _open_temporary(folder: Path) -> tuple[int, Path]:
    """Raises OSError."""
    tries = 3
    while True:
        path = folder / f"{TEMPORARY}{os.getpid()}-{os.urandom(6).hex()}"
        try:
            return os.open(path, _WRITE | _SAFELY, _PRIVATE_FILE), path
        except FileNotFoundError:
            # Another process may tidy the folder away, being empty, right after it was made.
            tries -= 1
            if not tries:
                raise
            make_folder(folder)


def _put(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def make_folder(path: Path) -> None:
    """Make a folder for the user alone, with those above it that are missing. Raises OSError."""
    try:
        os.mkdir(path, _PRIVATE_FOLDER)
    except FileExistsError:
        return
    except FileNotFoundError:
        if path.parent == path:
            raise
        # It may be there by now, made by another process.
        make_folder(path.parent)
        # Once: behind a link to nowhere, or in /proc, there is none after that either.
        with suppress(FileExistsError):
            os.mkdir(path, _PRIVATE_FOLDER)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder sure to stay. Raises OSError."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in _WITHOUT_SYNC:
            raise
    finally:
        os.close(descriptor)


def reason(problem: OSError) -> str:
    """The system's reason, to stand behind a colon."""
    return problem.strerror or type(problem).__name__
