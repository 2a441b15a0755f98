"""One call of Dynamo: a module and example arguments in, one fx graph and what it assumed out.

Private API: the keyword arguments of ``torch._dynamo.decorators.mark_unbacked``,
``torch._guards.TracingContext``, ``Node._dynamo_source`` and ``meta["example_value"]``, and the config
names patched below. Checked on torch 2.13.0. Without ``min``/``max`` in ``mark_unbacked`` (torch 2.11)
the bounds are left to the entry check, which holds them in any case.

Dynamo keeps compiled frames on the code object it compiled. The traced function is therefore made
afresh for every trace, so that nothing stays on the user's ``forward`` and no earlier trace is found.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.decorators import mark_unbacked

from ..calls import Call
from ..dims import Dim, DimSpec
from ..errors import trace as errors
from ..locks import ForkLock
from ..traced.guards import GuardRecord
from ..traced.paths import ARGUMENT, MODULE, SourcePath
from .evidence import Effect, record, returned_values, side_effects
from .positive import positive_sizes
from .problems import explain
from .sources import path_of

_MARKER_BASE = 2**40
_counter = itertools.count()

TRACING = ForkLock()
"""Held while a trace or a compile changes torch's process-wide configuration."""

UNBACKED = "unbacked"
BACKED = "backed"


class _IntMarker(int):
    """A marker that the code around the graph can hold as a size.

    Its value is far from any real size, so that arithmetic on it would show.
    """

    @property
    def index(self) -> int:
        return int(self) - _MARKER_BASE


@dataclass
class RawTrace:
    """What one trace gave, before anything is interpreted."""

    graph: fx.GraphModule
    result: Any
    """The forward's return value with a marker in place of each graph output."""
    markers: list[Any]
    """Per graph output: a stand-in tensor (known by identity) or an int marker for a size."""
    guards: list[GuardRecord]
    side_effects: list[Effect]
    fake_mode: Any
    context: Any
    call: Call
    """The example call, on copies of the user's tensors."""
    scope: dict[str, Any]
    """The globals that Dynamo's ``G[...]`` names are in."""


class _Stop(BaseException):
    """Ends the traced call before Dynamo's code replays a side effect on the user's objects."""


def capture(
    module: nn.Module,
    call: Call,
    spec: DimSpec,
    policy: Mapping[str, str],
    owner: str,
    method: str = "__call__",
) -> RawTrace:
    """Trace ``module.method`` once for ``call``; sizes named in ``spec`` stay symbolic.

    ``policy`` says per dim name whether its symbol is ``unbacked`` or ``backed``.

    Raises:
        NotTraceable (SW207), EmptyGraph (SW219), TracingDisabled (SW221).
        SizeGuard (internal): a size had to be known; another policy may do.
    """
    _refuse_if_disabled()
    call = call.with_values({leaf.path: _own_copy(leaf.value) for leaf in call.tensors()})
    _mark(call, spec, policy)
    seen: dict[str, Any] = {}
    guards: list[GuardRecord] = []
    effects: list[Effect] = []

    def backend(graph: fx.GraphModule, _inputs: list[Any], **_: Any) -> Any:
        context = torch._guards.TracingContext.get()
        markers = [_stand_in(index, node) for index, node in enumerate(_outputs(graph))]
        effects.extend(side_effects())
        guards.extend(returned_values())
        seen.update(graph=graph, context=context, fake_mode=context.fake_mode, markers=markers)

        def stand_in(*_args: Any) -> Any:
            if effects:
                raise _Stop
            return markers

        return stand_in

    def drop_guards(entries: Any) -> list[bool]:
        guards.extend(record(entry) for entry in entries)
        return [False] * len(entries)

    with _quiet_dynamo(), positive_sizes():
        options = {"guard_filter_fn": drop_guards}
        function = _entry(call, method)
        compiled = torch.compile(function, backend=backend, fullgraph=True, options=options)
        result = None
        try:
            result = compiled(module, *(argument.value for argument in call.passed))
        except _Stop:
            pass
        except Exception as problem:
            explain(problem, owner, call)
    if "graph" not in seen:
        raise errors.EmptyGraph(owner=owner)
    return RawTrace(
        graph=seen["graph"],
        result=result,
        markers=seen["markers"],
        guards=guards,
        side_effects=effects,
        fake_mode=seen["fake_mode"],
        context=seen["context"],
        call=call,
        scope=dict(function.__globals__),
    )


def release(graph: fx.GraphModule, context: Any) -> None:
    """Forget which real tensors a trace saw: its weak references would forbid `torch.utils.swap_tensors`.

    Private API: ``TracingContext.tensor_to_context`` and ``lookup_tensor`` of
    ``FakeTensorMode.fake_tensor_converter.meta_converter.describer``. Checked on torch 2.13.0; what is missing is
    passed over.
    """
    # Dynamo's own fake mode is in its example values; the context's is the one it made for the backend.
    values = [node.meta.get("example_value") for node in graph.graph.nodes]
    modes = {id(mode): mode for mode in [context.fake_mode, *(getattr(value, "fake_mode", None) for value in values)]}
    memos = [getattr(context, "tensor_to_context", None)]
    for mode in modes.values():
        converter = getattr(getattr(mode, "fake_tensor_converter", None), "meta_converter", None)
        memos.append(getattr(getattr(converter, "describer", None), "lookup_tensor", None))
    for memo in memos:
        if memo is not None and hasattr(memo, "clear"):
            memo.clear()


