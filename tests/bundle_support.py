"""How tests of bundles build in one process and load in others, which have no compiler to fall back on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .command_line import environment

ROOT = Path(__file__).resolve().parent.parent

MODEL = '''
import torch
from torch import nn

from helper import shaped, Config

FACTOR = 2.0


class Net(nn.Module):
    def __init__(self, width=8, scale=2.0, bias=True):
        super().__init__()
        self.first, self.second = nn.Linear(4, width, bias=bias), nn.Linear(width, 4)
        self.config = Config(scale)
        self.note, self.drop = "not read", nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(shaped(self.second(torch.relu(self.first(x))))) * self.config.scale * FACTOR


class Tied(nn.Module):
    """Two layers, which may have one weight."""

    def __init__(self, tied):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        if tied:
            self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x).sin())


class Calls(nn.Module):
    """Calls an operator that somebody else defines, between pieces."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(torch.ops.bundle_test.twice(self.lin(x)).sin())


class Other(Net):
    pass


class Writes(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x.sin() + self.calls
'''
HELPER = """
class Config:
    def __init__(self, scale):
        self.scale = scale
        self.other = 1


def shaped(x, shift=1.0):
    # a comment
    return x.sin() + shift
"""
OPERATOR = """
import torch

LIBRARY = torch.library.Library("bundle_test", "FRAGMENT")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("twice", lambda x: torch.empty_like(x), "Meta")
"""
PRELUDE = """
import json, os, sys
import torch

torch.set_num_threads(1)
torch.manual_seed(0)


def tell(**fields):
    print(json.dumps(fields), flush=True)


def compiler_modules():
    heads = ("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy")
    return sorted(name for name in sys.modules if name.startswith(heads))


def bits(value):
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return [str(value.dtype), list(value.shape), list(value.stride()), raw.hex()]
    if isinstance(value, dict):
        return {str(key): bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(bits, value))
    return repr(value)
"""
"""What every child begins with."""

SERVE = """
import traceback


def serve(case):
    import sizewise

    torch.set_num_threads(1)
    os.chdir(case["folder"])
    sys.path[:0] = [case["folder"], *case["path"]]
    scope = {"torch": torch}
    torch.manual_seed(case["seed"])
    try:
        exec(case["code"], scope)
        fast = sizewise.load(case["bundle"], scope["model"])
    except sizewise.SizewiseError as problem:
        return {"error": problem.code, "text": str(problem), **{k: str(v) for k, v in problem.fields.items()}}
    answers, right = [], True
    for rows in (1, 2, 5, 16):
        torch.manual_seed(rows)
        x = torch.randn(rows, *case["shape"])
        with torch.no_grad():
            seen = fast(x)
            right &= torch.allclose(seen, scope["model"](x), atol=1e-5)
        answers.append(bits(seen))
    return {"answers": answers, "right": right, "compilers": compiler_modules()}


for case in json.load(sys.stdin):
    if os.fork() == 0:
        try:
            tell(name=case["name"], **serve(case))
        except BaseException:
            tell(name=case["name"], crash=traceback.format_exc())
        os._exit(0)
    _, status = os.wait()
    if status:
        tell(name=case["name"], crash=f"status {status}")
"""
"""Each case in a process of its own, forked from one that has imported nothing but torch."""


def python(code: str, *arguments: str, folder: Path, given: Any = None, **changes: str) -> list[dict[str, Any]]:
    """The lines of JSON that a new Python process tells."""
    command = [sys.executable, "-c", PRELUDE + code, *arguments]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    variables = environment(**{"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **changes})
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, env=variables, cwd=folder, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def bare(folder: Path) -> dict[str, str]:
    """Variables of a process that finds no compiler and nothing compiled before."""
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    return {"PATH": str(empty), "TORCHINDUCTOR_CACHE_DIR": str(empty / "inductor"), "CXX": "", "CC": ""}


def write_sources(folder: Path, **changed: str) -> Path:
    """A folder with the model's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"model": MODEL, "helper": HELPER, "operator_of_others": OPERATOR, **changed}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def case(name: str, folder: Path, bundle: Path, code: str, **more: Any) -> dict[str, Any]:
    """One load: ``code`` makes ``model``; ``folder`` holds its sources."""
    text = {"name": name, "folder": str(folder), "bundle": str(bundle), "code": code, "seed": 0}
    return {**text, "shape": [4], "path": [], **more}


def served(cases: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """What each case told, by its name."""
    return {told.pop("name"): told for told in python(SERVE, folder=folder, given=list(cases), **bare(folder))}


def members(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(
    path: Path, contents: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None
) -> Path:
    """An archive of ``contents``, whatever is in them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name)
            if change is not None:
                change(entry)
            archive.writestr(entry, data)
    return path
