"""The command line. Importing it imports no torch: commands import what they need when they run."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit codes, as shells give them for SIGINT and SIGPIPE."""


def main() -> None:
    """Run the command in ``sys.argv`` and exit with its code."""
    sys.exit(_run())


def _run() -> int | str | None:
    # The application's parts take longer to load than most answers of `explain` take to find.
    from .explaining import quick

    code: int | str | None = 0
    try:
        code = quick(sys.argv[1:])
        if code is None:
            from .app import make_app

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
