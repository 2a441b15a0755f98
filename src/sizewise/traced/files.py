"""The files behind traced code, by the name of their module and not by their path; and whether they are the same."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .code import digest, is_standard

_MAIN = "__main__"


def digests_of(codes: Iterable[types.CodeType]) -> dict[str, str]:
    """Module -> digest of its file, for all code; of a library only its version, of code without a file its own."""
    module_at = _modules_by_file()
    found: dict[str, str] = {}
    loose: list[str] = []
    for code in codes:
        module = module_at.get(code.co_filename)
        if module is None:
            loose.append(f"{code.co_qualname} {digest(code)}")
            continue
        top = module.partition(".")[0]
        if is_standard(code.co_filename):
            continue  # it comes with Python, whose version is part of every key
        if _is_installed(code.co_filename) and hasattr(sys.modules.get(top), "__version__"):
            found[top] = _version(top)
        elif module not in found:
            found[module] = _digest_of_file(code.co_filename)
    if loose:
        found["<code without a file>"] = hashlib.sha256("\n".join(sorted(loose)).encode()).hexdigest()
    return found


def difference(saved: Mapping[str, str]) -> tuple[str, str, str] | None:
    """(module, saved, seen) of the first module that is not what it was, or None. Only libraries are imported."""
    for module, wanted in saved.items():
        if module.startswith("<"):
            continue  # what is known of it is among the module's values
        seen = _version_of(module) if wanted.startswith("version ") else _digest_of_file(_file_of(module))
        if seen != wanted:
            return module, wanted, seen
    return None


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
        return getattr(loaded, "__file__", None) or ""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec is not None else ""


def _digest_of_file(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "no file"


def _modules_by_file() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and (file not in found or found[file] == _MAIN):
            found[file] = name
    return found


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file
