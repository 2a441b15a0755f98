"""An exception of Dynamo as an error of Sizewise: what happened in the user's words, where, and what to do."""

from __future__ import annotations

import re
from typing import NoReturn

from ..calls import Call
from ..errors import trace as errors
from .breaks import graph_break
from .lines import user_location
from .sources import ARGUMENT, MODULE

_DATA_DEPENDENT = ("data-dependent expression", "Could not guard on data-dependent", "data dependent")


class SizeGuard(Exception):
    """The trace needed to know a size. Internal: the policy decides what to do about it."""

    def __init__(self, reason: str, where: str, graph_break: str) -> None:
        super().__init__(reason)
        self.reason, self.where, self.graph_break = reason, where, graph_break


def explain(problem: Exception, owner: str, call: Call) -> NoReturn:
    """Raise ``problem`` as NotTraceable (SW207), or as SizeGuard where another policy may do."""
    text = str(problem)
    where = user_location(problem)
    known = graph_break(problem)
    if "cannot be converted to Scalar" in text:
        # The code around the graph took a number out of a stand-in.
        reason = "it returns a number taken from a tensor, or computed from a size as a float"
        hint = "return the tensor, or the size itself, and compute the number outside."
        raise errors.NotTraceable(
            owner=owner, reason=reason, where=where, graph_break=str(known), hint=hint
        ) from problem
    reason = _in_words(_first_line(text), call)
    size_guard = any(sign in text for sign in (*_DATA_DEPENDENT, "GuardOnDataDependentSymNode", "ConstraintViolation"))
    if size_guard or type(problem).__name__ == "ConstraintViolationError":
        raise SizeGuard(reason=reason, where=where, graph_break=str(known)) from problem
    hint = next((way_out for sign, way_out in _WAYS_OUT.items() if sign in text), "")
    if not hint and known.hints:
        hint = known.hints[0] if not known.id else "follow torch's hint, or compile the modules around that line."
    hint = hint or "rewrite that line, or compile the parts of the module around it."
    raise errors.NotTraceable(owner=owner, reason=reason, where=where, graph_break=str(known), hint=hint) from problem


def _first_line(text: str) -> str:
    """The part of a torch message that says what happened, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failed = re.search(r"got (\w+)\((['\"])(.+?)\2\)", text)
    if failed and "fake tensor" in text:
        return f"{failed.group(1)}: {failed.group(3)}"
    telling = [line for line in lines if line.startswith("- Not all values") or "Could not guard" in line]
    return (telling or lines or ["no message"])[0].removeprefix("- ")


_WAYS_OUT = {
    "builtin `print`": "remove the print from the forward.",
    "no fake impl registered": "register one with the operator's register_fake: the result's shape, uncomputed.",
    "when making fake tensor call": "run the module in eager mode on these inputs: it probably fails there as well.",
    "Data-dependent branching": "use torch.where instead of the branch, or pass the condition in as a Python value.",
    "Data dependent operator": "use a mask instead of a size or value taken from the data.",
    "item() call": "keep the value a tensor, or pass it in as a Python number.",
}
"""What to do by a part of torch's message; torch's own hints speak of torch.compile."""


def _in_words(reason: str, call: Call) -> str:
    """Dynamo's names for the traced function's locals replaced by the user's."""
    reason = reason.replace(f"L['{MODULE}']", "self")
    reason = re.sub(rf"L\['{ARGUMENT}(\d+)'\]", lambda found: call.passed[int(found.group(1))].path, reason)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", reason)
