"""The output template: what the forward returned, with graph outputs in place of its tensors.

Dynamo's graph is a flat list. Keys, constants and container classes live in the code around it,
which is run once with stand-ins; this file reads the result.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..calls import CONSTANT_TYPES
from ..errors import trace as errors
from ..traced.outputs import Output, find_class
from ..traced.sizes import SizeFunction


def read_template(
    result: Any,
    markers: list[Any],
    is_marker: tuple[Callable[[Any], bool], Callable[[Any], bool]],
    known_tensors: Mapping[int, tuple[str, str]],
    view_of_input: Callable[[torch.Tensor], int | None],
    owner: str,
    held: Mapping[int, str],
) -> Output:
    """The template of ``result``.

    ``markers`` are the stand-ins per graph output; ``is_marker`` tells whether a value is one of a size, and whether
    a text was made from one; ``known_tensors`` maps the id of an argument's or
    the module's tensor to (kind, path); ``view_of_input`` gives the graph output of a view of an argument; ``held``
    are the ids of objects that may be returned as they are, with their names.

    Raises:
        OutputClass (SW212): a leaf or container cannot be rebuilt.
    """
    by_id = {id(marker): index for index, marker in enumerate(markers) if isinstance(marker, torch.Tensor)}
    reader = _Reader(by_id, *is_marker, known_tensors, view_of_input, owner, held)
    return reader.read(result, "the result")


def with_sizes(template: Output, values: Sequence[Any], size: Callable[[Any], int | SizeFunction]) -> Output:
    """``template`` with the shapes of its tensors; ``values`` are torch's stand-ins for the graph's outputs."""
    if template.kind != "graph":
        children = tuple(with_sizes(child, values, size) for child in template.children)
        return dataclasses.replace(template, children=children)
    value = values[template.index]
    if isinstance(value, torch.Tensor):
        return dataclasses.replace(template, shape=tuple(map(size, value.shape)))
    return dataclasses.replace(template, value=size(value) if isinstance(value, torch.SymInt) else value)


@dataclass
class _Reader:
    by_id: dict[int, int]
    is_int_marker: Callable[[Any], bool]
    holds_marker: Callable[[Any], bool]
    known_tensors: Mapping[int, tuple[str, str]]
    view_of_input: Callable[[torch.Tensor], int | None]
    owner: str
    held: Mapping[int, str]

    def read(self, value: Any, path: str) -> Output:
        if self.is_int_marker(value):
            return Output("graph", index=value.index)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if id(value) in self.held:
            return Output("held", path=self.held[id(value)])
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(value, path)
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if type(value) is list:
            return Output("list", children=self._items(value, path))
        if isinstance(value, dict):
            return self._dict(value, path)
        if self.holds_marker(value):
            self._refuse(value, path, "it is a text made from a size that changes between calls")
        if isinstance(value, CONSTANT_TYPES):
            return Output("constant", value=value)
        self._refuse(value, path, "its class is not a container or value that is known here")
        raise AssertionError  # _refuse raises

    def _items(self, values: Any, path: str) -> tuple[Output, ...]:
        return tuple(self.read(item, f"{path}[{index}]") for index, item in enumerate(values))

    def _tensor(self, value: torch.Tensor, path: str) -> Output:
        if id(value) in self.by_id:
            return Output("graph", index=self.by_id[id(value)])
        if id(value) in self.known_tensors:
            kind, name = self.known_tensors[id(value)]
            return Output(kind, path=name)
        index = self.view_of_input(value)
        if index is not None:
            return Output("graph", index=index)
        self._refuse(value, path, "it is neither computed by the graph nor one of its inputs")
        raise AssertionError  # _refuse raises

    def _tuple(self, value: tuple[Any, ...], path: str) -> Output:
        children = self._items(value, path)
        if type(value) is tuple:
            return Output("tuple", children=children)
        kind = "namedtuple" if hasattr(value, "_fields") else "structseq"
        return Output(kind, cls=self._class_path(value, path), children=children)

    def _dict(self, value: dict[Any, Any], path: str) -> Output:
        for key in value:
            if not isinstance(key, (str, int)):
                self._refuse(value, path, f"the key {key!r} is neither a string nor an int")
            if self.is_int_marker(key) or self.holds_marker(key):
                self._refuse(value, path, "one of its keys is made from a size that changes between calls")
        children = tuple(self.read(item, f"{path}[{key!r}]") for key, item in value.items())
        if type(value) not in (dict, OrderedDict) and type(value).__init__ not in (
            dict.__init__,
            OrderedDict.__init__,
        ):
            self._refuse(value, path, "a dict class with an __init__ of its own")
        return Output("dict", cls=self._class_path(value, path), keys=tuple(value), children=children)

    def _fields(self, value: Any, path: str) -> Output:
        """A dataclass; None fields are left to their defaults when the class is a dict as well."""
        fields = [field for field in dataclasses.fields(value) if field.init]
        children = tuple(self.read(getattr(value, field.name), f"{path}.{field.name}") for field in fields)
        template = Output(
            "fields", cls=self._class_path(value, path), keys=tuple(f.name for f in fields), children=children
        )
        if isinstance(value, dict):
            # A ModelOutput: setting other entries than its fields cannot be rebuilt by its constructor.
            extra = [key for key in value if key not in template.keys]
            if extra:
                self._refuse(value, path, f"it has entries beside its fields: {extra}")
        return template

    def _class_path(self, value: Any, path: str) -> str:
        cls = type(value)
        name = f"{cls.__module__}:{cls.__qualname__}"
        try:
            found = find_class(name)
        except (ImportError, AttributeError):
            found = None
        if found is not cls:
            self._refuse(value, path, f"its class cannot be imported as {name}")
        return name

    def _refuse(self, value: Any, path: str, problem: str) -> None:
        cls = type(value)
        raise errors.OutputClass(
            owner=self.owner, type_name=f"a {cls.__module__}.{cls.__qualname__}", path=path, problem=problem
        )
