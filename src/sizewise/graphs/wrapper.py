"""`CUDAGraphWrapper`: a runnable with a captured graph for each `BatchDescriptor` it was called with at warm-up."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .. import monitor
from ..config.modes import CUDAGraphMode
from ..counters import Counters
from ..errors import call as call_errors
from ..errors import capture as errors
from ..errors import state as state_errors
from ..locks import ForkLock
from .backend import CannotCapture, Capture, GraphBackend, Job, Session
from .context import BatchDescriptor, ForwardContext, current_context, runtime_mode
from .entry import Arguments, Call, Entry, Weights, differs, written
from .marks import Clock, hand_out
from .values import map_tensors
from .window import inside_capture


class CUDAGraphWrapper:
    """Calls a runnable, or replays a graph of it. Attributes are the runnable's, where they are not the wrapper's own.

    A call within `forward_context` of the wrapper's own mode captures the graph of the context's descriptor if there is
    none yet, which is legal only while the gate (`monitor`) is open, and replays it. Every other call runs the
    runnable: without a context, in another mode, within somebody's capture and within torch.compile. FULL graphs
    belong to exactly their descriptor; PIECEWISE ones serve uniform batches and others alike.

    Args:
        runnable: a module, a bound method of one, or a function. What it reads and is no argument must stay where it
            is. Of a module the addresses of all tensors are compared at each call: where one has moved, the runnable
            runs instead of the graph, and ``counters.stale`` counts.
        mode: PIECEWISE or FULL.
        backend: what captures.
        copy_inputs: copy arguments into memory of the graph's own. Without it, a replay needs the very tensors of the
            capture, and writes to them stay.
        outputs: "copy" gives results to keep. "static" gives the graph's own memory, which the next replay overwrites:
            `is_current` tells.
        state: tensors that the runnable writes. They keep their values over the runs that a capture makes.
        weights: the tensors whose addresses are compared, for a runnable that is no module.

    ``counters``: ``captures``; ``calls_capture``, replays; ``calls_program``, calls of the runnable; ``stale``.

    Raises:
        CapturingDisabled (SW601): a graph is missing and the gate is closed.
        CaptureFailed (SW630): the runnable cannot be captured; nothing of the attempt is kept.
        InputAddressesDiffer (SW631), ReplayArgumentsDiffer (SW632): a call that the graph cannot answer.
        RequiresGrad (SW407): an argument requires grad while gradients are on.
        MissingInRunnable (SW602): neither has an attribute of that name.
    """

    def __init__(
        self,
        runnable: Callable[..., Any],
        *,
        mode: CUDAGraphMode | str,
        backend: GraphBackend,
        copy_inputs: bool = True,
        outputs: str = "copy",
        state: Sequence[torch.Tensor] = (),
        weights: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Raises InvalidRuntimeMode (SW634), BadOption (SW510)."""
        self.runnable = runnable
        self.mode = runtime_mode(mode)
        if self.mode is CUDAGraphMode.NONE:
            problem = "a wrapper without graphs is the runnable itself"
            raise errors.InvalidRuntimeMode(mode=self.mode.name, problem=problem)
        if outputs not in ("copy", "static"):
            todo = 'write outputs="copy" or outputs="static"'
            raise state_errors.BadOption(option="outputs", seen=outputs, legal='"copy" or "static"', todo=todo)
        self.counters = Counters()
        self.entries: Mapping[BatchDescriptor, Entry] = {}
        self._backend, self._copies, self._static = backend, copy_inputs, outputs == "static"
        self._state, self._weights = tuple(state), weights
        # For sessions of backends that have none of these.
        self._clock, self._lock = Clock(), ForkLock()

    def __getattr__(self, key: str) -> Any:
        # Special names are the object's own business: a copy of the wrapper is not a copy of the runnable.
        runnable = self.__dict__.get("runnable")
        if runnable is not None and not (key.startswith("__") and key.endswith("__")):
            try:
                return getattr(runnable, key)
            except AttributeError as problem:
                raise errors.MissingInRunnable(key=key, runnable=_name(runnable)) from problem
        raise errors.MissingInRunnable(key=key, runnable=_name(runnable))

    def __deepcopy__(self, memo: dict[int, Any]) -> CUDAGraphWrapper:
        """A copy has no graphs: they read and write the memory of this one."""
        made = CUDAGraphWrapper.__new__(CUDAGraphWrapper)
        memo[id(self)] = made
        own = ("runnable", "_state", "_weights")
        made.__dict__.update(self.__dict__, **{name: copy.deepcopy(self.__dict__[name], memo) for name in own})
        made.entries, made.counters, made._clock, made._lock = {}, Counters(), Clock(), ForkLock()
        return made

    def __reduce__(self) -> Any:
        raise state_errors.NotPicklable(owner=f"a cudagraph wrapper of {_name(self.runnable)}")

    def __repr__(self) -> str:
        return f"<CUDAGraphWrapper of {_name(self.runnable)}, {self.mode.name}, {len(self.entries)} graph(s)>"

    def unwrap(self) -> Callable[..., Any]:
        """The runnable."""
        return self.runnable

    def release(self) -> None:
        """Give all graphs up. The next call in a context captures again, if that is legal then."""
        with self._lock:
            entries, self.entries = self.entries, {}
            for entry in entries.values():
                entry.capture.release()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.runnable(*args, **kwargs)
        context = current_context()
        if context is None or context.mode is not self.mode or context.descriptor is None or inside_capture():
            return self._run(args, kwargs)
        descriptor = context.descriptor
        key = descriptor if self.mode is CUDAGraphMode.FULL else descriptor.relaxed()
        entry = self.entries.get(key)
        if entry is None or entry.released():
            entry = self._captured(key, context, args, kwargs)
        elif entry.weights.moved():
            self.counters.add("stale")
            return self._run(args, kwargs)
        return self._replay(entry, key, args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.counters.add("calls_program")
        return self.runnable(*args, **kwargs)

    # -- capture

    def _captured(
        self, key: BatchDescriptor, context: ForwardContext, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Entry:
        with self._lock:
            known = self.entries.get(key)  # another thread may have been first
            if known is None or known.released():
                monitor.validate_cudagraph_capturing_enabled()
                try:
                    known = self._capture(key, context.session, self._read(args, kwargs))
                except CannotCapture as problem:
                    cause = str(problem).removesuffix(".")
                    raise errors.CaptureFailed(runnable=_name(self.runnable), descriptor=key, cause=cause) from problem
                # A new dict, so that a call in another thread reads one that does not change.
                self.entries = {**self.entries, key: known}
                self.counters.add("captures")
            return known

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Raises CannotCapture, RequiresGrad (SW407)."""
        read = Arguments.read(args, kwargs)
        if torch.is_grad_enabled():
            for index, tensor in enumerate(read.tensors):
                if tensor.requires_grad:
                    raise call_errors.RequiresGrad(argument=read.where(index))
        return read

    def _capture(self, key: BatchDescriptor, session: Session | None, given: Arguments) -> Entry:
        """Raises CannotCapture; what was captured before it is released."""
        weights = Weights.of(self.runnable, self._weights)
        with torch.inference_mode(False), torch.no_grad():
            inputs = [tensor.clone() for tensor in given.tensors] if self._copies else given.tensors
            job = Job(
                Call(self.runnable, given.with_tensors(inputs)),
                tuple(inputs),
                weights=weights.tensors(),
                label=f"{_name(self.runnable)} {key}",
            )
            kept = [(tensor, tensor.clone()) for tensor in (*self._state, *(() if self._copies else inputs))]
            versions = [tensor._version for tensor in inputs] if self._copies else []
            try:
                with self._session(session) as opened:
                    capture = opened.capture(job)
            finally:
                with torch.inference_mode():  # where tensors of either kind may be written
                    for tensor, value in kept:
                        tensor.copy_(value)
            entry = Entry(
                capture, opened, given.outline, given.autocast, [*map(Entry.layout, given.tensors)], weights, inputs
            )
            try:
                self._check(entry, given, versions)
            except CannotCapture:
                capture.release()
                raise
        return entry

    def _session(self, session: Session | None) -> AbstractContextManager[Session]:
        return self._backend.session() if session is None else nullcontext(session)

    def _check(self, entry: Entry, given: Arguments, versions: list[int]) -> None:
        """Raises CannotCapture: replays would not do what the runnable does to its arguments."""
        if not self._copies:
            if [t.data_ptr() for t in entry.capture.inputs] != [t.data_ptr() for t in given.tensors]:
                raise CannotCapture("the backend keeps inputs in memory of its own, so copy_inputs has to be True")
            return
        index = written(entry.inputs, versions, given.tensors)
        if index is not None:
            raise CannotCapture(
                f"it writes to {given.where(index)}, of which the graph has a copy: pass copy_inputs=False"
            )
        entry.inputs = []  # from here on the capture's own count

    # -- replay

    def _replay(self, entry: Entry, key: BatchDescriptor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = self._arguments(entry, key, args, kwargs)
        with self._turn(entry.session), torch.no_grad():
            if self._copies:
                for mine, tensor in zip(entry.capture.inputs, given.tensors, strict=True):
                    mine.copy_(tensor)
            clock = getattr(entry.session, "clock", None)
            if clock is None:
                clock = self._clock
                clock.tick()
            entry.capture.replay()
            self.counters.add("calls_capture")
            return self._results(entry.capture, clock)

    def _arguments(self, entry: Entry, key: BatchDescriptor, args: Any, kwargs: Any) -> Arguments:
        """Raises SW631, SW632, SW407: the call differs from the one that was captured."""
        try:
            given = self._read(args, kwargs)
        except CannotCapture as problem:
            expected = "tensors and constants"
            raise errors.ReplayArgumentsDiffer(
                descriptor=key, argument="the arguments", expected=expected, seen=str(problem)
            ) from problem
        difference = differs(entry, given, strides=not self._copies)
        if difference is not None:
            argument, expected, seen = difference
            raise errors.ReplayArgumentsDiffer(descriptor=key, argument=argument, expected=expected, seen=seen)
        if not self._copies:
            for index, (mine, tensor) in enumerate(zip(entry.inputs, given.tensors, strict=True)):
                if mine.data_ptr() != tensor.data_ptr():
                    raise errors.InputAddressesDiffer(
                        expected=mine.data_ptr(), seen=tensor.data_ptr(), argument=given.where(index), descriptor=key
                    )
        return given

    def _turn(self, session: Any) -> AbstractContextManager[Any]:
        turn = getattr(session, "turn", None)
        return self._lock if turn is None else turn()

    def _results(self, capture: Capture, clock: Clock) -> Any:
        made: dict[int, torch.Tensor] = {}

        def own(tensor: torch.Tensor) -> torch.Tensor:
            # Two results that are one tensor stay one.
            known = made.get(id(tensor))
            if known is None:
                known = made[id(tensor)] = hand_out(tensor, clock) if self._static else tensor.clone()
            return known

        return map_tensors(capture.result, own)


def _name(runnable: Any) -> str:
    return str(getattr(runnable, "__qualname__", None) or type(runnable).__qualname__)
