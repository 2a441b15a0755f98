"""The time as a data set carries it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """Now, as RFC 3339 has it, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
