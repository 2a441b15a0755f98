"""What the site knows of one error: its record, where it stands, and what was said of it besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors.record import Record
from ..store import Site
from ..titles import title_of


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
    setup: str = ""
    """Code that runs before each piece of code of the page."""

    @property
    def title(self) -> str:
        function = self.sites[0].qualname if self.sites else ""
        return title_of(self.record.errorMessage, self.record.errorClass, function)

    @property
    def bare(self) -> bool:
        """Whether nobody wrote about it: all that is known was read off the source."""
        return not (self.record.documentation or self.record.solutions)

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
