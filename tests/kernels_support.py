"""What the tests of kernels share: kernels written by hand, a C++ compiler that takes notes, models of many kernels."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.runtime.cache_dir_utils import cache_dir

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.compilers import kernels
from sizewise.compilers.kernels import Kernel
from sizewise.verify.tolerance import compare

HEADER = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
POOL = ThreadPoolExecutor(2)
SHAPES = {"x": {0: Dim("batch", 1, 16)}}
NOTES, REFUSED = "TEST_CXX_NOTES", "TEST_CXX_REFUSED"


def salt() -> float:
    """A number that makes code new to every cache, also to the one that a run of the tests before this one left."""
    return int.from_bytes(os.urandom(4), "big") / 2**33 + 0.25


def kernel(body: str, *argtypes: str, before: str = "", fresh: bool = True) -> Kernel:
    """A kernel as Inductor writes them; its arguments are ``a0``, ``a1`` and so on."""
    arguments = ", ".join(f"{kind} a{place}" for place, kind in enumerate(argtypes))
    mark = f" // {salt()}" if fresh else ""
    return Kernel(argtypes, f'{HEADER}{before}\nextern "C" void kernel({arguments})\n{{{mark}\n    {body}\n}}\n')


def build(listed: Sequence[Kernel]) -> list[Callable[[], Any]]:
    return kernels.build(listed, CppPythonBindingsCodeCache, POOL.submit)


def is_joined(callable_: Any) -> bool:
    """Whether a kernel is of a joined library, where each has a name of its own; torch's own are all ``kernel``."""
    return re.fullmatch(r"kernel_\d+", callable_.__name__) is not None


def built_by(fast: Any) -> list[Any]:
    """The kernels that a compiled module calls."""
    calls = [
        entry.artifact.runnable
        for built in fast.built.entries
        for backend in built.program.backends
        for entry in backend.range_entries.values()
    ]
    scopes = [call.__globals__ for call in calls]
    return [value for scope in scopes for name, value in scope.items() if name.startswith("cpp_fused")]


class Salted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.salt = salt()


class Steps(Salted):
    """``count`` pieces between products; ``salt`` makes their code new to every cache."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.products = nn.ModuleList(nn.Linear(8, 8) for _ in range(count - 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x + self.salt).sin()
        for number, product in enumerate(self.products):
            x = (product(x) * (self.salt + number)).cos().softmax(-1)
        return x


def ready(module: nn.Module, **options: Any) -> CompiledModule:
    options = {"splitting_ops": ["aten::linear"], **options}
    fast: CompiledModule = sizewise.compile(module.eval(), dynamic_shapes=SHAPES, **options)
    return fast.warmup(torch.randn(3, 8))


def check(module: nn.Module, fast: CompiledModule) -> None:
    with torch.no_grad():
        for rows in (1, 5, 16):
            x = torch.randn(rows, 8)
            assert compare(module(x), fast(x), depth=64) is None


class Compiler:
    """g++ that notes what it is asked to build, and refuses sources that hold a text.

    It lies beside Inductor's cache, so that torch's precompiled header is made for it once, not once per test.
    """

    def __init__(self, notes: Path, patch: pytest.MonkeyPatch) -> None:
        self.notes, self._patch = notes, patch
        self.path = Path(cache_dir()) / "noting-cxx"
        wanted = (
            "#!/bin/sh\n"
            f'[ -n "${NOTES}" ] && echo "$*" >> "${NOTES}"\n'
            f'if [ -n "${REFUSED}" ]; then case "$1" in *.main.cpp) if grep -q "${REFUSED}" "$1"; then\n'
            '    echo "$1: fatal error: out of luck" >&2; exit 1\n'
            'fi;; esac; fi\nexec g++ "$@"\n'
        )
        if not self.path.exists() or self.path.read_text() != wanted:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(wanted)
            self.path.chmod(self.path.stat().st_mode | stat.S_IEXEC)
        patch.setenv(NOTES, str(notes))

    @property
    def setting(self) -> dict[str, Any]:
        return {"cpp.cxx": str(self.path)}

    def refuse(self, text: str) -> None:
        self._patch.setenv(REFUSED, text)

    def forgive(self) -> None:
        self._patch.delenv(REFUSED)

    def runs(self) -> list[str]:
        """The command lines of kernels that it was asked to build since this was asked last."""
        listed = self.notes.read_text().splitlines() if self.notes.exists() else []
        self.notes.unlink(missing_ok=True)
        return [line for line in listed if ".main.cpp" in line]


@contextmanager
def batches_seen(patch: pytest.MonkeyPatch) -> Iterator[list[list[Kernel]]]:
    """Within, the kernels of each run of the C++ compiler, as they are planned."""
    seen: list[list[Kernel]] = []

    def spy(listed: Sequence[Kernel], cache: Any, submit: Any) -> Any:
        seen.append(list(listed))
        return original(listed, cache, submit)

    original = kernels.build
    with patch.context() as patched:
        patched.setattr(kernels, "build", spy)
        yield seen
