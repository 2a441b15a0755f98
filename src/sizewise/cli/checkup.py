"""What a check of the machine gives: one row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .blame import cause_of

OK, WARN, FAIL = "ok", "warn", "fail"

WITHOUT_COMPILER = (
    "or do without one: sizewise.load a bundle that was built on a machine like this one (`sizewise compile TARGET -o "
    'm.sizewise`, in a container\'s build step, say; it serves without a compiler), or set backend="eager" (nothing is '
    "compiled, calls are as fast as eager mode)"
)


@dataclass(frozen=True)
class Row:
    """One thing that was looked at; ``todo`` is empty where nothing is to be done."""

    name: str
    status: str
    seen: str
    todo: str = ""


def examine(checks: Iterable[Callable[[], Row]]) -> list[Row]:
    """The rows of all checks; a check that breaks is a row that fails, and ends nothing."""
    rows = []
    for check in checks:
        try:
            rows.append(check())
        except Exception as problem:
            name = check.__name__.replace("_", " ")
            rows.append(Row(name, FAIL, cause_of(problem), "repair what the message names, then run this again"))
    return rows
