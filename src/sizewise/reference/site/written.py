"""What a person wrote about an error of the installed stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..overlay import written_for
from ..store import Stored


def written(stored: Stored) -> Mapping[str, Any]:
    """The written fields of a record, by their names in `Record`; empty where nobody wrote about it.

    Also understood are ``aliases`` (other ids and slugs), ``related`` (ids, codes or slugs) and ``setup`` (code).
    This is the one place where what was written meets what was read off the sources.
    """
    return written_for(stored.distribution.name, stored.error_class, stored.template)
