"""CUDA graphs, by torch's documented calls.

All captures of a session use one stream of their own and one memory pool, so their intermediates share memory; give
the largest first, or each larger one makes the pool grow. Results stay where they are until the session is released:
a later capture does not reuse their memory. Inputs are the job's own tensors.

Captures are given up together. Graphs of one stream share cuBLAS's workspace and the pool, and torch has no call that
takes one of them out. A failed capture leaves its pool in an unknown state: the next one begins a new pool.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from .. import monitor
from ..errors import SizewiseError
from .backend import CannotCapture, Job
from .illegal import illegal_operator, unless_broken
from .sessions import SharedSession
from .window import Window, capture_window

RESERVED = "reserved_bytes.all.current"


class CUDABackend:
    """CUDA graphs of the current device, or of the one that a session's first job is on.

    Args:
        cudagraph_num_of_warmups: runs of each call on the capture's stream before it is captured. The first run of a
            kernel may load it, choose among its variants or allocate a workspace, none of which is legal in a capture.
        cuda: stands in for ``torch.cuda`` in tests, and ``kind`` for the type of its devices.
    """

    name = "cuda"

    def __init__(self, *, cudagraph_num_of_warmups: int = 1, cuda: Any = None, kind: str = "cuda") -> None:
        self.cudagraph_num_of_warmups = cudagraph_num_of_warmups
        self._cuda, self._kind = cuda, kind

    @property
    def cuda(self) -> Any:
        return torch.cuda if self._cuda is None else self._cuda

    @contextmanager
    def session(self) -> Iterator[CUDASession]:
        """Python's garbage collector rests meanwhile: what it frees may be memory that a capture is writing down.

        Raises:
            CapturingDisabled (SW601): the gate is closed.
            CannotCapture: there is no CUDA device.
        """
        monitor.validate_cudagraph_capturing_enabled()
        if not self.cuda.is_available():
            raise CannotCapture("there is no CUDA device")
        session = CUDASession(self.cuda, self.cudagraph_num_of_warmups, self._kind)
        try:
            with collector_at_rest():
                yield session
        except BaseException:
            session.release()
            raise


class CUDASession(SharedSession["CUDACapture"]):
    """``bytes``: what the pool grew by; ``device_bytes``: what the device has less, the graphs themselves included."""

    def __init__(self, cuda: Any, warmups: int, kind: str) -> None:
        super().__init__()
        self._cuda, self._warmups, self._kind = cuda, warmups, kind
        self._device: torch.device | None = None
        self._stream: Any = None
        self._pool: Any = None
        self._done: Any = None
        self.bytes = self.device_bytes = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Callers on other streams wait on the device, those in other threads here."""
        with super().turn():
            stream = self._cuda.current_stream(self._device)
            if self._done is not None:
                stream.wait_event(self._done)
            try:
                yield
            finally:
                if self._done is not None:
                    self._done.record(stream)

    def capture(self, job: Job) -> CUDACapture:
        """Raises CannotCapture, and whatever the call raises before it is captured."""
        monitor.validate_cudagraph_capturing_enabled()
        device = _device_of(job, self._kind)
        with self._lock, capture_window() as window, torch.no_grad(), self._cuda.device(device):
            self._begin(device)
            self._warm_up(job)
            unless_broken(window)
            made = self._record(job, window)
        self.captures.append(made)
        return made

    def _begin(self, device: torch.device) -> None:
        if self._device is None:
            self._device, self._stream, self._done = device, self._cuda.Stream(), self._cuda.Event()
        if device != self._device:
            raise CannotCapture(f"it is on {device}, and the captures before it on {self._device}")
        if self._pool is None:
            self._pool = self._cuda.graph_pool_handle()

    def _warm_up(self, job: Job) -> None:
        before = self._cuda.current_stream()
        self._stream.wait_stream(before)
        try:
            with self._cuda.stream(self._stream):
                for _ in range(self._warmups):
                    job.run(job.inputs)
        except torch.OutOfMemoryError as problem:
            raise CannotCapture(f"out of memory before the capture: {_first_line(problem)}") from problem
        before.wait_stream(self._stream)
        self._cuda.synchronize()

    def _record(self, job: Job, window: Window) -> CUDACapture:
        # Cached memory would be counted as free before and given to the device by the capture itself.
        self._cuda.empty_cache()
        before, stream = self._memory(), self._cuda.current_stream()
        graph = self._cuda.CUDAGraph()
        # The end of a broken capture raises too, in the place of what broke it.
        raised: list[BaseException] = []
        try:
            with self._cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                try:
                    result = job.run(job.inputs)
                except BaseException as problem:
                    raised.append(problem)
                    raise
            unless_broken(window)
        except BaseException as problem:
            self._undo(graph, stream)
            first = raised[0] if raised else problem
            if isinstance(first, CannotCapture | SizewiseError) or not isinstance(first, Exception):
                raise first from None
            raise CannotCapture(_cause(first, job, window)) from problem
        after = self._memory()
        grown, less = max(0, after[0] - before[0]), max(0, before[1] - after[1])
        self.bytes += grown
        self.device_bytes += less
        return CUDACapture(self, graph, job, result, grown)

    def _undo(self, graph: Any, stream: Any) -> None:
        # Where the end of a capture raises, torch.cuda.graph leaves its own stream as the current one.
        self._cuda.set_stream(stream)
        self._pool = None
        with suppress(RuntimeError):
            graph.reset()
        with suppress(RuntimeError):
            self._cuda.synchronize()
            self._cuda.empty_cache()

    def _memory(self) -> tuple[int, int]:
        """(bytes torch holds on the device, bytes free on the device)."""
        return self._cuda.memory_stats().get(RESERVED, 0), self._cuda.mem_get_info()[0]

    def _free(self) -> None:
        if self._device is None:
            return
        with self._cuda.device(self._device):
            with suppress(RuntimeError):
                self._cuda.synchronize()
            for capture in self.captures:
                capture.drop()
            self._pool = None
            self.bytes = self.device_bytes = 0
            with suppress(RuntimeError):
                self._cuda.empty_cache()


