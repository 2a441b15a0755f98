"""The code that a trace went through: what is known of it while it is there, and what is known once it is written down.

A code object is known by what it does: its digest says nothing of files and lines, so that a checkout may move.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from dataclasses import dataclass

_ENVIRONMENT_FILES = (os.getenv.__code__.co_filename, os.__file__)
"""Where the code of ``os.getenv`` and ``os.environ`` says it is from."""
_SITE = "site-packages"
_LIBRARIES = ("torch", "transformers")


@dataclass(frozen=True)
class TracedCode:
    """``digests`` by qualified name, of every function; the flags are about what the trace does not say by guards."""

    digests: frozenset[tuple[str, str]] = frozenset()
    """(qualified name, digest)."""
    reads_environment: bool = False
    asks_requires_grad: bool = False
    reads_dicts: bool = False
    """Whether code outside of libraries reads attributes through ``vars`` or ``__dict__``."""

    @classmethod
    def of(cls, codes: frozenset[types.CodeType]) -> TracedCode:
        own = [code for code in codes if not is_in_library(code)]
        return cls(
            frozenset((code.co_qualname, digest(code)) for code in codes),
            any(code.co_filename in _ENVIRONMENT_FILES for code in codes),
            any("requires_grad" in code.co_names for code in codes),
            any({"vars", "__dict__"} & {*code.co_names} for code in own),
        )

    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.digests)


def digest(code: types.CodeType) -> str:
    """SHA-256 (hex) of what ``code`` does: its instructions, constants and names."""
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    constants = list(map(_constant, code.co_consts))
    # As one list: pieces without an end would let (1, 23) stand for (12, 3).
    return hashlib.sha256(repr((arguments, names, code.co_code, constants)).encode()).hexdigest()


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return digest(value)
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {list(map(_constant, value))}"
    return repr(value)


def is_in_library(code: types.CodeType) -> bool:
    """Whether nobody is expected to change this code while it serves."""
    return is_standard(code.co_filename) or code.co_filename.startswith(_library_folders())


def _library_folders() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return tuple(os.path.dirname(file) + os.sep for file in files if file)


def is_standard(file: str) -> bool:
    """Whether a file is of Python's own library: beside os.py, or frozen and no file at all."""
    return file.startswith("<frozen") or (file.startswith(os.path.dirname(os.__file__)) and _SITE not in file)
