"""What an error without a record looks like: raised in C++, by the interpreter, by another package, or no error."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Literal

from ..store import Stored
from . import alone, phrases
from .told import Paste, Told
from .wording import flat, letters

LooksLike = Literal["cpp", "interpreter", "third-party", "unknown", "no-error"]

WORDS: dict[str, str] = {
    "cpp": "an error raised in C++ or CUDA code, which has no line in the Python sources",
    "interpreter": "an error raised by the Python interpreter or its standard library",
    "third-party": "an error of a package that is not in the index",
    "unknown": "an error that the index does not have",
    "no-error": "a text with no error in it",
}

OTHERS, LINE = 1.3, 300
"""Letters of a message -> as many as a template of others is compared with, to say nearly the same; and the longest
line that is compared with them."""
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


def looks_like(paste: Paste, indexed: Collection[str]) -> tuple[LooksLike, Told | None]:
    """What the text's main error looks like, and which one of the text that is; None where none tells it.

    ``indexed``: the distributions whose errors would have been found.
    """
    errors = [told for told in paste.told if told.kind in ("exception", "warning", "log")]
    # What only carries another error says nothing of what that is.
    errors = [told for told in errors if told.relation != "wrapper"] or errors
    if not errors:
        if paste.marks:
            return "cpp", None
        kinds = ((kind_of(told, paste, indexed), told) for told in paste.told)
        return next(((kind, told) for kind, told in kinds if kind != "unknown"), ("no-error", None))
    if all(told.kind == "log" and told.level in ("DEBUG", "INFO") for told in errors) and not paste.marks:
        return "no-error", None
    kinds = ((kind_of(told, paste, indexed), told) for told in reversed(errors))
    return next(((kind, told) for kind, told in kinds if kind != "unknown"), ("unknown", errors[-1]))


def kind_of(told: Told, paste: Paste, indexed: Collection[str]) -> LooksLike:
    """What one error looks like."""
    if told.raises and _foreign_frame(told, indexed):
        return "third-party"
    if says_cpp(told) or (told.kind == "exception" and "c++" in paste.marks):
        return "cpp"
    if foreign_class(told, indexed):
        return "third-party"
    if told.raises and told.last is not None and told.last.own:
        return "unknown"  # whatever the words are: the reader's own line says them
    if says_interpreter(told) or _of_python(told):
        return "interpreter"
    if (others := _of_others(told)) is not None:
        return "interpreter" if others == "python" else "third-party"
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


def foreign_package(told: Told, indexed: Collection[str]) -> str | None:
    """The package that an error's class or its last frame names and the index lacks; None where neither does."""
    module = (told.error_class or "").partition(".")[0]
    if foreign_class(told, indexed) and re.fullmatch(r"[a-z]\w*", module):
        return module
    package = told.last.package if told.last is not None and told.adjacent else None
    if package is None and "numpy" not in indexed and _of_others(told) == "numpy":
        return "numpy"
    return package if package not in (*indexed, *_HOME) and re.fullmatch(r"[A-Za-z]\w*", package or "") else None


def foreign(told: Told, indexed: Collection[str]) -> bool:
    """Whether it was raised by a package whose errors the index does not have."""
    return _foreign_frame(told, indexed) or foreign_class(told, indexed)


def _foreign_frame(told: Told, indexed: Collection[str]) -> bool:
    return told.last is not None and told.adjacent and told.last.package not in (None, *indexed, *_HOME)


def _of_others(told: Told) -> str | None:
    """Whose messages a message without a frame is one of, nearly word for word: "python" or "numpy"."""
    if told.kind not in ("exception", "text") or (told.last is not None and told.adjacent):
        return None
    text = flat(told.message.split("\n")[0])
    said = len(text) <= LINE and text.count(" ") > 1 and text.isascii()
    return alone.of_others(told, int(letters(text) * OTHERS)) if said else None


def foreign_class(told: Told, indexed: Collection[str]) -> bool:
    """Whether its class is of a package whose errors the index does not have."""
    module = (told.error_class or "").partition(".")
    return bool(module[1]) and module[0] not in _HOME and module[0] not in indexed and not _of_python(told)


def _of_python(told: Told) -> bool:
    module, dot, _ = (told.error_class or "").partition(".")
    return bool(dot) and module in sys.stdlib_module_names
