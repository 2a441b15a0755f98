"""The files behind traced code, by the name of their module and not by their path; and whether they are the same."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import time
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import places
from .code import is_standard

NO_FILE, CHANGED = "no file", "changed after this process had started"
_MAIN = "__main__"
_OWN = "<sizewise "
"""What the names of files begin with that code is said to be from which Sizewise writes."""
_MARGIN = 0.25
"""Seconds: clocks are read to a hundredth, and nothing is imported and edited again so soon after the start."""


def digests_of(codes: Iterable[types.CodeType]) -> dict[str, str]:
    """Module -> digest of its file, for all code; of a library only its version, of code without a file its own.

    Keys of `places` stand for functions whose code has no file.
    """
    module_at = _modules_by_file()
    found: dict[str, str] = {}
    loose: list[types.CodeType] = []
    for code in codes:
        if is_standard(code.co_filename) or code.co_filename.startswith(_OWN):
            continue  # of Python, or written for the trace: their versions are part of every key
        module = module_at.get(code.co_filename, "")
        if _is_library(module, code.co_filename):
            top = module.partition(".")[0]
            found[top] = _version(top)
            continue
        if module and module not in found:
            found[module] = _digest_of_file(module, code.co_filename)
        if found.get(module, NO_FILE) == NO_FILE:
            loose.append(code)
    found = {module: seen for module, seen in found.items() if seen != NO_FILE}
    for place, seen in places.places_of(loose).items():
        module = place.removeprefix(places.FUNCTION).partition(":")[0]
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        if place.startswith(places.FUNCTION) and _is_library(module, file):
            found[module.partition(".")[0]] = _version(module.partition(".")[0])
        else:
            found[place] = seen
    return found


def difference(saved: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(module, saved, seen) of the first module that is not what it was, or None. Only libraries are imported."""
    for module, wanted in saved.items():
        if module.startswith(places.FUNCTION):
            seen = places.seen_at(module)
        elif wanted.startswith("version "):
            seen = _version_of(module)
        else:
            seen = _digest_of_file(module, _file_of(module))
        if seen != wanted:
            return module, wanted, seen
    return None


def unknown(saved: Mapping[str, str]) -> str:
    """What of the sources could not be compared in another process, in words; '' where all can."""
    for module, seen in saved.items():
        if module.startswith(places.NOWHERE):
            return f"the code of {module.removeprefix(places.NOWHERE)}, which no file holds and no name leads to"
        if seen == CHANGED:
            return f"the source of {module}, whose file was written after this process had started"
    return ""


def _is_library(module: str, file: str) -> bool:
    """Whether a file is of an installed package that says its version."""
    return bool(module) and _is_installed(file) and hasattr(sys.modules.get(module.partition(".")[0]), "__version__")


def _version(top: str) -> str:
    return f"version {getattr(sys.modules.get(top), '__version__', 'unknown')}"


def _version_of(top: str) -> str:
    """The version of a library, which the module may import as late as in its forward."""
    if top not in sys.modules:
        try:
            importlib.import_module(top)
        except Exception as problem:
            return f"not there ({type(problem).__name__}: {problem})"
    return _version(top)


def _file_of(module: str) -> str:
    loaded: Any = sys.modules.get(module)
    if loaded is not None:
        return str(getattr(loaded, "__file__", None) or "")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec is not None else ""


def _digest_of_file(module: str, path: str) -> str:
    if not path.endswith(".py"):
        return NO_FILE  # a main program may have any name, but then it is no module that others import
    try:
        content = Path(path).read_bytes()
        if _was_written_later(os.stat(path).st_ctime) and not places.is_loaded(module, content):
            return CHANGED
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return NO_FILE


def _was_written_later(changed: float) -> bool:
    """Whether a file changed after this process started: what was imported may be what it held before."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            booted = time.time() - float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    return changed > booted + ticks / os.sysconf("SC_CLK_TCK") + _MARGIN


def _modules_by_file() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and (file not in found or found[file] == _MAIN):
            found[file] = name
    return found


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file
