"""What an error without a record looks like: raised in C++, by the interpreter, by another package, or no error."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Literal

from ..store import Stored
from . import phrases
from .told import Paste, Told

LooksLike = Literal["cpp", "interpreter", "third-party", "unknown", "no-error"]

WORDS: dict[str, str] = {
    "cpp": "an error raised in C++ or CUDA code, which has no line in the Python sources",
    "interpreter": "an error raised by the Python interpreter or its standard library",
    "third-party": "an error of a package that is not in the index",
    "unknown": "an error that the index does not have",
    "no-error": "a text with no error in it",
}

_MESSAGE = 4000
"""Characters of a message that are searched."""
_CPP = re.compile("|".join(phrases.CPP))
_INTERPRETER = re.compile("|".join(phrases.INTERPRETER), re.MULTILINE)
_ONLY_INTERPRETER = frozenset(
    {
        "KeyboardInterrupt",
        "SystemExit",
        "MemoryError",
        "RecursionError",
        "ModuleNotFoundError",
        "NameError",
        "UnboundLocalError",
        "SyntaxError",
        "IndentationError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "ZeroDivisionError",
        "JSONDecodeError",
        "EOFError",
        "BrokenPipeError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "PermissionError",
        "FileExistsError",
        "StopIteration",
        "BrokenProcessPool",
        "CancelledError",
    }
)
_CPP_CLASSES = frozenset(
    {"AcceleratorError", "OutOfMemoryError", "DistBackendError", "DistStoreError", "DistNetworkError"}
)
_HOME = frozenset(
    {
        "torch",
        "vllm",
        "sizewise",
        "builtins",
        "__main__",
        "concurrent",
        "asyncio",
        "multiprocessing",
        "subprocess",
        "json",
    }
)

MIRRORS = (
    "torch/_refs/",
    "torch/_prims/",
    "torch/_prims_common/",
    "torch/_decomp/",
    "torch/_meta_registrations.py",
    "torch/_subclasses/fake_impls.py",
    "torch/jit/_shape_functions.py",
)
"""Where torch repeats in Python what its C++ operators check, texts and all."""


def repeats_cpp(stored: Stored) -> bool:
    """Whether a record stands only where torch repeats the checks of its C++ operators."""
    return all(site.path.startswith(MIRRORS) for site in stored.sites)


def looks_like(paste: Paste, indexed: Collection[str]) -> LooksLike:
    """What the text's main error looks like. ``indexed``: the distributions whose errors would have been found."""
    errors = [told for told in paste.told if told.kind in ("exception", "warning", "log")]
    if not errors:
        texts = [kind for told in paste.told if (kind := kind_of(told, paste, indexed)) != "unknown"]
        return "cpp" if paste.marks else texts[0] if texts else "no-error"
    if all(told.kind == "log" and told.level in ("DEBUG", "INFO") for told in errors) and not paste.marks:
        return "no-error"
    kinds = [kind_of(told, paste, indexed) for told in reversed(errors)]
    return next((kind for kind in kinds if kind != "unknown"), "unknown")


def kind_of(told: Told, paste: Paste, indexed: Collection[str]) -> LooksLike:
    """What one error looks like."""
    if says_cpp(told) or (told.kind == "exception" and "c++" in paste.marks):
        return "cpp"
    if foreign_class(told, indexed):
        return "third-party"
    if says_interpreter(told) or _of_python(told):
        return "interpreter"
    if foreign(told, indexed) or re.search("|".join(phrases.PRODUCTS), told.message[:_MESSAGE]):
        return "third-party"
    if told.raises is False and told.short_class in ("RuntimeError", "IndexError", "TypeError", "ValueError"):
        return "cpp" if told.short_class == "RuntimeError" else "interpreter"
    return "unknown"


# Asked for every record that is weighed.
@lru_cache(maxsize=64)
def says_cpp(told: Told) -> bool:
    """Whether the message is one that C++ code says."""
    torch_class = (told.error_class or "").startswith(("torch.", "c10"))
    return bool(_CPP.search(told.message[:_MESSAGE])) or (torch_class and told.short_class in _CPP_CLASSES)


@lru_cache(maxsize=64)
def says_interpreter(told: Told) -> bool:
    """Whether the message is one that Python itself says."""
    if told.short_class in _ONLY_INTERPRETER:
        return True
    if told.short_class == "KeyError":
        return bool(re.fullmatch(r"'[^' ]*'|\d+|\(.*\)|<.*>|torch\.\w+", told.message.strip()))
    return told.kind != "log" and bool(_INTERPRETER.search(told.message[:_MESSAGE]))


def says_below(told: Told) -> bool:
    """Whether the message is one of C++ or of the interpreter."""
    return says_cpp(told) or says_interpreter(told)


def spans_from_below(text: str) -> list[range]:
    """Where a text has phrases of C++ or of the interpreter; at most twenty of each."""
    found = (match for pattern in (_CPP, _INTERPRETER) for match in islice(pattern.finditer(text[:_MESSAGE]), 20))
    return [range(match.start(), match.end()) for match in found]


def foreign(told: Told, indexed: Collection[str]) -> bool:
    """Whether it was raised by a package whose errors the index does not have."""
    if told.last is not None and told.adjacent and told.last.package not in (None, *indexed, *_HOME):
        return True
    return foreign_class(told, indexed)


def foreign_class(told: Told, indexed: Collection[str]) -> bool:
    """Whether its class is of a package whose errors the index does not have."""
    module = (told.error_class or "").partition(".")
    return bool(module[1]) and module[0] not in _HOME and module[0] not in indexed and not _of_python(told)


def _of_python(told: Told) -> bool:
    module, dot, _ = (told.error_class or "").partition(".")
    return bool(dot) and module in sys.stdlib_module_names
