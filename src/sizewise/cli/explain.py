"""`sizewise explain`: what an error means, by its code or name, or from a pasted traceback or log.

The JSON answer:

    {"match": {"record": {...}, "confidence": float, "why": [str], "site": {...}, "package": {...}} | null,
     "alternatives": [the same], "looksLike": "cpp" | "interpreter" | "third-party" | "unknown" | "no-error" | null}
"""

from __future__ import annotations

from typing import Annotated

import typer

from .explaining import EXPLAINED, Unreadable, run
from .output import AsJson


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A code (SW401), an id, a slug, a file with a traceback or log, - for stdin, or the error's text.",
        ),
    ],
    json: AsJson = False,
) -> None:
    """Explain an error: Sizewise's own, and those of packages that `sizewise errors index` has read.

    Exit code 1: no record is sure enough to be the answer; it then says what kind
    of error it looks like.

    Example: sizewise explain SW401
    """
    try:
        code = run(what, json)
    except Unreadable as problem:
        raise typer.BadParameter(str(problem), param_hint="WHAT") from problem
    if code != EXPLAINED:
        raise typer.Exit(code)
