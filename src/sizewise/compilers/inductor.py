"""Inductor: one piece in, the generated code's own entry point out.

Private API: ``torch._inductor.compile_fx.compile_fx(inner_compile=)``, ``compile_fx_inner``, the result's
``current_callable`` and ``source_code``, ``TracingContext.fw_metadata``, ``convert_frame.compile_lock``. Checked
on torch 2.13.0. Where a field is missing, or the piece needs what AOTAutograd does around a call (aliases replayed,
inputs written through views), the wrapped callable is used instead.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import fx

from ..config.checks import check_inductor_options
from ..trace.dynamo import TRACING
from .aliases import returns_views
from .background import Background, finish
from .base import Artifact

DEFAULTS: dict[str, Any] = {
    # A channels-last plan for symbolic sizes was seen to assert at run time (ViT, torch 2.13).
    "layout_optimization": False,
    # Sizes are checked at entry and layouts between pieces before serving (verify/layouts.py). In torch 2.14 the
    # code of these assertions is also what reads sizes from inputs; without it generated code names unknown symbols.
    "size_asserts": torch.torch_version.TorchVersion(torch.__version__) >= (2, 14),
    "scalar_asserts": False,
    "alignment_asserts": False,
    # One forked worker pool per process costs more than the few pieces that are compiled.
    "compile_threads": 1,
}


class InductorCompiler:
    name = "inductor"

    def __init__(self, background: Background | None = None, machine: Callable[[], dict[str, Any]] = dict) -> None:
        """With ``background``, artifacts are not ready before their ``finish`` was called.

        ``machine`` gives the settings that `machine.find_out` found.
        """
        self._background, self._machine = background, machine

    def compile(
        self, graph: fx.GraphModule, example_inputs: Sequence[Any], fake_mode: Any, options: Mapping[str, Any]
    ) -> Artifact:
        from torch._inductor import config as inductor_config
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        check_inductor_options(options)
        started = time.perf_counter()
        inner: list[Any] = []

        def keep(inner_graph: fx.GraphModule, inner_inputs: Sequence[Any], **kwargs: Any) -> Any:
            result = compile_fx_inner(inner_graph, inner_inputs, **kwargs)
            inner.append((len(inner_inputs), result))
            return result

        # Who sets compile_threads gets Inductor's own pools.
        background = self._background if "compile_threads" not in options else None
        settings = {**_known(inductor_config), **self._machine(), **options}
        with (
            inductors_state(settings),
            tracing(fake_mode) as context,
            # A hit in AOTAutograd's cache would bypass `keep`.
            torch._functorch.config.patch(enable_autograd_cache=False),
            _collecting(background, settings) as scopes,
        ):
            wrapped = compile_fx(copy.deepcopy(graph), list(example_inputs), inner_compile=keep)
        seconds = time.perf_counter() - started
        source = str(getattr(inner[-1][1], "source_code", "") or "") if inner else ""
        why = _why_wrapped(context, inner, len(example_inputs), _count_outputs(graph))
        code = getattr(inner[0][1], "current_callable", None) if len(inner) == 1 else None
        run = _from_list(wrapped) if why or code is None else code
        return Artifact(run, self.name, not why, source, seconds, why, partial(finish, scopes), code, settings)


@contextmanager
def inductors_state(settings: Mapping[str, Any]) -> Iterator[None]:
    """What is held and set while Inductor works: nobody else traces or compiles, gradients are off."""
    from torch._inductor import config as inductor_config

    with (
        TRACING,
        # What torch.compile holds while it compiles: Inductor is not for two threads at a time.
        _torchs_lock(),
        inductor_config.patch(dict(settings)),
        # In this order: leaving inference mode turns gradients on.
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


@contextmanager
def tracing(fake_mode: Any) -> Iterator[Any]:
    """A tracing context around ``fake_mode``."""
    context = torch._guards.TracingContext(fake_mode)
    with torch._guards.tracing(context):
        yield context


def _collecting(
    background: Background | None, settings: Mapping[str, Any]
) -> AbstractContextManager[list[dict[str, Any]]]:
    return background.collecting(settings) if background is not None else nullcontext([])


def _torchs_lock() -> Any:
    return getattr(torch._dynamo.convert_frame, "compile_lock", nullcontext())


def _known(inductor_config: Any) -> dict[str, Any]:
    """The defaults this version of torch has."""
    return {name: value for name, value in DEFAULTS.items() if hasattr(inductor_config, name)}


def _count_outputs(graph: fx.GraphModule) -> int:
    output = next(reversed(graph.graph.nodes))
    return len(output.args[0]) if isinstance(output.args[0], (tuple, list)) else 1


def _why_wrapped(context: Any, inner: list[Any], inputs: int, outputs: int) -> str:
    """Why the generated code cannot be called directly, or ''."""
    if len(inner) != 1 or not callable(getattr(inner[0][1], "current_callable", None)):
        return "the compiler gave no single callable"
    if inner[0][0] != inputs:
        return "inputs were merged"
    meta = getattr(context, "fw_metadata", None)
    if meta is None:
        return "no metadata on aliases"
    source = str(getattr(inner[0][1], "source_code", "") or "")
    if getattr(meta, "num_outputs_aliased", 1) and not returns_views(meta, source):
        return "outputs that are views of inputs"
    unsafe = {
        "num_intermediate_bases": "outputs that share memory",
        "num_outputs_rng_offset": "random numbers",
    }
    for name, reason in unsafe.items():
        if getattr(meta, name, 1):
            return reason
    if getattr(meta, "mutated_inp_runtime_indices", [0]):
        return "inputs whose shape or storage is changed"
    if getattr(meta, "tokens", None):
        return "effect tokens"
    if len(getattr(meta, "output_info", ())) != outputs:
        return "outputs were added"
    return ""


def _from_list(wrapped: Callable[..., Any]) -> Callable[[list[Any]], Sequence[Any]]:
    def run(inputs: list[Any]) -> Sequence[Any]:
        result: Sequence[Any] = wrapped(*inputs)
        return result

    return run
