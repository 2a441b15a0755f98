"""The programs of one call as files and a manifest, and back to programs that serve.

Files: the caller of each program, the source of each distinct piece or torch's artifact of it, the libraries with
their kernels, constants. Parameters are not among them: programs bind them by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import ambient
from ..calls import Signature
from ..dispatch import Entry, make_entry
from ..errors import CacheError
from ..errors.trace import UnboundInput
from ..guards import Snapshot
from ..guards.plan import MissingPlace
from ..integrations import transformers as transformers_integration
from ..program import Variant, load_caller
from ..ranges import Range
from ..traced import files as traced_files
from ..traced.state import held_objects
from ..weights import WeightBinding
from . import loader
from .pieces import ARTIFACT, files_of, load_pieces
from .record import read_plan, read_program, write_found, write_plan, write_program
from .scope import NotThere, find_operator, read_scope, write_scope
from .values import NotWritable, decode, encode

if TYPE_CHECKING:
    from ..caller import BuiltProgram
    from ..compilers import Artifact
    from ..piecewise import PiecewiseBackend
    from .extract import KernelFile

Json = dict[str, Any]
Files = dict[str, bytes]
SOURCE = "the source of "
"""What a difference in a source file is called, before the module's name."""
Difference = tuple[str, str, str]
"""What differs, what it was, what it is."""


class Differs(Exception):
    """Internal: a saved program is not for this module as it is now."""

    def __init__(self, factor: str, saved: str, seen: str) -> None:
        super().__init__(f"{factor} was {saved} and is {seen}")
        self.difference: Difference = (factor, saved, seen)


def write_programs(entries: Sequence[Entry], disproved: str = "") -> tuple[Json, Files]:
    """The part of a manifest about ``entries``, which were built for one call, and their files.

    ``disproved`` says why no piece is written by its source, but each as torch's artifact.

    Raises:
        NotWritable: one of them cannot be saved; the message says why.
    """
    writer = _Writer(disproved)
    programs = [writer.program(entry) for entry in entries]
    # Only now: what was read before a library was replaced is the library that was loaded.
    for path in loader.replaced(writer.library_paths):
        raise NotWritable(f"the library {path}, which was replaced on disk after it was loaded")
    return {"programs": programs, "pieces": writer.pieces, "libraries": writer.libraries}, writer.files


