"""The machine: what it is, and what Inductor finds out about it once."""

from __future__ import annotations

import os
import platform
import shutil
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .._version import __version__
from .results import Machine

THREADS = 1


def describe() -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=THREADS,
        torch=_version_of("torch"),
        transformers=_version_of("transformers"),
        python=platform.python_version(),
        sizewise=__version__,
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def prepare(snapshot: str) -> None:
    """Pay what Inductor pays once per machine, so that no contestant pays it alone. Runs in the worker.

    Two things, as of torch 2.13: a probe of the vector instruction sets, kept in the cache directory
    (copied to ``snapshot``, from which every contestant's otherwise empty cache starts), and a
    precompiled header, kept in one place per user whatever the cache directory is.
    """
    import torch
    from torch._inductor import cpu_vec_isa
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    torch.set_num_threads(THREADS)
    cpu_vec_isa.pick_vec_isa()
    shutil.copytree(cache_dir(), snapshot, dirs_exist_ok=True)
    torch.compile(lambda x: x + 1)(torch.ones(64))