class CUDACapture:
    """One graph. ``bytes``: what it made the shared pool grow by."""

    live: tuple[str, ...] = ()

    def __init__(self, session: CUDASession, graph: Any, job: Job, result: Any, grown: int) -> None:
        self._session = session
        self._graph: Any = graph
        # Addresses are in the graph: what they belong to lives as long as it does.
        self._job: Job | None = job
        self._aliases: tuple[torch.Tensor, ...] = tuple(tensor.detach() for tensor in job.weights)
        self.inputs = job.inputs
        self.result = result
        self.bytes = grown
        self.released = False

    def replay(self) -> None:
        """On the current stream. Raises CannotCapture: it is released."""
        if self.released:
            raise CannotCapture("the capture is released")
        self._session.clock.tick()
        self._graph.replay()

    def release(self) -> None:
        self._session.let_go(self)

    def drop(self) -> None:
        """Destroy the graph. Twice is once."""
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.reset()
        self.inputs, self.result, self._job, self._aliases = (), None, None, ()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No automatic garbage collection in the block.

    Nothing is frozen: only `gc.unfreeze` would end that, which also brings back what the program itself has frozen, and
    Python 3.12 does not tell whether there is any.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _device_of(job: Job, kind: str) -> torch.device:
    devices = {tensor.device for tensor in (*job.inputs, *job.weights)}
    if len(devices) != 1 or next(iter(devices)).type != kind:
        seen = ", ".join(sorted(map(str, devices))) or "none"
        raise CannotCapture(f"its tensors are on {seen}; a CUDA graph needs all of them on one GPU")
    return devices.pop()


def _cause(problem: Exception, job: Job, window: Window) -> str:
    if isinstance(problem, torch.OutOfMemoryError):
        return f"out of memory: {_first_line(problem)}"
    named = window.broken or illegal_operator(job)
    return f"{named} ({_first_line(problem)})" if named else _first_line(problem)


def _first_line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"