class _Writer:
    def __init__(self, disproved: str = "") -> None:
        self._disproved = disproved
        self.files: Files = {}
        self.pieces: dict[str, Json] = {}
        self.libraries: dict[str, Json] = {}
        self.library_paths: set[str] = set()
        self._known: dict[int, str] = {}

    def program(self, entry: Entry) -> Json:
        origin = entry.program.origin
        if origin is not None:
            data = self._copied(*origin)
            # What was found out since it was read is kept as well.
            return {**data, "record": {**data["record"], **write_found(entry.program)}}
        # What is compiled again is for as many threads as it was built for, which may not be set now.
        with ambient.as_it_was(entry.state, entry.device_type):
            data = self._written(entry)
        why = {name: piece["artifact"]["why"] for name, piece in self.pieces.items() if "artifact" in piece}
        entry.program.second_path = _second_path(data, why)
        return data

    def _copied(self, data: Json, manifest: Json, read: Callable[[str], bytes]) -> Json:
        """A program that was loaded, as it was written."""
        pieces = {name for variant in data["variants"] for name in variant["pieces"]}
        names = {data["source"], data["guards"], data["values"], *pieces}
        for name in pieces:
            piece = self.pieces[name] = manifest["pieces"][name]
            own, libraries = files_of(name, piece)
            self.libraries |= {library: manifest["libraries"][library] for library in libraries}
            names |= own | libraries
        self.files |= {name: read(name) for name in names}
        return data

    def _written(self, entry: Entry) -> Json:
        program: BuiltProgram = entry.program  # type: ignore[assignment]
        text = program.source.encode()
        name = self._add("program", text, ".py")
        return {
            "record": write_program(program),
            "plan": write_plan(entry.snapshot.plan, program.traced.scope),
            "operators": _operators(program),
            "guards": self._add("guards", json.dumps(program.guard_lines()).encode(), ".json"),
            "source": name,
            "scope": write_scope(program.scope),
            "variants": [self._variant(program, variant) for variant in program.variants],
            "state": [encode(value) for value in entry.state],
            "device": entry.device_type,
            "values": self._add("values", json.dumps(entry.snapshot.summary()).encode(), ".json"),
            "layouts": [_layouts(binding) for binding in (entry.weights, entry.watched)],
        }

    def _variant(self, program: BuiltProgram, variant: Variant) -> Json:
        pieces = [
            self._piece(backend, variant.sizes, step.index)
            for backend, step in zip(program.backends, program.pieces, strict=True)
        ]
        return {"sizes": [variant.sizes.start, variant.sizes.end], "pieces": pieces}

    def _piece(self, backend: PiecewiseBackend, sizes: Range, index: int) -> str:
        built = backend.range_entries[sizes].artifact
        known = self._known.get(id(built))
        if known is not None:
            return known
        if built is None or not built.source or built.compiler == "eager":
            raise NotWritable(f"piece {index}, for which {backend.compiler.name} makes no code")
        try:
            name = self._source(built)
        except NotWritable as problem:
            why = str(problem)
            try:
                name = self._artifact(backend, sizes, built, why)
            except NotWritable as second:
                raise NotWritable(f"piece {index} with {why}; and as torch's artifact it needs {second}") from problem
        self._known[id(built)] = name
        return name

    def _source(self, built: Artifact) -> str:
        """A piece on the first path."""
        from .extract import extract

        if self._disproved:
            raise NotWritable(self._disproved)
        if not built.is_raw:
            raise NotWritable(f"torch's wrapper around it: {built.why_wrapped}")
        extracted = extract(built.source, built.runnable.__globals__)
        name = self._add("piece", extracted.source.encode(), ".py")
        bytecode = loader.compiled_piece(extracted.source, Path(name).stem)
        self.pieces[name] = {
            "bytecode": self._add("bytecode", bytecode, ".bin"),
            "kernels": self._places(extracted.kernels),
            "constants": {constant: self._constant(tensor) for constant, tensor in extracted.constants.items()},
        }
        return name

    def _artifact(self, backend: PiecewiseBackend, sizes: Range, built: Artifact, why: str) -> str:
        """A piece on the second path."""
        from . import artifact

        with backend.inputs_for(sizes) as (inputs, fake_mode):
            packed = artifact.pack(backend.graph, inputs, fake_mode, built)
        name = self._add("artifact", packed.data, ".bin")
        written = {
            "file": name,
            "kernels": self._places(packed.kernels),
            "settings": encode(packed.settings),
            "raw": packed.is_raw,
            "why": why,
        }
        self.pieces[name] = {"form": ARTIFACT, "kernels": {}, "constants": {}, "artifact": written}
        return name

    def _places(self, kernels: Mapping[str, KernelFile]) -> Json:
        return {key: [self._library(file.library), file.name] for key, file in kernels.items()}

    def _library(self, path: str) -> str:
        content = Path(path).read_bytes()
        self.library_paths.add(path)
        name = self._add("kernels", content, ".so")
        self.libraries[name] = {"entry": loader.entry_of(content)}
        return name

    def _constant(self, tensor: torch.Tensor) -> Json:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise NotWritable("a constant tensor that is not a plain one on the CPU")
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        name = self._add("constant", raw, ".bin")
        return {"file": name, "shape": list(tensor.shape), "dtype": encode(tensor.dtype)}

    def _add(self, kind: str, content: bytes, suffix: str) -> str:
        name = _name(kind, content, suffix)
        self.files[name] = content
        return name


def _name(kind: str, content: bytes, suffix: str) -> str:
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:20]}{suffix}"


def read_programs(
    manifest: Json, read: Callable[[str], bytes], module: nn.Module, signature: Signature, forward: Any
) -> list[Entry]:
    """The programs of `write_programs` for ``module``; ``read`` gives a file's verified content.

    Raises:
        Differs: the module, its source or what is set around it is not what they were built for.
        NotThere: an operator or class they need is not in this process.
        ValueError, KeyError, TypeError, OSError, ...: the manifest or a file is not as it was written.
    """
    transformers_integration.prepare(module)
    found = [_Candidate(data, read, module, forward, signature.owner) for data in manifest["programs"]]
    for candidate in found:
        candidate.program.origin = (candidate.data, manifest, read)
    pieces, second = load_pieces(manifest, read)
    for candidate in found:
        candidate.program.second_path = _second_path(candidate.data, second)
    return [candidate.entry(pieces, module, signature) for candidate in found]


def _second_path(program: Json, why: Mapping[str, str]) -> list[str]:
    """What a report says about a program's pieces that have no source that loads."""
    names = [name for variant in program["variants"] for name in variant["pieces"]]
    return [f"a piece with {why[name]}" for name in dict.fromkeys(names) if name in why]


