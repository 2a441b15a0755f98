"""What to do next about an error that has no record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..reference.explain import Answer

_CUDA = re.compile(r"CUDA|cuda|NCCL|cuBLAS|cuDNN")


def next_steps(answer: Answer) -> Iterator[str]:
    """The steps, the most useful first; none where there is advice that says them."""
    seen, kind = answer.seen, answer.looks_like
    line = seen is not None and seen.frame is not None
    if kind == "no-error":
        yield 'Give the whole traceback, from "Traceback (most recent call last)" to the last line of the error.'
        return
    if not answer.indexed and kind != "interpreter":
        yield "Run `sizewise errors index`: without it only Sizewise's own errors are known."
    if kind == "cpp":
        yield from _of_cpp(answer, line)
    elif kind == "third-party":
        name = answer.package or "PACKAGE"
        yield f"Run `sizewise errors index {name}` and ask again: its sources are then known too."
    elif kind == "interpreter":
        which = "your line above" if line else "the last line of the traceback"
        yield f"Python itself says this of {which}: look at the values there; no package's source has the message."
    elif kind == "unknown":
        if seen is not None and seen.frame is not None and seen.frame.source.startswith(("raise ", "assert ")):
            yield "Your own line above raises it: what it means stands there."
        elif seen is not None and not seen.frame:
            yield "Give the whole traceback if there is more of it: the lines above the error tell where it comes from."
        if answer.indexed:
            yield "If a package raises it that is not in the index: `sizewise errors index PACKAGE`, and ask again."


def _of_cpp(answer: Answer, line: bool) -> Iterator[str]:
    seen = answer.seen
    if answer.advice is not None:
        return
    if seen is not None and _CUDA.search(seen.message):
        yield "Run once with CUDA_LAUNCH_BLOCKING=1: without it the line in the traceback may be a later one."
    if line:
        yield "Print shape, dtype and device of each tensor in the call on your line above; compare with the message."
    else:
        yield "Give the whole traceback if there is more of it: its last Python line is the call that failed."
    yield "Nobody has written advice for it. With TORCH_SHOW_CPP_STACKTRACES=1 torch adds where in C++ it arose."
