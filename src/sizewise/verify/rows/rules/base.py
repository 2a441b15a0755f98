"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tags import Applied, Mixes, Rows

Outcome = Rows | str | None
"""Of one result: its rows, why it has none that stand for themselves, or None where it does not depend on the dim."""

Judge = Callable[[Applied], Outcome | Sequence[Outcome]]


@dataclass(frozen=True)
class Rule:
    """What one family of operators does to rows."""

    judge: Judge
    """The rows of the results: one for all, or one each."""
    varying: frozenset[str] = frozenset()
    """Arguments that may differ between the sizes: what they change shows in the results' shapes."""
    view: bool = False
    """Whether results lie in the argument's memory."""
    values: bool = True
    """Whether it reads values of its arguments, and not only their shapes."""
    fills: bool = True
    """Whether it writes to what it gives; `torch.empty` does not."""
    fixed: Callable[[dict[str, Any]], bool] | None = None
    """Of an operator that can draw random numbers: whether it draws none with these arguments."""

    def is_fixed(self, args: dict[str, Any]) -> bool:
        return self.fixed is not None and self.fixed(args)

    def results(self, op: Applied) -> list[Outcome]:
        """The judgement for each result.

        Raises:
            Mixes: rows depend on one another.
        """
        found = self.judge(op)
        if isinstance(found, (Rows, str)) or found is None:
            return [found] * len(op.results)
        if len(found) != len(op.results):
            raise Mixes("is called in a form that is not known")
        return list(found)


def named(names: str, rule: Rule) -> dict[str, Rule]:
    """One rule for several operators, whose names are separated by spaces."""
    return dict.fromkeys(names.split(), rule)
