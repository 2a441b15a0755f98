"""A guard that Dynamo made, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from .paths import MODULE, SourcePath

RETURNED = "RETURNED"
"""The kind of a record that is no guard of Dynamo's: a value that is returned as it is."""


@dataclass
class GuardRecord:
    """One guard Dynamo made: its kind, what it is on, and an argument some kinds have.

    ``path`` is None where the guard is on no value (sizes, ambient state) or where its source is of a class
    that `trace.sources` does not know; ``source`` names that class.
    """

    kind: str
    name: str
    path: SourcePath | None
    source: str
    attribute: str = ""
    other: SourcePath | None = None
    """The second place of a guard on two of them."""

    @property
    def in_words(self) -> str:
        return f"{self.kind} on {str(self.path).replace(MODULE, 'self') if self.path else self.name or 'the process'}"
