"""Why a worker did not do its job, as an error."""

from __future__ import annotations

from ..errors import SizewiseError
from ..errors.command import UnexpectedProblem
from ..errors.registry import errors_by_code
from .children import ENDINGS, Child, Event
from .results import LABELS


def failure_of(name: str, events: list[Event], child: Child) -> SizewiseError | None:
    """Why a job did not end well; a worker's own error as the class it was there."""
    last: Event = events[-1] if events else {"event": ""}
    if last["event"] not in ENDINGS:
        return died(name, child)
    if last["event"] == "done":
        return None
    known = errors_by_code().get(last["code"])
    if known is None:
        return _unexpected(name, last["text"])
    # The fields crossed as text, so the message is taken as it was rendered there.
    error = known.__new__(known)
    error.fields = last["fields"]
    Exception.__init__(error, last["text"])
    return error


def died(name: str, child: Child) -> UnexpectedProblem:
    return _unexpected(name, f"it ended with {child.status()}; its last words: {child.last_words()}")


def _unexpected(name: str, cause: str) -> UnexpectedProblem:
    if "signal 9" in cause:
        todo = "free memory, about 2 GB, and run the demo again"
    else:
        todo = "run `sizewise doctor`; where it finds nothing, report this with its output"
    return UnexpectedProblem(command="demo", where=f"the process of {LABELS[name]}", cause=cause, todo=todo)
