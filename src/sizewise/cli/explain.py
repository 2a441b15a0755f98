"""`sizewise explain`: what an error means, by its code or name, or from a pasted traceback or log.

The JSON answer:

    {"match": {"record": {...}, "confidence": float, "why": [str], "site": {...}, "siteIsKnown": bool, "sites": [...],
               "siteCount": int, "package": {...}} | null,
     "alternatives": [the same], "looksLike": "cpp" | "interpreter" | "third-party" | "unknown" | "no-error" | null,
     "advice": {"title": str, "package": {...}, "origin": str, "documentation": str | null, "solutions": [str],
                "exampleFix": str | null, "why": [str], "link": str | null} | null,
     "seen": {"errorClass": str | null, "message": str, "frame": {...} | null, "filled": [{"hole": str, "text": str}],
              "links": [str], "number": int, "errors": int, "others": [str]} | null}
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
            help=(
                "A code (SW401), an id, a slug, a graph break's id (GB0170), a file with a traceback or log, - for "
                "stdin, or the error's text."
            ),
        ),
    ],
    json: AsJson = False,
) -> None:
    """Explain an error: Sizewise's own, and those of packages that `sizewise errors index` has read.

    Exit code 1: no record is sure enough to be the answer, or a name is of several
    errors; it then says what kind of error it looks like and what to do next.

    Example: sizewise explain SW401
    """
    try:
        code = run(what, json)
    except Unreadable as problem:
        raise typer.BadParameter(str(problem), param_hint="WHAT") from problem
    if code != EXPLAINED:
        raise typer.Exit(code)
