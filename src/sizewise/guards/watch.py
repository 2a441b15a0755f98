"""A quick answer to whether anything was set on some objects: one call in C++ for all of them, or a few.

Private API: ``torch._C._dynamo.guards.RootGuardManager`` with ``list_getitem_manager``,
``get_generic_dict_manager``, ``add_type_match_guard`` and ``add_dict_version_guard``, and
``torch._dynamo.guards.GuardManagerType``; ``torch._C._dynamo.guards.dict_version``. Checked on torch 2.13.0. Where
they are missing or do not notice a change, `watch` gives None, and what it would have saved is compared at every call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any


def watch(objects: Sequence[Any]) -> Callable[[], bool] | None:
    """A function that says whether each of ``objects`` is of its class and has every attribute as it was.

    It notices a class assigned, a whole ``__dict__`` replaced, and any attribute set or removed, also where the
    value is the same as before; not what changes inside a value.
    """
    # The first would import Dynamo, which takes seconds: not in a process that only serves what was built before.
    ways = [_manager, _versions] if "torch._dynamo.guards" in sys.modules else [_versions]
    for way in ways:
        try:
            if _works(way):
                return way(list(objects))
        except Exception:
            continue  # another torch: the next way, or none
    return None


def _versions(objects: list[Any]) -> Callable[[], bool]:
    """The same by the version number that each dict has, asked one by one."""
    from torch._C._dynamo import guards

    dict_version: Callable[[Any], int] = guards.dict_version
    kinds = list(map(type, objects))
    dicts = list(map(vars, objects))
    known = list(map(dict_version, dicts))
    every = (*objects,)

    def check() -> bool:
        return (
            list(map(dict_version, dicts)) == known
            and list(map(type, every)) == kinds
            and all(map(is_, map(vars, every), dicts))
        )

    return check


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


def _works(way: Callable[[list[Any]], Callable[[], bool]]) -> bool:
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
        intact = way([probe])
        if not intact():
            return False
        change(probe)
        if intact():
            return False
    return True
