"""The child's part of `proof`: loads what is to be saved and runs its pieces on what they were given elsewhere.

A task is a folder: ``task.json``, the files of the program below ``files``, and for each piece ``NAME.inputs`` and
``NAME.results`` as ``torch.save`` writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .. import ambient
from ..locks import ForkLock
from ..program import load_caller
from .pieces import load_pieces
from .scope import NotThere, find_operator, read_scope
from .values import decode, encode

ANSWER = "sizewise proof: "
EQUAL, WRONG, MISSING = "equal", "wrong", "missing"
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")
_ALLOCATE = "empty_strided_cpu"
_MEMORY = ForkLock()
"""Held while generated code has another allocator: builds of one model share that code."""
_COMPILERS = ("torch._dynamo", "torch._inductor")


def write_task(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes], pieces: Sequence[str]) -> None:
    """The task, but for what pieces are given."""
    (folder / "files").mkdir()
    for name, content in files.items():
        (folder / "files" / name).write_bytes(content)
    (folder / "task.json").write_text(json.dumps({"manifest": manifest, "pieces": list(pieces)}))


def write_inputs(folder: Path, name: str, inputs: list[Any], state: tuple[Any, ...], device_type: str) -> None:
    """What the piece ``name`` is given, with whole storages, so that strides and shared memory stay as they are."""
    plain = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    torch.save({"inputs": plain}, folder / f"{name}.inputs")
    (folder / f"{name}.json").write_text(json.dumps({"state": [encode(part) for part in state], "device": device_type}))


def write_results(folder: Path, name: str, runnable: Callable[[list[Any]], Any]) -> None:
    """What the piece makes of its inputs, and what it leaves in them."""
    torch.save({"results": _results(folder, name, runnable)}, folder / f"{name}.results")


def _results(folder: Path, name: str, runnable: Callable[[list[Any]], Any]) -> list[Any]:
    inputs = torch.load(folder / f"{name}.inputs", weights_only=True)["inputs"]
    generator = torch.default_generator  # torch.manual_seed imports torch's compilers
    before = generator.get_state()
    generator.manual_seed(0)
    try:
        with _MEMORY, _zeroed_memory(runnable):
            results = runnable(list(inputs))
    finally:
        generator.set_state(before)
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in [*results, *inputs]]


@contextmanager
def _zeroed_memory(runnable: Callable[..., Any]) -> Iterator[None]:
    """Memory that generated code allocates is zero: a result that is left for an operator to fill is then always equal.

    The name is Inductor's. Checked on torch 2.13.0.
    """
    scope: dict[str, Any] = getattr(runnable, "__globals__", {})
    allocate = scope.get(_ALLOCATE)
    if allocate is None:
        yield
        return
    scope[_ALLOCATE] = lambda *layout: allocate(*layout).zero_()
    try:
        yield
    finally:
        scope[_ALLOCATE] = allocate


def main() -> None:
    """Print the answer about the task in the folder that is the command's argument."""
    started: list[str] = []
    sys.addaudithook(lambda event, args: started.append(f"{event} {args[:1]}") if event in _STARTS else None)
    try:
        what = _look(Path(sys.argv[1]), started)
        answer = {"verdict": WRONG if what else EQUAL, "what": what}
    except NotThere as problem:
        answer = {"verdict": MISSING, "what": str(problem)}
    except Exception as problem:
        answer = {"verdict": WRONG, "what": f"loading it raised {type(problem).__name__}: {problem}"}
    sys.stdout.write(f"\n{ANSWER}{json.dumps(answer)}\n")


def _look(folder: Path, started: list[str]) -> str:
    """What is wrong, or ''."""
    task = json.loads((folder / "task.json").read_text())
    manifest = task["manifest"]
    for program in manifest["programs"]:
        for operator in program["operators"]:
            find_operator(operator, "")
    scopes = [read_scope(program["scope"]) for program in manifest["programs"]]
    # Operators and classes of others may have imported them, or started something, when they were imported.
    there, known = [name for name in _COMPILERS if name in sys.modules], len(started)
    pieces, second = load_pieces(manifest, lambda name: (folder / "files" / name).read_bytes())
    for program, scope in zip(manifest["programs"], scopes, strict=True):
        source = (folder / "files" / program["source"]).read_text()
        for variant in program["variants"]:
            load_caller(source, scope, [pieces[name] for name in variant["pieces"]], "proved")
    for name in task["pieces"]:
        problem = _compare(folder, name, pieces[name])
        if problem:
            return f"piece {name}: {problem}"
    if len(started) > known:
        return f"it started {started[known]}"
    imported = [name for name in _COMPILERS if name in sys.modules and name not in there]
    # Torch's artifacts need them, and an operator that is written in Python imports them when it runs.
    if imported and not second and not any(program["operators"] for program in manifest["programs"]):
        return f"it imports {', '.join(imported)}"
    return ""


def _compare(folder: Path, name: str, piece: Callable[[list[Any]], Any]) -> str:
    built_for = json.loads((folder / f"{name}.json").read_text())
    state = tuple(decode(part) for part in built_for["state"])
    with ambient.as_it_was(state, built_for["device"]), torch.no_grad():
        seen = _results(folder, name, piece)
    wanted = torch.load(folder / f"{name}.results", weights_only=True)["results"]
    if len(seen) != len(wanted):
        return f"{len(seen)} results and inputs instead of {len(wanted)}"
    for place, (first, second) in enumerate(zip(wanted, seen, strict=True)):
        if not _same(first, second):
            return f"result or input {place} is not what it was in this process, bit for bit"
    return ""


def _same(first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return type(first) is type(second) and bool(first == second)
    if first.dtype != second.dtype or first.shape != second.shape or first.stride() != second.stride():
        return False
    return torch.equal(_bits(first), _bits(second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