def _refuse_if_disabled() -> None:
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable, "0") not in ("", "0"):
            # torch reads the second one when it is imported.
            todo = f"unset {variable} and start the process again"
            raise errors.TracingDisabled(what=f"{variable}={os.environ[variable]}", todo=todo)
    if torch._dynamo.config.disable:
        todo = "set torch._dynamo.config.disable = False"
        raise errors.TracingDisabled(what="torch._dynamo.config.disable is true", todo=todo)


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy: marks and writes stay off the user's tensor."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def is_int_marker(value: Any) -> bool:
    return isinstance(value, _IntMarker)


def holds_marker(value: Any) -> bool:
    """Whether a text was made from the marker of a size."""
    numbers = re.findall(r"\d{13,}", value) if isinstance(value, str) else ()
    return any(_MARKER_BASE <= int(number) < _MARKER_BASE + 2**20 for number in numbers)


PATH = "sizewise_path"
"""The key, in a placeholder's ``meta``, of the path of one that Dynamo did not make."""


def path_of_input(node: fx.Node) -> SourcePath | None:
    """Where the value of a placeholder comes from; None where Dynamo's source is of a class not known here."""
    known: SourcePath | None = node.meta.get(PATH)
    return known or path_of(_source_of(node))


def source_in_words(node: fx.Node) -> str:
    path = path_of_input(node)
    return str(path) if path is not None else type(_source_of(node)).__name__


def _source_of(node: fx.Node) -> Any:
    return getattr(node, "_dynamo_source", None) or node.meta["grapharg"].source


def _outputs(graph: fx.GraphModule) -> tuple[fx.Node, ...]:
    node = next(reversed(graph.graph.nodes))
    return tuple(node.args[0])


def _stand_in(index: int, node: Any) -> Any:
    value = node.meta["example_value"] if isinstance(node, fx.Node) else node
    if isinstance(value, torch.Tensor):
        return torch.empty(0)
    if isinstance(value, torch.SymInt):
        return _IntMarker(_MARKER_BASE + index)
    return value


def _entry(call: Call, method: str) -> Any:
    """A new function of a module and the call's arguments that calls the module.

    Its file name is unique, so that what Dynamo remembers by code location is never shared.
    """
    names = [f"{ARGUMENT}{index}" for index in range(len(call.passed))]
    passed = [
        name if argument.keyword is None else f"{argument.keyword}={name}"
        for name, argument in zip(names, call.passed, strict=True)
    ]
    header = ", ".join([MODULE, *names])
    target = MODULE if method == "__call__" else f"{MODULE}.{method}"
    source = f"def traced({header}):\n    return {target}({', '.join(passed)})\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<sizewise trace {next(_counter)}>", "exec"), namespace)
    return namespace["traced"]


def _mark(call: Call, spec: DimSpec, policy: Mapping[str, str]) -> None:
    """Mark the call's tensors; they are copies of the user's (see `capture`)."""
    tensors = {leaf.path: leaf.value for leaf in call.tensors()}
    for path, axes in spec.items():
        for axis, dim in axes.items():
            if path not in tensors:
                continue
            if policy.get(dim.name) == UNBACKED:
                hint = max(2, min(dim.max, 16))
                mark_unbacked(tensors[path], axis, shape_id=dim.name, hint_override=hint, **_bounds(dim))
            elif policy.get(dim.name) == BACKED:
                torch._dynamo.mark_dynamic(tensors[path], axis, min=max(2, dim.min), max=dim.max)


def _bounds(dim: Dim) -> dict[str, int]:
    known = inspect.signature(mark_unbacked).parameters
    return {"min": dim.min, "max": dim.max} if "min" in known else {}


@contextmanager
def _quiet_dynamo() -> Iterator[None]:
    """Dynamo set up for one trace."""
    settings = {
        "automatic_dynamic_shapes": False,
        "assume_static_by_default": True,
        "specialize_int": True,
        "specialize_float": True,
        "error_on_recompile": False,
        "allow_rnn": True,
        "suppress_errors": False,
        "verbose": False,
        "do_not_emit_runtime_asserts": True,
    }
    known = {name: value for name, value in settings.items() if hasattr(torch._dynamo.config, name)}
    with (
        # torch's configuration is the process's, so one thread traces at a time.
        TRACING,
        torch._dynamo.config.patch(**known),
        # One symbol per declared axis, also where two examples happen to have equal sizes.
        torch.fx.experimental._config.patch(use_duck_shape=False),
        # In this order: leaving inference mode turns gradients on.
        torch.inference_mode(False),
        torch.no_grad(),
        _no_log_of_errors(),
    ):
        yield


@contextmanager
def _no_log_of_errors() -> Iterator[None]:
    """Torch's handlers pass no warnings and errors on: what they would print is part of the error raised.

    Lines below a warning, which somebody asked for with TORCH_LOGS, are left alone.
    """

    def is_asked_for(record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING

    handlers = list(logging.getLogger("torch").handlers)
    for handler in handlers:
        handler.addFilter(is_asked_for)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_asked_for)
