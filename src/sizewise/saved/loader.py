"""Loads a saved piece: generated source, with kernels from libraries that were built before. No compiler, no Inductor.

Private API: ``torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr``, whose address Inductor's libraries
read from an environment variable when they are loaded. Checked on torch 2.13.0.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import linecache
import marshal
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .values import Unreadable

_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
ALONE, JOINED, WRAPPER = "kernel", "kernels", "inductor_entry_cpp"
"""The entries of a library: its one kernel, a function that gives all, or a whole piece in C++ (``cpp_wrapper``)."""


def entry_of(library: bytes) -> str:
    """Which entry a library has."""
    return next((entry for entry in (WRAPPER, JOINED) if f"PyInit_{entry}".encode() in library), ALONE)


def load_library(name: str, path: Path, entry: str) -> dict[str, Any]:
    """The kernels of the library at ``path``, by name. ``name`` has to be unique to the library's content.

    Raises:
        ImportError, OSError, Unreadable: it cannot be loaded.
    """
    # The last part is the name in the library's initialisation function.
    full = f"sizewise_{name}.{entry}"
    module = sys.modules.get(full)
    if module is None:
        loader = importlib.machinery.ExtensionFileLoader(full, str(path))
        spec = importlib.util.spec_from_loader(full, loader)
        if spec is None:
            raise Unreadable(f"no library at {path}")
        # It stays set, as Inductor leaves it: another thread may be loading at this moment.
        os.environ[_ADDRESS] = str(torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[full] = module
    if entry != JOINED:
        return {entry: getattr(module, entry)}
    return {kernel.__name__: kernel for kernel in module.kernels()}


@contextmanager
def on_disk(libraries: Mapping[str, bytes]) -> Iterator[dict[str, Path]]:
    """The libraries as files for as long as they are being loaded; nobody else can write there."""
    with tempfile.TemporaryDirectory(prefix="sizewise-") as folder:
        paths = {}
        for name, content in libraries.items():
            paths[name] = Path(folder) / f"{name}.so"
            paths[name].write_bytes(content)
        yield paths


def replaced(paths: Iterable[str]) -> list[str]:
    """Of libraries that this process has loaded those whose files were replaced or removed since; [] where the system
    does not tell.

    A C++ compiler that outlives the process that started it may still write the file that was built again meanwhile.
    """
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    return sorted(path for path in paths if f" {os.path.realpath(path)} (deleted)\n" in mapped)


def compiled_piece(source: str, label: str) -> bytes:
    """The bytecode of a piece's source, for `load_piece`: long generated code takes tens of milliseconds to compile."""
    return importlib.util.MAGIC_NUMBER + marshal.dumps(compile(source, _filename(label), "exec"))


def load_piece(source: str, names: Mapping[str, Any], label: str, bytecode: bytes = b"") -> Callable[[list[Any]], Any]:
    """The ``call`` of a piece's source, with kernels and constants put beside it under ``names``.

    ``bytecode`` is of `compiled_piece`, for the same source and label; that of another Python is not used.
    """
    filename = _filename(label)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": f"sizewise_piece_{label}", **names}
    magic = importlib.util.MAGIC_NUMBER
    if bytecode.startswith(magic):
        exec(marshal.loads(bytecode[len(magic) :]), namespace)
    else:
        exec(compile(source, filename, "exec"), namespace)
    call: Callable[[list[Any]], Any] = namespace["call"]
    return call


def _filename(label: str) -> str:
    return f"<sizewise piece {label}>"
