"""How much memory this process could still allocate, and which exception says that there was not enough."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

_CGROUPS = Path("/sys/fs/cgroup")
_SIGNS = ("can't allocate memory", "not enough memory", "out of memory")
"""What the messages of torch's allocators have in them."""


def available(device: str) -> int | None:
    """Bytes that this process could still allocate on ``device`` ("cpu", "cuda"); None where nothing says so."""
    if device == "cuda":
        free: int = torch.cuda.mem_get_info()[0]
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    limits = [*_system(), *_cgroups(), *_process_limits()]
    return max(0, min(limits)) if limits else None


def _system() -> Iterator[int]:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
            return
    # Where the system does not say what is available, what there is in all.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroups() -> Iterator[int]:
    """What the process's control groups and those above them leave; version 2 and version 1."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _CGROUPS / "memory" if controllers else _CGROUPS
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        group = root / path.strip("/")
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(root))):
            limit, used = (_text(folder / name).strip() for name in names)
            if limit.isdigit() and used.isdigit():
                yield int(limit) - int(used) + _reclaimable(folder)


def _reclaimable(folder: Path) -> int:
    """Files in memory that are dropped when memory is wanted, which a group's usage counts."""
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _process_limits() -> Iterator[int]:
    """What ``ulimit`` leaves of the process's address space and data."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    pages = _text(Path("/proc/self/statm")).split()
    if len(pages) < 6:
        return
    for kind, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit - int(used) * resource.getpagesize()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def allocation_failure(problem: BaseException | None) -> BaseException | None:
    """The failed allocation in a chain of exceptions, or None."""
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        text = str(problem)
        if isinstance(problem, (MemoryError, torch.OutOfMemoryError)):
            return problem
        if isinstance(problem, RuntimeError) and any(sign in text for sign in _SIGNS):
            return problem
        problem = problem.__cause__ or problem.__context__
    return None
