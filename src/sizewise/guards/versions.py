"""The version of a dict: a number that changes whenever an entry is set or removed.

Private API: ``torch._C._dynamo.guards.dict_version``. Checked on torch 2.13.0. Without it `dict_version` is None,
and what would be skipped while a version stands is compared at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _find() -> Callable[[dict[str, Any]], int] | None:
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found: Callable[[dict[str, Any]], int] | None = getattr(guards, "dict_version", None)
    try:
        if found is None or found({}) == found({"one": 1}):
            return None
    except Exception:
        return None
    return found


dict_version = _find()
"""Of one dict, as an int; None where torch does not tell."""
