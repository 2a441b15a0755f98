"""What the site knows of one error: its record, where it stands, and what was said of it besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors.record import Record, title_of
from ..store import Site


@dataclass(frozen=True)
class Entry:
    """An error with all that its page shows. ``sites`` are all places that make it, the record's own first."""

    record: Record
    package: str
    version: str
    sites: tuple[Site, ...]
    groups: tuple[str, ...]
    """What it belongs to, the closest first: its branch of the tree and the package, or its file and folder."""
    aliases: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    """Ids, codes or slugs that a person named as related."""
    remedy: str = ""
    """What the message itself says is to be done."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Field of the message -> its type and what it is."""

    @property
    def title(self) -> str:
        return title_of(self.record.errorMessage)

    @property
    def origin(self) -> str:
        """The repository, or the package's name where none is known."""
        return self.record.repo or self.package

    @property
    def command(self) -> str:
        """What explains it on the command line."""
        return f"sizewise explain {self.record.errorCode or self.record.id}"

    @property
    def at(self) -> str:
        """What is said before the place of its first site."""
        if not self.sites:
            return "Defined in"
        return {"log": "Logged at", "warning": "Warned at"}.get(
            self.record.errorType, "Thrown at" if self.record.errorClass else "Made at"
        )
