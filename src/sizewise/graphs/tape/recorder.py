"""One run of a program at one exact size, with a recorder in the place of every kernel, operator and allocation.

What runs outside of the recorders is seen by a dispatch mode: views are part of what is bound; of a piece that does
anything else, the whole call is replayed as it is, with its results copied (a *live* step); anything else refuses.

Private API: ``torch._C._dynamo.guards._empty_strided_cpu``, ``TorchDispatchMode._should_skip_dynamo``, and the form of
generated code (kernels are built-in functions named ``kernel`` or ``kernel_N``; ``extern_kernels``). Checked on torch
2.13.0.
"""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..backend import CannotCapture, Job, tensors_of
from .rebind import OPERATOR, PIECE, operator_name, rebound, scope_of

KERNEL = re.compile(r"kernel(_\d+)?")
BEFORE, AFTER = -1, 1 << 60
"""The times of arguments, which are written before the first step, and of results, read after the last."""


@dataclass
class Step:
    """One call: ``run(*args, **kwargs)``. A live one's results are copied into ``results`` (None: not a tensor)."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[torch.Tensor | None] | None = None


@dataclass
class Buffer:
    """Memory of the tape's own, with the steps of its first and last use."""

    storage: torch.UntypedStorage
    first: int
    last: int


@dataclass
class Recording:
    """What one run did. Its tensors are still those of the run."""

    steps: list[Step] = field(default_factory=list)
    buffers: dict[int, Buffer] = field(default_factory=dict)
    arguments: list[torch.Tensor] = field(default_factory=list)
    result: Any = None
    known: dict[int, str] = field(default_factory=dict)
    """Storages that are not the tape's: of the module's tensors and of constants."""


def record(job: Job) -> Recording:
    """Run a job once and write down what it does.

    Its inputs are plain contiguous tensors; their memory becomes the tape's. The run writes what the program writes:
    the caller keeps and restores the module's state.

    Raises:
        CannotCapture.
    """
    recorder = _Recorder(job.weights, job.inputs)
    with torch.no_grad(), recorder:
        recorder.recording.result = job.run(job.inputs, _recorded(job, recorder))
    recorder.refuse_escapes()
    return recorder.recording


def _recorded(job: Job, recorder: _Recorder) -> Callable[..., Any]:
    """The job's call, a piece or a program's caller, with recorders in the place of what it calls."""
    scope = scope_of(job.call)
    if scope is None:
        raise CannotCapture("the program is no generated function")
    if job.packed:
        return recorder.piece("the piece", job.call)
    names: dict[str, Any] = {}
    for name, value in scope.items():
        if PIECE.fullmatch(name):
            names[name] = recorder.piece(name, value)
        elif OPERATOR.fullmatch(name):
            names[name] = recorder.around(operator_name(value), value)
        elif isinstance(value, torch.Tensor):
            recorder.know(value, name)
    return rebound(job.call, names)


