"""Checks of what Inductor compiles with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from .blame import cause_of
from .checkup import FAIL, OK, WARN, WITHOUT_COMPILER, Row

CACHE_GIB = 1.0
COMPILE_SECONDS = 60

INSTALL_COMPILER = f"install one (Debian: apt-get install g++; Fedora: dnf install gcc-c++), {WITHOUT_COMPILER}"

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
        todo = f"install them (Debian: apt-get install python{version}-dev), {WITHOUT_COMPILER}"
        return Row("Python headers", FAIL, problem, todo)
    return Row("Python headers", OK, str(include))


def openmp() -> Row:
    path = _find_compiler()
    if not path:
        return Row("OpenMP", WARN, "not looked at: there is no C++ compiler")
    problem, output = build_and_run(path, OPENMP, "-fopenmp")
    if problem:
        todo = f"install it (Debian: apt-get install libgomp1, with clang libomp-dev), {WITHOUT_COMPILER}"
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
