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
from typing import Any, NoReturn

import torch
from torch import fx, nn
from torch._dynamo.decorators import mark_unbacked

from ..calls import Call
from ..dims import Dim, DimSpec
from ..errors import trace as errors
from ..locks import ForkLock
from .evidence import GuardRecord, record, returned_values, side_effects
from .sources import MODULE

ARGUMENT = "__sizewise_argument_"
_MARKER_BASE = 2**40
_counter = itertools.count()

TRACING = ForkLock()
"""Held while a trace or a compile changes torch's process-wide configuration."""

_DATA_DEPENDENT = ("data-dependent expression", "Could not guard on data-dependent", "data dependent")

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
    side_effects: list[str]
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
    effects: list[str] = []

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

    with _quiet_dynamo():
        options = {"guard_filter_fn": drop_guards}
        function = _entry(call, method)
        compiled = torch.compile(function, backend=backend, fullgraph=True, options=options)
        result = None
        try:
            result = compiled(module, *(argument.value for argument in call.passed))
        except _Stop:
            pass
        except Exception as problem:
            _explain(problem, owner, call)
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
            raise errors.TracingDisabled(what=f"{variable}={os.environ[variable]}")
    if torch._dynamo.config.disable:
        raise errors.TracingDisabled(what="torch._dynamo.config.disable")


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy: marks and writes stay off the user's tensor."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def argument_path(root: str, call: Call) -> str | None:
    """The user's path of a local of the traced function, or None for another local."""
    index = root.removeprefix(ARGUMENT)
    if index == root or not index.isdigit():
        return None
    return call.passed[int(index)].path


def is_int_marker(value: Any) -> bool:
    return isinstance(value, _IntMarker)


def holds_marker(value: Any) -> bool:
    """Whether a text was made from the marker of a size."""
    numbers = re.findall(r"\d{13,}", value) if isinstance(value, str) else ()
    return any(_MARKER_BASE <= int(number) < _MARKER_BASE + 2**20 for number in numbers)


def source_of(node: fx.Node) -> Any:
    """The Dynamo source of a placeholder."""
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


def _explain(problem: Exception, owner: str, call: Call) -> NoReturn:
    """Dynamo's exception as a Sizewise error that shows the user's own line."""
    text = str(problem)
    where = user_location(problem)
    if "cannot be converted to Scalar" in text:
        # The code around the graph took a number out of a stand-in.
        reason, hint = (
            "it returns a number taken from a tensor, or computed from a size as a float",
            ("return the tensor, or the size itself, and compute the number outside."),
        )
        raise errors.NotTraceable(owner=owner, reason=reason, where=where, hint=hint) from problem
    reason = _in_words(_first_line(text), call)
    if any(sign in text for sign in _DATA_DEPENDENT) or "GuardOnDataDependentSymNode" in text:
        raise SizeGuard(reason=reason, where=where, owner=owner) from problem
    if type(problem).__name__ == "ConstraintViolationError" or "ConstraintViolation" in text:
        raise SizeGuard(reason=reason, where=where, owner=owner) from problem
    hint = _hints(text) or ("rewrite that line, or compile the parts of the module around it.")
    raise errors.NotTraceable(owner=owner, reason=reason, where=where, hint=hint) from problem


class SizeGuard(Exception):
    """The trace needed to know a size. Internal: the policy decides what to do about it."""

    def __init__(self, reason: str, where: str, owner: str) -> None:
        super().__init__(reason)
        self.reason, self.where, self.owner = reason, where, owner


def user_location(problem: BaseException) -> str:
    """``\\n  at file:line in function: code`` of the innermost user frame Dynamo recorded, or ''."""
    stack = getattr(problem, "real_stack", None) or ()
    frames = [frame for frame in stack if not frame.filename.startswith("<sizewise")]
    if not frames:
        return ""
    # The user's line says more than the one in torch that it led to.
    frame = ([frame for frame in frames if "/torch/" not in frame.filename] or frames)[-1]
    code = f": {frame.line}" if frame.line else ""
    return f"\n  at {frame.filename}:{frame.lineno} in {frame.name}{code}"


def _first_line(text: str) -> str:
    """The part of a torch message that says what happened, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failed = re.search(r"got (\w+)\((['\"])(.+?)\2\)", text)
    if failed and "fake tensor" in text:
        return f"{failed.group(1)}: {failed.group(3)}"
    telling = [line for line in lines if line.startswith("- Not all values") or "Could not guard" in line]
    return (telling or lines or ["no message"])[0].removeprefix("- ")


_WAYS_OUT = {
    "builtin `print`": "remove the print from the forward.",
    "no fake impl registered": "register one with the operator's register_fake: the result's shape, uncomputed.",
    "when making fake tensor call": "run the module in eager mode on these inputs: it probably fails there as well.",
    "Data-dependent branching": "use torch.where instead of the branch, or pass the condition in as a Python value.",
    "Data dependent operator": "use a mask instead of a size or value taken from the data.",
    "item() call": "keep the value a tensor, or pass it in as a Python number.",
}
"""What to do by a part of torch's message; torch's own hints speak of torch.compile."""


def _in_words(reason: str, call: Call) -> str:
    """Dynamo's names for the traced function's locals replaced by the user's."""
    reason = reason.replace(f"L['{MODULE}']", "self")
    reason = re.sub(rf"L\['{ARGUMENT}(\d+)'\]", lambda found: call.passed[int(found.group(1))].path, reason)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", reason)


def _hints(text: str) -> str:
    """What to do: ours where the message is known, else torch's own hints, as one line."""
    for sign, way_out in _WAYS_OUT.items():
        if sign in text:
            return way_out
    found = re.findall(r"^\s*Hint: (.+)$", text, re.MULTILINE)
    return " ".join(dict.fromkeys(found))