class _Candidate:
    """One saved program that fits the module."""

    def __init__(self, data: Json, read: Callable[[str], bytes], module: nn.Module, forward: Any, owner: str) -> None:
        self.data = data
        changed = traced_files.difference(data["record"]["sources"])
        if changed is not None:
            raise Differs(f"{SOURCE}{changed[0]}", changed[1], changed[2])
        self.program = read_program(data["record"], read(data["source"]).decode(), owner)
        self.program.guard_lines = lambda: _guard_lines(read, data["guards"])
        self.state = tuple(decode(value) for value in data["state"])
        for name, now, before in ambient.differences(ambient.read(data["device"]), self.state):
            raise Differs(name, str(before), str(now))
        # First of all: torch.ops has no entry for an operator that nobody asked for yet.
        for name in data["operators"]:
            find_operator(name, "")
        self.scope = read_scope(data["scope"], held_objects(module))
        plan, scope = read_plan(data["plan"])
        try:
            self.snapshot = Snapshot(self.program.traced.owner, plan, module, scope, forward)
        except MissingPlace as problem:
            raise Differs(problem.place, "there", "not there") from problem
        except (AttributeError, KeyError, IndexError, TypeError) as problem:
            raise Differs("the module's structure", "as traced", f"another one ({problem})") from problem
        summary = self.snapshot.summary()
        # The file's name is its content's digest: what is as it was need not be read.
        if _name("values", json.dumps(summary).encode(), ".json") != data["values"]:
            _compare_values(json.loads(read(data["values"])), summary)

    def entry(self, pieces: Mapping[str, Callable[..., Any]], module: nn.Module, signature: Signature) -> Entry:
        for variant in self.data["variants"]:
            sizes = Range(*variant["sizes"])
            parts = [pieces[name] for name in variant["pieces"]]
            label = f"{self.program.traced.owner} {sizes}"
            self.program.variants.append(Variant(sizes, load_caller(self.program.source, self.scope, parts, label)))
        try:
            entry = make_entry(self.program, module, signature, self.snapshot, self.data["device"], self.state)
        except UnboundInput as problem:
            raise Differs(f"the tensor {problem.fields['source']}", "there", "not there") from problem
        for binding, saved in zip((entry.weights, entry.watched), self.data["layouts"], strict=True):
            for path, before, now in zip(binding.paths, saved, _layouts(binding), strict=True):
                if before != now:
                    raise Differs(f"the tensor {path}", *_layouts_in_words(before, now))
        return entry


def _guard_lines(read: Callable[[str], bytes], name: str) -> list[str]:
    try:
        lines: list[str] = json.loads(read(name))
    except CacheError as problem:
        # A report is not worth an error: the file may have been pruned meanwhile.
        return [f"not known any more: {str(problem).splitlines()[0]}"]
    return lines


def _operators(program: BuiltProgram) -> list[str]:
    """The names of all operators in the graph that are not torch's own."""
    targets = {node.target for node in program.traced.graph.graph.nodes if node.op == "call_function"}
    names = {t._qualified_op_name for t in targets if isinstance(t, torch._ops.OpOverloadPacket)}
    names |= {t._schema.name for t in targets if isinstance(t, torch._ops.OpOverload)}
    return sorted(name for name in names if not name.startswith(("aten::", "prims::")))


def _layouts(binding: WeightBinding) -> list[Any]:
    return [[encode(part) for part in layout] for layout in binding.layouts()]


_PARTS = ("class", "shape", "strides", "dtype", "device", "bit", "first among equals")


def _layouts_in_words(before: Sequence[Any], now: Sequence[Any]) -> tuple[str, str]:
    """What differs of two tensors' layouts as `_layouts` encodes them."""
    differing = [pair for pair in zip(_PARTS, before, now, strict=True) if pair[1] != pair[2]]
    return tuple(", ".join(f"{pair[0]} {_plain(pair[place])}" for pair in differing) for place in (1, 2))  # type: ignore[return-value]


def _plain(value: Any) -> str:
    """An encoded value in words: ["tuple", [2, 3]] is (2, 3)."""
    if not isinstance(value, list) or len(value) != 2:
        return str(value)
    return str(tuple(value[1])) if isinstance(value[1], list) else str(value[1])


def _compare_values(saved: Sequence[Any], seen: Sequence[tuple[str, str]]) -> None:
    if [tuple(pair) for pair in saved] == list(seen):
        return
    before, now = _by_label(saved), _by_label(seen)
    # What is in both first: of what is in one only, the cause is often another value.
    for label in sorted(before.keys() | now.keys(), key=lambda label: (not (label in before and label in now), label)):
        if before.get(label) != now.get(label):
            raise Differs(label, before.get(label, "not read"), now.get(label, "not read"))


def _by_label(values: Sequence[Any]) -> dict[str, str]:
    """Values of one label joined: hooks before and after a forward have one."""
    found: dict[str, str] = {}
    for label, text in values:
        found[label] = f"{found[label]} and {text}" if label in found else text
    return found


__all__ = ["Differs", "NotThere", "NotWritable", "read_programs", "write_programs"]
