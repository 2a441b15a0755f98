"""Before a bundle is written: whether it serves in a fresh process that has no compiler, with the same bits.

The program runs here once more; what each of its pieces is given is written down, run again, and kept with the results.
A child process loads what would be saved, runs the pieces on the same and compares (`proving`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import ambient
from ..calls import Call
from ..dispatch import Entry
from ..program import Program, Variant
from ..verify.samples import resized, sample
from ..verify.selftest import in_range, sizes_of
from ..verify.state import ModuleState, in_words, own_copy
from . import proving

TIMEOUT = 600.0
"""Seconds the child may take."""
_COMPARED, _UNKNOWN = "equal", "not checked"


@dataclass(frozen=True)
class Proof:
    """``equal``, or ``not checked`` and why."""

    verdict: str
    why: str = ""


class Disproved(Exception):
    """Internal: a fresh process does not load it, or computes something else; the message says what."""


def prove(
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    module: torch.nn.Module,
    entries: Sequence[Entry],
    examples: Sequence[Call] = (),
) -> Proof:
    """What a fresh process makes of ``manifest`` and ``files``, which were written for ``entries`` of ``module``.

    ``examples`` are calls that they serve. Of programs from a bundle there are none: what was proved there is proved.

    Raises:
        Disproved.
        OSError, RuntimeError: there is no room for what is given to the child.
    """
    with tempfile.TemporaryDirectory(prefix="sizewise-proof-") as name:
        folder = Path(name)
        recorder = _Recorder(folder)
        for entry, data in zip(entries, manifest["programs"], strict=True):
            example = _example(entry, examples)
            if example is None:
                return _as_it_was(entry)
            with ambient.as_it_was(entry.state, entry.device_type), torch.no_grad():
                _run(entry, data, module, recorder, example)
        unseen = sorted(manifest["pieces"].keys() - recorder.seen.keys())
        proving.write_task(folder, manifest, files, list(recorder.seen))
        answer = _ask(folder)
    if answer["verdict"] == proving.WRONG:
        raise Disproved(answer["what"])
    if answer["verdict"] == proving.MISSING:
        return Proof(_UNKNOWN, f"in a fresh process {answer['what']}")
    if unseen:
        return Proof(_UNKNOWN, f"no input was found for {len(unseen)} of {len(manifest['pieces'])} pieces")
    return Proof(_COMPARED)


def _example(entry: Entry, examples: Sequence[Call]) -> Call | None:
    """A call with values that ``entry`` serves; a loaded program knows only what its own looked like."""
    call = entry.program.traced.call
    if entry.program.origin is None:
        return call
    return next((example for example in examples if example.key() == call.key()), None)


def _as_it_was(entry: Entry) -> Proof:
    _, manifest, _ = entry.program.origin
    found = manifest.get("proof")
    return Proof(**found) if found else Proof(_UNKNOWN, "its programs were loaded from a bundle that was not proved")


class _Recorder:
    """Writes down what each piece is given, the first time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, Any] = {}

    def around(self, name: str, state: tuple[Any, ...], device_type: str, runnable: Callable[[list[Any]], Any]) -> Any:
        def run(inputs: list[Any]) -> Any:
            if name not in self.seen:
                self.seen[name] = runnable
                proving.write_inputs(self.folder, name, inputs, state, device_type)
                proving.write_results(self.folder, name, runnable)
            return runnable(inputs)

        return run


def _run(entry: Entry, data: Mapping[str, Any], module: torch.nn.Module, recorder: _Recorder, example: Call) -> None:
    """Every variant once, with a recorder around each piece. The module's state is put back."""
    program = entry.program
    for variant, written in zip(program.variants, data["variants"], strict=True):
        scope = variant.call.__globals__
        parts = {
            f"piece_{index}": recorder.around(name, entry.state, entry.device_type, scope[f"piece_{index}"])
            for index, name in enumerate(written["pieces"])
        }
        call = types.FunctionType(variant.call.__code__, {**scope, **parts})
        for given, sizes in _calls(program, variant, example):
            state = ModuleState(module, program.effects.written_parameters)
            try:
                values = given.tensor_values()
                arguments = [own_copy(values[path]).contiguous() for path in program.arguments]
                call(entry.weights.fetch(), *(sizes[name] for name in program.size_names), *arguments)
                break
            except Exception:
                continue  # values that are not legal at this size; the next ones are tamer
            finally:
                state.restore()


def _calls(program: Program, variant: Variant, example: Call) -> Iterator[tuple[Call, dict[str, int]]]:
    """Calls that ``variant`` serves: at the example's sizes if it does, else at its smallest and largest."""
    traced = program.traced
    own = sizes_of(traced, example)
    first = next(iter(traced.dims), "")
    if in_range(traced, own) and (not first or own.get(first, 0) in variant.sizes):
        yield example, own
        return
    generator = torch.Generator().manual_seed(0)
    for size in (variant.sizes.start, variant.sizes.end):
        for sizes in ({**own, first: size}, dict.fromkeys(own, size)):
            if in_range(traced, sizes):
                yield sample(example, traced.spec, sizes, generator), sizes
                yield resized(example, traced.spec, sizes), sizes


def _ask(folder: Path) -> dict[str, Any]:
    """The child's answer."""
    if not sys.executable:
        return {"verdict": proving.MISSING, "what": "nothing could be tried: this one has no interpreter to start"}
    code = f"from {proving.__name__} import main; main()"
    # No compiler is to be found, and Python finds what it finds here.
    environment = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", code, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return {"verdict": proving.MISSING, "what": f"nothing could be tried ({in_words(problem)})"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(proving.ANSWER):
            answer: dict[str, Any] = json.loads(line.removeprefix(proving.ANSWER))
            return answer
    last = next(reversed(done.stderr.strip().splitlines()), "it said nothing")
    return {"verdict": proving.WRONG, "what": f"the process that loaded it ended with {done.returncode}: {last}"}
