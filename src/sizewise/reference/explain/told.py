"""What a pasted text tells: errors with their frames, and lines of loggers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BUILTIN_ENDS = re.compile(
    r"(?:Error|Exception|Warning|Interrupt|Exit|Failure|Failed|Violation|Unsupported|Timeout|Abort|Mismatch)$"
)

_NOBODYS = re.compile(
    # the standard library, code that was made, and what starts a program
    r"lib(?:64)?[/\\]python\d|[Pp]ython\d+[/\\][Ll]ib[/\\]|envs[/\\][^/\\]+[/\\][Ll]ib[/\\]"
    r"|torchinductor_|torch_compile_debug|^<(?!ipython-input|stdin>)|[/\\]bin[/\\][^/\\.]+$"
)
_ENVIRONMENT, _MARK = ("site-packages", "dist-packages"), ""
"""Folders that packages are installed in, and what stands for one."""
_PACKAGES = frozenset({"torch", "vllm", "transformers", "sizewise", "triton"})
"""Packages whose sources may stand outside of an environment, in a checkout."""


@dataclass(frozen=True)
class Frame:
    """A line ``File "path", line n, in function`` and the source under it ("" where it is not shown)."""

    path: str
    line: int
    function: str
    source: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's parts, Windows' as well."""
        return tuple(part for part in re.split(r"[/\\]+", self.path) if part)

    @property
    def installed(self) -> tuple[str, ...]:
        """The path from the package's folder on, where the path says that it is an installed one; else ()."""
        parts: list[str] = []
        for part in self.parts:
            if part == "..":
                parts = parts[:-1]
            elif part in _ENVIRONMENT or part.endswith(".egg"):
                parts = [_MARK]
            else:
                parts.append(part)
        return tuple(parts[1:]) if parts[:1] == [_MARK] else ()

    @property
    def package(self) -> str | None:
        """The package of an installed file, or None where the path does not say."""
        installed = self.installed
        return installed[0].removesuffix(".py") if installed else None

    @property
    def own(self) -> bool:
        """Whether the file is the reader's own: of no package, not of Python and not made by a compiler."""
        named = _PACKAGES.intersection(self.parts[:-1]) or _NOBODYS.search(self.path)
        return self.package is None and not named


@dataclass(frozen=True)
class Told:
    """One error, warning or line of a logger in a text.

    ``relation``: how it came about: "alone", "cause" or "context" (of the one after it), "inside" (named in the
    message of the one before it), "wrapper" (it only carries the one after it from another process).
    """

    kind: str
    """exception, warning, log or text."""
    error_class: str | None
    """As it is written, with its module if that is there."""
    message: str
    frames: tuple[Frame, ...] = ()
    adjacent: bool = False
    """Whether the last frame is the one that raised: it stands right before the error's line."""
    relation: str = "alone"
    level: str = ""
    file: str = ""
    """The logger's file, as it writes it, and its line."""
    line: int = 0
    process: str = ""
    unread: bool = False
    """Whether frames that were not read stand in the text, which may be this error's."""
    user: tuple[Frame, ...] = ()
    """The frames that torch's compiler names as user code, below the message."""

    @property
    def short_class(self) -> str | None:
        return self.error_class.rpartition(".")[2] if self.error_class else None

    @property
    def last(self) -> Frame | None:
        return self.frames[-1] if self.frames else None

    @property
    def raises(self) -> bool | None:
        """Whether the last frame's line raises in Python; None where that is not to be seen."""
        if not self.adjacent or self.last is None or not self.last.source:
            return None
        return bool(re.match(r"(?:raise|assert)\b|.*\braise\b|.*warn\(", self.last.source))


@dataclass(frozen=True)
class Paste:
    """A text that was read."""

    told: tuple[Told, ...]
    codes: tuple[str, ...] = ()
    """Codes of Sizewise's errors in it, the last one first."""
    marks: frozenset[str] = field(default_factory=frozenset)
    """What else says where it comes from: "c++", "fatal"."""


def is_error_name(name: str) -> bool:
    """Whether a dotted name alone is enough to take a line for an error's."""
    if name in ("Error", "Warning"):
        return False  # a word before a message
    last = name.rpartition(".")[2]
    if not re.fullmatch(r"_?[A-Z]\w*", last):
        return False
    return bool(_BUILTIN_ENDS.search(last)) or (
        "." in name and name[0].islower() and bool(re.search(r"[a-z]", last)) and _is_module(name.rpartition(".")[0])
    )


def _is_module(name: str) -> bool:
    return all(re.fullmatch(r"_?[a-z]\w*", part) for part in name.split(".")) and bool(
        re.search(r"exc|error|torch|vllm|fake_tensor|core", name)
    )
