"""The pieces of saved programs, read back: by their source, or by torch's artifact of them.

A piece's part of the manifest holds either or both. The source comes first; where it does not load, the artifact is
tried, which imports Inductor and unpickles. Every file is read, and so checked, before anything in it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from . import loader
from .values import decode

Json = dict[str, Any]
Read = Callable[[str], bytes]
Piece = Callable[[list[Any]], Any]
ARTIFACT = "artifact"
"""The form of a piece that has no source."""


class NotLoadable(Exception):
    """Internal: a piece loads on neither path; the message says which piece, and why."""


def load_pieces(manifest: Json, read: Read) -> tuple[dict[str, Piece], dict[str, str]]:
    """The pieces by name; and of those that were loaded by torch's artifact, why.

    Raises:
        NotLoadable: a piece loads on neither path.
        Exception: the manifest or a file is not as it was written.
    """
    contents = {name: read(name) for name in manifest["libraries"]}
    pieces: dict[str, Piece] = {}
    second: dict[str, str] = {}
    with loader.on_disk({Path(name).stem: content for name, content in contents.items()}) as paths:
        libraries = _Libraries(manifest["libraries"], paths)
        for name, data in manifest["pieces"].items():
            pieces[name], why = _load(name, data, read, libraries)
            if why:
                second[name] = why
    return pieces, second


class _Libraries:
    """Kernels of libraries, each of which is loaded when one of its kernels is asked for."""

    def __init__(self, entries: Json, paths: Mapping[str, Path]) -> None:
        self._entries, self._paths = entries, paths
        self._loaded: dict[str, dict[str, Any]] = {}

    def kernel(self, library: str, name: str) -> Any:
        if library not in self._loaded:
            stem = Path(library).stem
            entry = self._entries[library]["entry"]
            self._loaded[library] = loader.load_library(stem.replace("-", "_"), self._paths[stem], entry)
        return self._loaded[library][name]

    def kernels(self, places: Mapping[str, list[str]]) -> dict[str, Any]:
        return {key: self.kernel(*place) for key, place in places.items()}


def _load(name: str, data: Json, read: Read, libraries: _Libraries) -> tuple[Piece, str]:
    """The piece, and why its source was not used, or ''."""
    if data.get("form") == ARTIFACT:
        why = str(data["artifact"]["why"])
    else:
        source, bytecode = read(name).decode(), read(data["bytecode"])
        constants = {key: _constant(item, read) for key, item in data["constants"].items()}
        try:
            names = libraries.kernels(data["kernels"]) | constants
            return loader.load_piece(source, names, Path(name).stem, bytecode), ""
        except Exception as problem:
            if "artifact" not in data:
                raise
            why = f"source that does not load ({type(problem).__name__}: {problem})"
    packed = data["artifact"]
    content = read(packed["file"])
    try:
        return _load_artifact(content, packed, libraries), why
    except Exception as problem:
        words = f"torch's artifact of it does not load ({type(problem).__name__}: {problem})"
        raise NotLoadable(f"a piece with {why}, and {words}") from problem


def _load_artifact(content: bytes, packed: Json, libraries: _Libraries) -> Piece:
    # It imports Inductor, which nothing else here does.
    from . import artifact

    return artifact.load(content, libraries.kernels(packed["kernels"]), decode(packed["settings"]), packed["raw"])


def _constant(data: Json, read: Read) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(read(data["file"])), dtype=torch.uint8)
    return raw.view(decode(data["dtype"])).reshape(data["shape"])


def files_of(name: str, data: Json) -> tuple[set[str], set[str]]:
    """The names of a piece's own files, and of the libraries it takes kernels from."""
    packed = data.get("artifact") or {"kernels": {}}
    places = [*data["kernels"].values(), *packed["kernels"].values()]
    own = {name, packed.get("file", name), data.get("bytecode", name)}
    return own | {constant["file"] for constant in data["constants"].values()}, {library for library, _ in places}