class _Recorder(TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports Dynamo for the mode, which a process that only loads and serves has no use for."""
        return False

    def __init__(self, weights: Sequence[torch.Tensor], arguments: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.recording = Recording(arguments=list(arguments))
        self._within = 0
        self._escaped: list[str] = []
        for index, tensor in enumerate(weights):
            self.know(tensor, f"weight {index}")
        for tensor in arguments:
            self._own(tensor, BEFORE)

    # -- memory

    def know(self, tensor: torch.Tensor, name: str) -> None:
        self.recording.known[tensor.untyped_storage()._cdata] = name

    def _own(self, tensor: torch.Tensor, time: int) -> None:
        storage = tensor.untyped_storage()
        self.recording.buffers[storage._cdata] = Buffer(storage, time, time)

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        cdata = tensor.untyped_storage()._cdata
        return cdata in self.recording.buffers or cdata in self.recording.known

    def _use(self, tensor: torch.Tensor, name: str) -> None:
        cdata = tensor.untyped_storage()._cdata
        buffer = self.recording.buffers.get(cdata)
        if buffer is not None:
            buffer.last = len(self.recording.steps)
        elif cdata not in self.recording.known:
            raise CannotCapture(f"{name} is given memory that is neither the tape's nor the module's")

    def allocate(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def run(*args: Any) -> torch.Tensor:
            made = original(*args)
            self._own(made, len(self.recording.steps))
            return made

        return run

    # -- calls

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` as a step. Results that are no views of what is known are copied at each replay."""

        def run(*args: Any, **kwargs: Any) -> Any:
            for tensor in tensors_of((args, kwargs)):
                self._use(tensor, name)
            with self._step():
                result = function(*args, **kwargs)
            self._add(Step(name, function, args, kwargs), result)
            return result

        return run

    def _add(self, step: Step, result: Any) -> None:
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        # Before any of them is known: of several views of one new tensor each has to be copied.
        fresh = [value if isinstance(value, torch.Tensor) and not self._is_ours(value) else None for value in results]
        for value in results:
            if isinstance(value, torch.Tensor) and not self._is_ours(value):
                self._refuse_odd(step.name, value)
                self._own(value, len(self.recording.steps))
            elif not isinstance(value, torch.Tensor) and value is not None:
                raise CannotCapture(f"{step.name} gives a {type(value).__name__}, which may depend on data")
        written = getattr(getattr(step.run, "_schema", None), "is_mutable", True)
        if any(value is not None for value in fresh):
            step.results = fresh
        elif not written and all(isinstance(value, torch.Tensor) for value in results):
            return  # views: the same at each replay
        self.recording.steps.append(step)

    @staticmethod
    def _refuse_odd(name: str, value: torch.Tensor) -> None:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu":
            raise CannotCapture(f"{name} gives a tensor that is not a plain one on the CPU")
        if any(size > 1 and not stride for size, stride in zip(value.shape, value.stride(), strict=True)):
            raise CannotCapture(f"{name} gives a tensor that is expanded, which nothing can be copied into")

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        self._within += 1
        try:
            yield
        finally:
            self._within -= 1

    def piece(self, name: str, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """A piece: its kernels as steps, or the whole of it as a live one."""
        scope = scope_of(call)
        inner = rebound(call, self._names(scope)) if scope is not None else None

        def live(*inputs: Any) -> Any:
            return call(list(inputs))

        def run(inputs: list[Any]) -> Any:
            given, escaped = tuple(inputs), len(self._escaped)
            steps, buffers = len(self.recording.steps), dict(self.recording.buffers)
            with contextlib.suppress(CannotCapture):
                result = inner(list(given)) if inner is not None else None
                if inner is not None and len(self._escaped) == escaped:
                    return result
            del self.recording.steps[steps:]
            del self._escaped[escaped:]
            self.recording.buffers = buffers
            return self.around(name, live)(*given)

        return run

    def _names(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for name, value in scope.items():
            if isinstance(value, types.BuiltinFunctionType):
                if value is torch._C._dynamo.guards._empty_strided_cpu:
                    names[name] = self.allocate(value)
                elif KERNEL.fullmatch(value.__name__):
                    names[name] = self.around(name, value)
            elif name == "extern_kernels":
                names[name] = _Externs(value, self)
            elif isinstance(value, torch.Tensor):
                self.know(value, name)
        return names

    # -- what nobody recorded

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._within and not _is_view(func):
            self._escaped.append(str(func))
        return func(*args, **(kwargs or {}))

    def refuse_escapes(self) -> None:
        if self._escaped:
            raise CannotCapture(f"{self._escaped[0]} runs outside of what is recorded")


class _Externs:
    """``extern_kernels`` with each operator as a step."""

    def __init__(self, original: Any, recorder: _Recorder) -> None:
        self._original, self._recorder = original, recorder

    def __getattr__(self, name: str) -> Any:
        return self._recorder.around(name, getattr(self._original, name))


def _is_view(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    if schema is None or schema.is_mutable or not schema.returns:
        return False
    return all(value.alias_info is not None for value in schema.returns)
