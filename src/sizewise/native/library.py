"""The extension as a file: where it is kept, how it is built, how it gets into the process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from ..cache import files, place

logger = logging.getLogger("sizewise.native")

NAME = "fast"
SOURCE = Path(__file__).with_name(f"{NAME}.cpp")
_CONTENT = "LIBRARY"
"""The name under which the extension has its own bytes: a bundle takes it along."""
_MOST = 8 << 20
"""Bytes of a library that is read."""
_PATIENCE = 120
"""Seconds that the C++ compiler may take."""


@functools.cache
def key() -> str:
    """What a library has to be built for: this source, this Python, this kind of machine."""
    parts = (_source(), str(sysconfig.get_config_var("EXT_SUFFIX")).encode(), platform.machine().encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


@functools.cache
def _source() -> bytes:
    """What is built, read once; empty where it was not installed, so that nothing is."""
    with contextlib.suppress(OSError):
        return SOURCE.read_bytes()
    return b""


def current() -> ModuleType | None:
    """The extension, where this process has it or its file is kept; nothing is built."""
    module = sys.modules.get(_full(key()))
    if module is not None:
        return module
    library = content()
    return use(key(), library) if library is not None else None


def content() -> bytes | None:
    """The library as bytes, as this process has it or as it is kept: behind its digest, which is checked."""
    module = sys.modules.get(_full(key()))
    # Another thread that loads it right now has not put it there yet.
    found: bytes | None = module.__dict__.get(_CONTENT) if module is not None else None
    if found is not None:
        return found
    with contextlib.suppress(OSError, files.Unfit):
        kept, _ = files.read(_path(), _MOST)
        if hashlib.sha256(kept[32:]).digest() == kept[:32]:
            return kept[32:]
    return None


def ensure() -> ModuleType | None:
    """`current`, built where it has to be. None where that cannot be: it says why in the log, once per process."""
    module = current()
    if module is not None or not _is_supported():
        return module
    try:
        library = _built()
    except (OSError, subprocess.SubprocessError) as problem:
        said: bytes = getattr(problem, "stderr", None) or str(problem).encode()
        words = said.decode(errors="replace").strip().splitlines()[:1]
        logger.info("calls are checked in Python, which is slower: no C++ extension (%s)", "".join(words))
        return None
    module = use(key(), library)
    if module is not None:
        with contextlib.suppress(OSError):
            files.make_folder(_path().parent)
            files.write(_path(), hashlib.sha256(library).digest() + library)
    return module


def use(wanted: str, library: bytes) -> ModuleType | None:
    """The extension from its file's bytes, if they are for the ``wanted`` key and that is this process's.

    None also where it cannot be loaded: no room for temporary files, or none that may be executed.
    """
    return _loaded(_full(wanted), library) if wanted == key() else None


# What cannot be loaded once is not tried again at every check that is made.
@functools.cache
def _loaded(full: str, library: bytes) -> ModuleType | None:
    try:
        with tempfile.TemporaryDirectory(prefix="sizewise-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / f"{NAME}.so"
            path.write_bytes(library)
            loader = importlib.machinery.ExtensionFileLoader(full, str(path))
            spec = importlib.util.spec_from_loader(full, loader)
            if spec is None:
                return None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
    except (ImportError, OSError):
        return None
    module.__dict__[_CONTENT] = library
    return sys.modules.setdefault(full, module)


def _built() -> bytes:
    """Raises OSError, subprocess.SubprocessError."""
    with tempfile.TemporaryDirectory(prefix="sizewise-") as folder:
        path = Path(folder) / f"{NAME}.so"
        compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        include = f"-I{sysconfig.get_paths()['include']}"
        command = [*compiler.split(), "-O2", "-std=c++17", "-shared", "-fPIC", *undefined, include]
        command += ["-x", "c++", "-", "-o", str(path)]
        subprocess.run(command, input=_source(), check=True, capture_output=True, timeout=_PATIENCE)
        return path.read_bytes()


def _is_supported() -> bool:
    """Not where threads run Python side by side: nothing here locks."""
    has_lock: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return has_lock and sys.implementation.name == "cpython" and sys.platform != "win32"


def _full(wanted: str) -> str:
    # The last part is the name in the library's initialisation function.
    return f"sizewise_{wanted}.{NAME}"


def _path() -> Path:
    return place.cache_root() / "native-1" / f"{key()}.{NAME}"
