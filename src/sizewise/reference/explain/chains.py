"""Which of a text's errors may be the one that is explained: of a chain the last one, for the others were handled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .told import Told

_ELSEWHERE = re.compile(
    r"[Ss]ee (?:root cause|the (?:log|error|stack)|stack trace|above)|raised:(?:$|\n)"
    r"|exit(?:ed)? (?:with|unexpectedly)"
)
_LINKED = frozenset({"cause", "context"})
_STOPPED = frozenset({"SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError"})
"""What ends a program, or is told to do so: not what went wrong."""


def points_elsewhere(told: Told) -> bool:
    """Whether a message says that another error is the reason, or that a program was stopped."""
    return bool(_ELSEWHERE.search(told.message)) or told.short_class in _STOPPED


def finals(told: Sequence[Told]) -> list[Told]:
    """The errors without those that came before another one in the same chain.

    An error that points to an earlier one leaves it in, and so does one that is the same error, raised again.
    """
    return [one for chain in _chains(told) for one in _last_of(chain)]


def last_of_each(told: Sequence[Told]) -> list[Told]:
    """The errors that stand last in what a process says, with those that they point to; and all that are no errors."""
    by_process: dict[str, list[Told]] = {}
    for chain in _chains([one for one in told if one.kind == "exception"]):
        kept = _last_of(chain)
        known = by_process.get(chain[0].process, [])
        by_process[chain[0].process] = [*known, *kept] if all(map(points_elsewhere, kept)) else kept
    return [one for one in told if one.kind != "exception"] + [one for kept in by_process.values() for one in kept]


def _chains(told: Sequence[Told]) -> Iterator[list[Told]]:
    chain: list[Told] = []
    for number, one in enumerate(told):
        chain.append(one)
        after = told[number + 1] if number + 1 < len(told) else None
        goes_on = after is not None and after.process == one.process
        linked = next((each.relation in _LINKED for each in reversed(chain) if each.relation != "inside"), False)
        if not goes_on or not (linked or (after is not None and after.relation == "inside")):
            yield chain
            chain = []


def _last_of(chain: Sequence[Told]) -> list[Told]:
    """The errors of the last link, with what is named inside of their messages."""
    start = next((at for at in range(len(chain) - 1, -1, -1) if chain[at].relation != "inside"), 0)
    last = list(chain[start:])
    if points_elsewhere(last[0]):
        return list(chain)
    same = [one for one in chain[:start] if (one.short_class, one.message) == (last[0].short_class, last[0].message)]
    return [*same, *last]
