"""Where a value came from: a root and the steps from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..calls import Call

MODULE = "__sizewise_module__"
"""The name of the module in the traced function."""
ARGUMENT = "__sizewise_argument_"
"""What an argument's name in it starts with; its number follows."""

_READ: dict[str, Callable[[Any, Any], Any]] = {
    "attr": getattr,
    "item": lambda value, key: value[key],
    "key": lambda value, key: list(value)[key],
    "key_item": lambda value, key: list(value.values())[key],
    "type": lambda value, _: type(value),
    "dict": lambda value, _: value.__dict__,
    "call": lambda value, _: value(),
}
_TEXT = {
    "attr": ".{0}",
    "item": "[{0!r}]",
    "key": " (key {0})",
    "key_item": " (item {0})",
    "type": " (its class)",
    "dict": ".__dict__",
    "call": "()",
}


def read_step(kind: str, value: Any, key: Any) -> Any:
    """What is one step from ``value``."""
    return _READ[kind](value, key)


@dataclass(frozen=True)
class SourcePath:
    """A root and the steps from it.

    ``root_kind``: ``local`` or ``global`` (a name), or ``module`` (an imported module's name). A step is
    (``attr`` | ``item`` | ``key`` | ``key_item`` | ``type`` | ``dict`` | ``call``, argument); ``key`` and
    ``key_item`` count the entries of a dict.
    """

    root_kind: str
    root: str
    steps: tuple[tuple[str, Any], ...] = ()
    size_axis: int | None = None

    def fetch(self, root_value: Any) -> Any:
        """The object at the path, starting from ``root_value``."""
        value = root_value
        for kind, key in self.steps:
            value = read_step(kind, value, key)
        return value

    def step(self, kind: str, key: Any) -> SourcePath:
        """The path one step further."""
        return SourcePath(self.root_kind, self.root, (*self.steps, (kind, key)))

    def parent(self) -> SourcePath:
        return SourcePath(self.root_kind, self.root, self.steps[:-1])

    def __str__(self) -> str:
        text = "".join(_TEXT[kind].format(key) for kind, key in self.steps)
        return f"{self.root}{text}" + ("" if self.size_axis is None else f".size({self.size_axis})")


def module_path(steps: tuple[tuple[str, Any], ...]) -> str:
    """The dotted name of a module's tensor: ``encoder.layer.0.weight``."""
    registries = {("attr", "_modules"), ("attr", "_parameters"), ("attr", "_buffers")}
    return ".".join(str(key) for kind, key in steps if (kind, key) not in registries)


def argument_path(root: str, call: Call) -> str | None:
    """The user's path of a local of the traced function, or None for another local."""
    index = root.removeprefix(ARGUMENT)
    if index == root or not index.isdigit():
        return None
    return call.passed[int(index)].path
