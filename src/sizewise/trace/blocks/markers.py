"""What stands in the way of a trace that goes through one block only: marks around it, stand-ins for the others.

The first block of a run is traced between two marks. Every other one's forward is a stand-in that hands its arguments
to a function of ours, which Dynamo puts into the graph uncalled and runs on fake tensors: there each call is compared
with the first block's, and results like the first block's are made.

Private API: ``torch._dynamo.allow_in_graph``, ``torch.compiler.config.unbacked_sources`` and
``torch._dynamo.utils.run_node``. Checked on torch 2.13.0 and 2.14.1. Where one is missing, models are traced in full.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from ...traced.paths import MODULE
from .alike import NotAlike, Run

_PLAIN = (bool, int, float, str)


@dataclass
class First:
    """The first block's one call: what it got and gave."""

    structure: str
    leaves: tuple[Any, ...]
    alike: tuple[Any, ...]
    """What is compared with the leaves of other calls."""
    ambient: tuple[Any, ...] = ()
    """The state around the call."""
    results: list[torch.Tensor] = field(default_factory=list)
    template: Any = None
    """How a result is put together, for `_rebuild`; None until the call has ended."""


class Recorder:
    """Compares the calls of one run's blocks while Dynamo traces; ``problem`` says why they are not alike."""

    def __init__(self, run: Run, number: int) -> None:
        self.run, self.number = run, number
        self.first: First | None = None
        self.template: Any = None
        self.problem = ""
        self.called: list[str] = []

    def enter(self, _run: int, _key: str, structure: str, *leaves: Any) -> list[Any]:
        if self.first is not None and _mode(leaves) is _mode(self.first.leaves):
            self._refuse("the first block is called twice")
        # Dynamo may begin anew, which makes new fake tensors; what was seen before then is void.
        self.called.clear()
        self._refuse_unknown(structure)
        self.first = First(structure, leaves, _summary(leaves), _ambient())
        return []

    def leave(self, _run: int, _key: str, structure: str, again: str, count: int, *values: Any) -> list[Any]:
        """``count`` leaves of the result, then those of the arguments as the block left them (``again``)."""
        self._refuse_unknown(structure)
        if self.first is None:
            raise NotAlike("a block ended that did not begin")
        leaves, after = values[:count], values[count:]
        if again != self.first.structure or not _same(after, self.first.leaves):
            self._refuse("a block changes a container that it is given")
        if _ambient() != self.first.ambient:
            self._refuse("a block changes the state around it")
        self.first.template = self.template = self._template(self.first, structure, list(leaves))
        return []

    def stand_in(self, _run: int, key: str, structure: str, *leaves: Any) -> list[Any]:
        if self.first is None or self.first.template is None:
            self._refuse("another block is called before the first one has ended")
            raise NotAlike(self.problem)
        if structure != self.first.structure or _summary(leaves) != self.first.alike:
            self._refuse(f"block {key} gets other arguments than block {self.run.keys[0]}")
        if _ambient() != self.first.ambient:
            self._refuse(f"block {key} is called in another state (autocast, gradients, default dtype) than the first")
        self.called.append(key)
        return [
            torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=result.device)
            for result in self.first.results
        ]

    def _template(self, first: First, structure: str, leaves: list[Any]) -> Any:
        """The result as nested tuples of ("new", number), ("in", number), ("none",) and containers."""
        known = {id(leaf): number for number, leaf in enumerate(first.leaves) if isinstance(leaf, torch.Tensor)}
        storages = {_storage(leaf) for leaf in first.leaves if isinstance(leaf, torch.Tensor)}
        places: list[Any] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                self._refuse(f"a block returns {leaf!r}")
            if id(leaf) in known:
                places.append(("in", known[id(leaf)]))
                continue
            if _storage(leaf) in storages:
                self._refuse("a block returns a view of an argument, or two views of one tensor")
            storages.add(_storage(leaf))
            places.append(("new", len(first.results)))
            first.results.append(leaf)
        return _parse(structure, iter(places))

    def _refuse_unknown(self, structure: str) -> None:
        if "?" in structure:
            self._refuse(
                "a block is called with, or returns, something else than tensors, numbers and their containers"
            )

    def _refuse(self, problem: str) -> None:
        self.problem = self.problem or problem
        raise NotAlike(problem)


