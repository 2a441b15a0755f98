"""What a trace took for granted about Python values, kept and compared at every call.

Each value is kept as a place, (container, key), so that a call compares a few lists with C loops instead
of walking the module. A place that changed is looked at once more, slowly, before the program is called
stale: an equal constant under a new object is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..calls import CONSTANT_TYPES
from ..errors import state as state_errors
from ..native import Places as QuickPlaces
from ..native import watch
from .groups import Group, OwnersGroup
from .places import Places
from .plan import PlacesPlan

_MAX_WATCHES = 16
"""Changes that were none for the program, after which a module that changes at every call is compared in Python."""


class Snapshot:
    """The values that ``plan`` names, in the user's own module and in globals.

    Raises:
        AttributeError, KeyError, IndexError, TypeError: the module has no such place.
    """

    def __init__(
        self, owner: str, plan: PlacesPlan, module: nn.Module, scope: Mapping[str, Any], forward: Any = None
    ) -> None:
        """``forward`` is what the module's forward was before it was replaced in place, if it was."""
        self.owner = owner
        self.plan = plan
        places = Places()
        plan.bind(places, module, scope, forward)
        for name in ("_global_forward_hooks", "_global_forward_pre_hooks"):
            places.hooks(getattr(nn.modules.module, name), "every module")
        self._groups = places.groups()
        # Bound once: this is asked at every call.
        self._questions = [group.intact for group in self._groups]
        self._watches = 0
        # One tuple: threads see both or neither.
        self._quick = self._watch()

    def _watch(self) -> tuple[Callable[[], bool] | None, list[Callable[[], bool]]]:
        """A quick question about most groups, or None, and those of the other groups."""
        self._watches += 1
        if self._watches > _MAX_WATCHES:
            return None, []
        quick = QuickPlaces()
        others = []
        for group in self._groups:
            places = group.quick()
            if places is None:
                others.append(group.intact)
            else:
                quick.add(places)
        return watch(quick), others

    def __len__(self) -> int:
        """How many values are compared at every call."""
        return sum(len(group) for group in self._groups)

    def constants(self) -> dict[str, str]:
        """The plain Python values among them, by name, as text: what goes into a program's key."""
        found: dict[str, str] = {}
        for group in self._flat():
            for label, value in zip(group.labels, group.known, strict=False):
                if isinstance(value, CONSTANT_TYPES) and not label.startswith("the global __"):
                    found[label] = f"{type(value).__name__} {value!r}"
        return found

    def summary(self) -> list[tuple[str, str]]:
        """Every value by name, in words that mean the same in another process."""
        found: list[tuple[str, str]] = []
        for group in self._flat():
            found += group.summary()
        return sorted(found + self._same())

    def _same(self) -> list[tuple[str, str]]:
        """Which tensors and modules are one in several places."""
        places: dict[int, list[str]] = {}
        for group in self._flat():
            for label, value in zip(group.labels, group.known, strict=False):
                if isinstance(value, (torch.Tensor, nn.Module)):
                    places.setdefault(id(value), []).append(label)
        repeated = sorted(sorted(set(labels)) for labels in places.values() if len(set(labels)) > 1)
        return [(first, f"the same as {', '.join(others)}") for first, *others in repeated]

    def _flat(self) -> Iterator[Group]:
        for group in self._groups:
            yield group
            if isinstance(group, OwnersGroup):
                yield from group.inner

    def check(self) -> None:
        """Compare every value.

        Raises:
            Stale (SW503): one has changed; its name is in the error.
        """
        quick, others = self._quick
        if quick is not None and quick():
            for intact in others:
                if not intact():
                    return self._look_closer()
            return None
        for intact in self._questions:
            if not intact():
                self._look_closer()
                break
        if quick is not None:
            self._quick = self._watch()
        return None

    def _look_closer(self) -> None:
        for group in self._groups:
            if not group.intact():
                change = group.find_change()
                if change is not None:
                    raise state_errors.Stale(owner=self.owner, what=change)
