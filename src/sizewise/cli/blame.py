"""Where an exception comes from, as a user wants to read it: a file and line of their own."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_NOT_THE_USERS = [_PACKAGE, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))]


def place_of(problem: BaseException) -> str:
    """``file:line`` of the deepest frame in the user's own code, or of the deepest one there is."""
    if isinstance(problem, SyntaxError) and problem.filename and Path(problem.filename).is_file():
        return f"{_short(problem.filename)}:{problem.lineno}"
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    frame = next(reversed(own or frames), None)
    return f"{_short(frame.filename)}:{frame.lineno}" if frame else "an unknown place"


def cause_of(problem: BaseException) -> str:
    """The exception in one line: its class and the first line of what it says."""
    text = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    first = next((line.strip() for line in (text or "").splitlines() if line.strip()), "")
    return f"{type(problem).__name__}: {first}".rstrip(": .")


def _is_users(filename: str) -> bool:
    path = Path(filename)
    return path.is_file() and not any(path.resolve().is_relative_to(root) for root in _NOT_THE_USERS)


def _short(filename: str) -> str:
    path = Path(filename).resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