def _same(after: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Whether the values are those of before: the same tensors, equal numbers."""
    return len(after) == len(before) and all(
        a is b if isinstance(b, torch.Tensor) else type(a) is type(b) and str(a) == str(b)
        for a, b in zip(after, before, strict=True)
    )


def _ambient() -> tuple[Any, ...]:
    """What a forward may ask about the state around it, and what changes its results."""
    casts = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return (
        *casts,
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )


def _mode(leaves: tuple[Any, ...]) -> Any:
    return next((leaf.fake_mode for leaf in leaves if hasattr(leaf, "fake_mode")), None)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _summary(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """Everything about a call's values that its trace can depend on, for a comparison with another call's."""
    seen: dict[int, int] = {}
    found: list[Any] = []
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            found.append((type(leaf), str(leaf)))
            continue
        strided = leaf.layout == torch.strided
        found.append(
            (
                type(leaf),
                str(tuple(leaf.shape)),
                str(leaf.stride()) if strided else "",
                str(leaf.storage_offset()) if strided else "",
                leaf.dtype,
                leaf.device,
                leaf.layout,
                leaf.requires_grad,
                # Which of them are one tensor, or share memory.
                seen.setdefault(id(leaf), number),
                seen.setdefault(_storage(leaf), number) if strided else number,
            )
        )
    return tuple(found)


def flatten(value: Any, leaves: list[Any]) -> str:
    """The leaves of nested containers, and their structure as text.

    Traced by Dynamo, for which a call, or a comprehension, costs more than many lines: leaves are taken in place.
    """
    if value is None:
        return "n"
    if isinstance(value, (torch.Tensor, *_PLAIN)):
        leaves.append(value)
        return "l"
    kind = type(value)
    if kind is dict:
        return _flatten_dict(value, leaves)
    if kind is not tuple and kind is not list:
        return "?"
    text = "(" if kind is tuple else "["
    for item in value:
        if isinstance(item, torch.Tensor):
            leaves.append(item)
            text += "l"
        else:
            text += flatten(item, leaves)
    return text + (")" if kind is tuple else "]")


def _flatten_call(args: Any, kwargs: Any, leaves: list[Any]) -> str:
    """`flatten` for a call. Traced by Dynamo."""
    text = ""
    for item in args:
        if isinstance(item, torch.Tensor):
            leaves.append(item)
            text += "l"
        else:
            text += flatten(item, leaves)
    return text + _flatten_dict(kwargs, leaves) if kwargs else text


def _flatten_dict(value: dict[Any, Any], leaves: list[Any]) -> str:
    text = "{"
    for key, item in value.items():
        if not isinstance(key, str) or not key.isidentifier():
            return "?"
        text += "'" + key + "'"
        if isinstance(item, torch.Tensor):
            leaves.append(item)
            text += "l"
        else:
            text += flatten(item, leaves)
    return text + "}"


_TOKEN = re.compile(r"'(?P<key>\w+)'|(?P<plain>[nl])|(?P<open>[(\[{])|(?P<close>[)\]}])")
_KINDS = {"(": "tuple", "[": "list", "{": "dict"}


def _parse(structure: str, places: Iterator[Any]) -> Any:
    """The structure that `flatten` wrote, as nested tuples with the next of ``places`` for each leaf."""
    stack: list[tuple[str, list[Any]]] = [("root", [])]
    key = ""
    for token in _TOKEN.finditer(structure):
        if token["key"]:
            key = token["key"]
            continue
        if token["open"]:
            stack.append((_KINDS[token["open"]], []))
            stack[-1][1].append(key)
            key = ""
            continue
        if token["close"]:
            kind, items = stack.pop()
            key = items[0]
            made: Any = (kind, tuple(items[1:]))
        else:
            made = ("none",) if token["plain"] == "n" else next(places)
        stack[-1][1].append((key, made) if stack[-1][0] == "dict" else made)
        key = ""
    return stack[0][1][0]


_ONE = ("new", 0)
"""The template of a result that is one tensor."""


def _rebuild(template: Any, made: Any, leaves: Any) -> Any:
    """A stand-in's result. Traced by Dynamo."""
    kind = template[0]
    if kind == "new":
        return made[template[1]]
    if kind == "in":
        return leaves[template[1]]
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _rebuild(item, made, leaves) for key, item in template[1]}
    items = [_rebuild(item, made, leaves) for item in template[1]]
    return tuple(items) if kind == "tuple" else items


