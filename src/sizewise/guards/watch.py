"""A quick answer to whether anything was set on some objects: one call in C++ for all of them.

Private API: ``torch._C._dynamo.guards.RootGuardManager`` with ``list_getitem_manager``,
``get_generic_dict_manager``, ``add_type_match_guard`` and ``add_dict_version_guard``, and
``torch._dynamo.guards.GuardManagerType``. Checked on torch 2.13.0. Where it is missing or does not notice a change,
`watch` gives None, and what it would have saved is compared at every call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any


def watch(objects: Sequence[Any]) -> Callable[[], bool] | None:
    """A function that says whether each of ``objects`` is of its class and has every attribute as it was.

    It notices a class assigned, a whole ``__dict__`` replaced, and any attribute set or removed, also where the
    value is the same as before; not what changes inside a value.
    """
    if "torch._dynamo.guards" not in sys.modules:
        return None  # the C++ side would import Dynamo: seconds, for a process that only serves
    try:
        return _manager(list(objects)) if _works() else None
    except Exception:
        return None


def _manager(objects: list[Any]) -> Callable[[], bool]:
    from torch._C._dynamo import guards
    from torch._dynamo.guards import GuardManagerType

    plain = GuardManagerType.GUARD_MANAGER
    root = guards.RootGuardManager()
    for index, value in enumerate(objects):
        item = root.list_getitem_manager(index, f"objects[{index}]", value, plain)
        item.add_type_match_guard(id(type(value)), ["class"], None)
        attributes = item.get_generic_dict_manager(f"objects[{index}].__dict__", vars(value), plain)
        attributes.add_dict_version_guard(vars(value), ["version"], None)
    check = root.check
    return lambda: check(objects)


class _Probe:
    def __init__(self) -> None:
        self.value = 1


def _works() -> bool:
    """Whether this torch notices each kind of change."""

    def assigned(probe: Any) -> None:
        probe.__class__ = type("Other", (_Probe,), {})

    def replaced(probe: Any) -> None:
        probe.__dict__ = {"value": 1}

    def changed(probe: Any) -> None:
        probe.value = 2

    def grown(probe: Any) -> None:
        probe.other = 1

    for change in (assigned, replaced, changed, grown):
        probe = _Probe()
        intact = _manager([probe])
        if not intact():
            return False
        change(probe)
        if intact():
            return False
    return True
