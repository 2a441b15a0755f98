"""One builder per key, on one machine and across machines that share a folder.

The lock between processes is a POSIX record lock (``fcntl.lockf``). A ``flock`` belongs to the open file, which a
forked child shares: a builder that is killed would leave it to its workers, which know nothing of it. A record lock
belongs to the process and ends with it.

Record locks have two weak points, both within one process: they do not keep its threads apart, and closing *any*
descriptor of the file loses them. So a thread first takes a ``flock`` on a file that only its process uses, and only
while it has that does it touch the file with the record lock.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .files import make_folder

if sys.platform != "win32":
    import fcntl

OnWait = Callable[[float, str], None]
"""Called while waiting with the seconds waited so far and who holds the lock, in words."""

LOCK, THREADS = ".lock", ".threads"
_EVERY = 1.0
_PAUSE = (0.002, 0.05)
"""Seconds between two looks at a lock: at first, and after a while."""
_BUSY = (errno.EACCES, errno.EAGAIN)
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""What a file system says that has no locks."""


@dataclass
class Token:
    """What a builder has. It publishes with this, in the process that got it, until its block ends."""

    key: str
    state: Literal["held", "timeout", "unavailable"] = "unavailable"
    """``held``: nobody else builds. ``timeout``: somebody still does, build without waiting any longer.
    ``unavailable``: locks do not work here, build without."""
    waited: float = 0.0
    """Seconds. After a wait that ends with ``held`` the program may be there: look again."""
    owner: str = ""
    """Who was waited for last, in words."""
    problem: OSError | None = None
    """Why it is ``unavailable``, where the system said so."""
    pid: int = field(default_factory=os.getpid)
    over: bool = False

    def refusal(self, key: str) -> str:
        """Why this is no leave to publish under ``key``, or ""."""
        if os.getpid() != self.pid:
            return f"it was forked from the builder, process {self.pid}"
        if self.over:
            return "its block has ended"
        return "" if key == self.key else f"it builds {self.key}"


@contextmanager
def building(folder: Path, key: str, *, timeout: float, on_wait: OnWait | None = None) -> Iterator[Token]:
    """Wait up to ``timeout`` seconds to be the one who builds ``key``; never fails, see `Token.state`."""
    token, lock = Token(key), _Lock(folder, key)
    try:
        lock.acquire(token, timeout, on_wait)
        yield token
    finally:
        token.over = True
        lock.release(token.pid)


class _Lock:
    """Both locks of a key."""

    def __init__(self, folder: Path, key: str) -> None:
        # A shared folder has processes of several machines, whose numbers may be the same.
        machine = hashlib.sha256(os.fsencode(_machine())).hexdigest()[:8]
        self._threads = _LockFile(folder / f"{key}.{machine}-{os.getpid()}{THREADS}", whole_process=False)
        self._processes = _LockFile(folder / f"{key}{LOCK}", whole_process=True)
        self._folder = folder

    def acquire(self, token: Token, timeout: float, on_wait: OnWait | None) -> None:
        if sys.platform == "win32":
            return
        began = time.monotonic()
        waiting = _Waiting(began, began + timeout, token, on_wait)
        try:
            make_folder(self._folder)
            got = waiting.until(self._threads, lambda: f"another thread of this process ({os.getpid()})")
            got = got and waiting.until(self._processes, self._processes.owner)
        except OSError as problem:
            # A read-only folder, or a file system without locks.
            token.state, token.problem = "unavailable", problem
        else:
            token.state = "held" if got else "timeout"
            if got:
                self._processes.sign()
        token.waited = time.monotonic() - began

    def release(self, owner: int) -> None:
        """In a forked child this only closes: the locks are its parent's."""
        ours = os.getpid() == owner
        # The file with the record lock first, since other threads wait for leave to open it.
        self._processes.close()
        self._threads.close(remove=ours)

    def remove(self) -> None:
        """Take the lock's file away; only while it is held."""
        with contextlib.suppress(OSError):
            os.unlink(self._processes.path)


@dataclass
class _Waiting:
    began: float
    deadline: float
    token: Token
    on_wait: OnWait | None
    told: float = float("-inf")

    def until(self, file: _LockFile, owner: Callable[[], str]) -> bool:
        """Whether the file was locked in time. Raises OSError where locks do not work."""
        pause, longest = _PAUSE
        while not file.attempt():
            now = time.monotonic()
            if now >= self.deadline:
                return False
            if now - self.told >= _EVERY:
                self.told, self.token.owner = now, owner()
                if self.on_wait is not None:
                    # A progress line that cannot be printed says nothing about locks.
                    with contextlib.suppress(OSError):
                        self.on_wait(now - self.began, self.token.owner)
            time.sleep(max(0.0, min(pause, self.deadline - time.monotonic())))
            pause = min(pause * 1.5, longest)
        return True


class _LockFile:
    def __init__(self, path: Path, *, whole_process: bool) -> None:
        self.path = path
        self._whole_process = whole_process
        self._descriptor = -1
        self._locked = False

    def attempt(self) -> bool:
        """Try once. Raises OSError where locks do not work."""
        if sys.platform == "win32":
            return False
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, 0o600)
        take = fcntl.lockf if self._whole_process else fcntl.flock
        try:
            take(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in _BUSY:
                return False
            raise
        self._locked = True
        if self._is_there():
            return True
        # Somebody tidied the file away between opening and locking: others will lock another one.
        self.close()
        return False

    def _is_there(self) -> bool:
        try:
            named = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(self._descriptor))

    def owner(self) -> str:
        """What the holder wrote."""
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, 200, 0).decode(errors="replace").strip() or "another process"
        return "another process"

    def sign(self) -> None:
        """Write down who holds the lock, for those who wait."""
        text = f"process {os.getpid()} on {_machine()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text.encode(), 0)

    def close(self, *, remove: bool = False) -> None:
        """Let go. ``remove`` also ends a lock that forked children share, and takes the file away."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if remove and self._locked and sys.platform != "win32":
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._locked = False
        with contextlib.suppress(OSError):
            os.close(descriptor)


def sweep(folder: Path, older_than: float) -> int:
    """Remove the files of locks that nobody holds and that are older than a time; how many it were. Raises OSError."""
    removed = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.suffix not in (LOCK, THREADS) or path.stat(follow_symlinks=False).st_mtime >= older_than:
                continue
            removed += _sweep_one(folder, path)
    return removed


def _sweep_one(folder: Path, path: Path) -> bool:
    if path.suffix == THREADS:
        file = _LockFile(path, whole_process=False)
        with contextlib.suppress(OSError):
            got = file.attempt()
            file.close(remove=got)
            return got
        file.close()
        return False
    lock, token = _Lock(folder, path.stem), Token(path.stem)
    try:
        lock.acquire(token, 0.0, None)
        if token.state == "held":
            lock.remove()
        return token.state == "held"
    finally:
        lock.release(token.pid)


def _machine() -> str:
    return os.uname().nodename if sys.platform != "win32" else ""