@contextmanager
def marked(twin: nn.Module, recorders: list[Recorder]) -> Iterator[Mapping[Callable[..., Any], str]]:
    """The blocks of the runs with marks and stand-ins for forwards; the functions that mean them in a graph."""
    meanings: dict[Callable[..., Any], str] = {}
    changed: list[nn.Module] = []
    try:
        for recorder in recorders:
            container = twin.get_submodule(recorder.run.path)
            functions = _functions(recorder)
            meanings |= {function: name for name, function in functions.items()}
            for position, key in enumerate(recorder.run.keys):
                block = container._modules[key]
                make = _marked_forward if position == 0 else _standing_in
                forward = make(recorder, key, functions)
                vars(block)["forward"] = types.MethodType(forward, block)
                changed.append(block)
        yield meanings
    finally:
        for block in changed:
            vars(block).pop("forward", None)


def _functions(recorder: Recorder) -> dict[str, Callable[..., Any]]:
    """The recorder's methods as functions of their own, which Dynamo is told to put into the graph as they are."""

    def enter(*values: Any) -> list[Any]:
        return recorder.enter(*values)

    def leave(*values: Any) -> list[Any]:
        return recorder.leave(*values)

    def stand_in(*values: Any) -> list[Any]:
        return recorder.stand_in(*values)

    functions: tuple[Callable[..., Any], ...] = (enter, leave, stand_in)
    return {function.__name__: torch._dynamo.allow_in_graph(function) for function in functions}


def _marked_forward(recorder: Recorder, key: str, functions: Any) -> Callable[..., Any]:
    number, enter, leave = recorder.number, functions["enter"], functions["leave"]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = _flatten_call(args, kwargs, leaves)
        enter(number, key, structure, *leaves)
        # By its class, so that what Dynamo says about that forward is not about these marks.
        result = type(self).forward(self, *args, **kwargs)
        returned: list[Any] = []
        structure = flatten(result, returned)
        after: list[Any] = []
        again = _flatten_call(args, kwargs, after)
        leave(number, key, structure, again, len(returned), *returned, *after)
        return result

    return forward


def _standing_in(recorder: Recorder, key: str, functions: Any) -> Callable[..., Any]:
    number, stand_in = recorder.number, functions["stand_in"]

    def forward(_self: Any, *args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        structure = _flatten_call(args, kwargs, leaves)
        made = stand_in(number, key, structure, *leaves)
        template = recorder.template
        return made[0] if template == _ONE else _rebuild(template, made, leaves)

    return forward


def number_sources(runs: list[Run]) -> dict[str, tuple[Run, str, str]]:
    """Dynamo's name of each integer of a first block that differs in the others -> (run, path in the block, name)."""
    found: dict[str, tuple[Run, str, str]] = {}
    for run in runs:
        for path, name in run.numbers:
            parts = [part for part in f"{run.name(run.keys[0])}.{path}".split(".") if part]
            found[f"L['{MODULE}']" + "".join(f"._modules['{part}']" for part in parts) + f".{name}"] = (run, path, name)
    return found


@contextmanager
def symbolic(names: list[str]) -> Iterator[None]:
    """The integers of these names are symbols without a value while Dynamo traces, so that no branch can hang on one.

    Operators whose schema wants an int are run on fake tensors with the real one; the graph keeps the symbol.
    """
    if not names:
        yield
        return
    if not hasattr(torch.compiler.config, "unbacked_sources") or not hasattr(torch._dynamo.utils, "run_node"):
        raise NotAlike("this torch cannot trace a number of a block as a symbol")
    if any("," in name or ":" in name or " " in name for name in names):
        raise NotAlike("the name of a block cannot be given to Dynamo")
    utils = torch._dynamo.utils
    original = utils.run_node
    wanted = set(names)

    def run_node(tracer: Any, node: fx.Node, args: Any, kwargs: Any, nnmodule: Any) -> Any:
        if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            args = tuple(_concrete(value, given, wanted) for value, given in zip(args, node.args, strict=True))
            kwargs = {key: _concrete(value, node.kwargs[key], wanted) for key, value in kwargs.items()}
        return original(tracer, node, args, kwargs, nnmodule)

    utils.run_node = run_node
    try:
        with torch.compiler.config.patch(unbacked_sources=",".join(f"{re.escape(name)}$" for name in names)):
            yield
    finally:
        utils.run_node = original


def _concrete(value: Any, given: Any, wanted: set[str]) -> Any:
    """0 in place of a wanted symbol: what an operator makes of other numbers is looked at when it is stamped."""
    return 0 if isinstance(given, fx.Node) and source_name(given) in wanted else value


def source_name(node: fx.Node) -> str:
    """Dynamo's name for where a placeholder's value comes from; '' for other nodes."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)
