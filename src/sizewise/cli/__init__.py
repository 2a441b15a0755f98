"""The command line. Importing it imports no torch: commands import what they need when they run."""

from __future__ import annotations

import os
import sys

from .app import make_app
from .output import BROKEN_PIPE, INTERRUPTED

__all__ = ["main"]


def main() -> None:
    """Run the command in ``sys.argv`` and exit with its code."""
    sys.exit(_run())


def _run() -> int | str | None:
    code: int | str | None = 0
    try:
        make_app()(prog_name="sizewise")
    except SystemExit as stop:
        code = stop.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    try:
        # What is still buffered would fail after `main`, with a message that nobody asked for.
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    return code
