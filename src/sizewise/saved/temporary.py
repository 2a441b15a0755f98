"""The file that a bundle is written to before it takes its name, and what killed writers left of theirs.

Its name says whose it is: the writer's process, when that began, and the place in which such a number means it (the
run of the machine, and the container). What belongs to another place is left alone: whether its writer lives cannot be
seen from here.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_OWNER = re.compile(r"([0-9]{1,9})-([0-9]*)-([0-9a-f]{8})-[0-9a-f]{12}")
_LONGEST = 120
"""Bytes of the target's name in the temporary one, which has to be a name as well."""
_ENDED = ("Z", "X")
"""States of a process that has ended and was not waited for yet."""


def create(path: Path) -> tuple[int, Path]:
    """A new file beside ``path``, open for writing, that only the user can read; and its own path.

    Raises:
        OSError.
    """
    pid = os.getpid()
    owner = f"{pid}-{_process(pid)[1]}-{_place()}-{os.urandom(6).hex()}"
    temporary = path.with_name(_prefix(path) + owner)
    return os.open(temporary, _CREATE, 0o600), temporary


def remove_stale(path: Path) -> list[Path]:
    """Remove the temporary files beside ``path`` whose writers are dead, as far as that can be done; which it were."""
    removed = []
    prefix = _prefix(path)
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and _is_dead(entry.name.removeprefix(prefix)):
                with suppress(OSError):
                    if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                        os.unlink(entry.path)
                        removed.append(Path(entry.path))
    return removed


def _prefix(path: Path) -> str:
    return f".{os.fsdecode(os.fsencode(path.name)[:_LONGEST])}.writing-"


def _is_dead(owner: str) -> bool:
    """Whether the writer that a name tells of was one of this place, and lives no more."""
    found = _OWNER.fullmatch(owner)
    if found is None or found[3] != _place():
        return False
    pid = int(found[1])
    if not _exists(pid):
        return True
    state, start = _process(pid)
    return state in _ENDED or bool(start and found[2] and start != found[2])


def _exists(pid: int) -> bool:
    """Asked of the system: /proc may hide what belongs to others."""
    if sys.platform == "win32":
        return True  # there, os.kill kills whatever the signal
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _process(pid: int) -> tuple[str, str]:
    """A process's state and when it began, each "" where the system does not tell."""
    try:
        # Behind the program's name, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), fields[19].decode()
    except (OSError, IndexError):
        return "", ""


def _place() -> str:
    """What tells one run of one machine, and one container on it, from others."""
    parts = [os.uname().nodename if hasattr(os, "uname") else ""]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
