"""C++ compilers at work while Python goes on: a piece's kernels are built in the background, and waited for at the end.

Inductor generates a piece's code and then waits for its C++ compiler, kernel after kernel. Here the generated module
keeps promises in place of kernels until `finish` is called, so that the C++ compilers of several kernels and pieces
run side by side, and beside the code generation of the pieces after them.

Kernels are compiled together, of several pieces where these are small (`kernels`).

Private API: ``AsyncCompile.cpp_pybinding`` and ``.wait``, ``CppPythonBindingsCodeCache.load_pybinding_async`` and
``LambdaFuture``. Checked on torch 2.13.0 and 2.14.1. Where one is missing, kernels are built one by one.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .. import native
from ..locks import ForkLock
from . import kernels as joined
from .machine import find_out, import_build_tools

MOST = 8
"""Most C++ compilers at a time: each takes some hundred megabytes."""

LOADING = ForkLock()
"""Held while kernels are loaded: a second thread would be given torch's half-loaded module of the same library."""


class Background:
    """Up to ``workers`` C++ compilers at a time; by default one per core that the process may use, up to `MOST`."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or min(MOST, _cores())
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="sizewise-compile")
        self._machine: Future[dict[str, Any]] | None = None
        self._native: Future[Any] | None = None
        self._waiting: list[_Promised] = []

    def start(self, options: Mapping[str, Any]) -> None:
        """Begin to find out what Inductor has to know about the machine, and to build the extension for calls."""
        import_build_tools()
        context = contextvars.copy_context()  # settings of torch are kept in it
        self._machine = self._pool.submit(context.run, find_out, dict(options))
        self._native = self._pool.submit(native.ensure)

    def machine(self) -> dict[str, Any]:
        """The settings that spare Inductor from finding it out, once they are known and the extension is there."""
        if self._native is not None:
            self._native.result()
        return self._machine.result() if self._machine is not None else {}

    @contextmanager
    def collecting(self, settings: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        """Within, this thread's Inductor leaves kernels to the background; the scopes that hold promises of them.

        ``settings`` are Inductor's while kernels are compiled, also later. The caller has to keep other threads from
        doing the same (`trace.dynamo.TRACING`).
        """
        scopes: list[dict[str, Any]] = []
        parts = _parts()
        if parts is None:
            yield scopes
            return
        async_compile, _, promise = parts
        original_binding, original_wait = async_compile.cpp_pybinding, async_compile.wait
        thread = threading.get_ident()

        def cpp_pybinding(self_: Any, argtypes: list[str], source_code: str) -> Any:
            if threading.get_ident() != thread:
                return original_binding(self_, argtypes, source_code)
            kernel = _Promised(joined.Kernel(tuple(argtypes), source_code), dict(settings), self._start_all)
            self._waiting.append(kernel)
            return promise(kernel.result)

        def wait(self_: Any, scope: dict[str, Any]) -> None:
            if threading.get_ident() == thread:
                scopes.append(scope)
                if len(self._waiting) >= joined.TOGETHER:
                    self._start_all()
            original_wait(self_, scope)

        async_compile.cpp_pybinding, async_compile.wait = cpp_pybinding, wait
        try:
            yield scopes
        finally:
            async_compile.cpp_pybinding, async_compile.wait = original_binding, original_wait

    def _start_all(self) -> None:
        """Start the compilers of every kernel that waits for one."""
        from torch._inductor import config

        parts = _parts()
        while self._waiting and parts is not None:
            settings = self._waiting[0].settings
            ours = [kernel for kernel in self._waiting if kernel.settings == settings]
            self._waiting = [kernel for kernel in self._waiting if kernel.settings != settings]
            with config.patch(settings):
                for numbers in joined.batches([one.kernel for one in ours], self._workers):
                    built = joined.build([ours[number].kernel for number in numbers], parts[1], self._submit)
                    for number, one in zip(numbers, built, strict=True):
                        ours[number].built = one

    def _submit(self, task: Callable[[], Any]) -> _Started:
        return _Started(self._pool.submit(task))

    def close(self) -> None:
        """Wait for the compilers that run; no others are started."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass
class _Started:
    """A C++ compiler at work.

    Torch keeps it with the kernel's source for as long as the process lives, and compiles after `result`, where there
    is no library yet. So a failure is told once, and one that another build cancelled is none.
    """

    task: Future[Any] | None

    def result(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            with suppress(CancelledError):
                task.result()


@dataclass
class _Promised:
    """A kernel of a generated module: it waits to be compiled, then is being compiled."""

    kernel: joined.Kernel
    settings: dict[str, Any]
    start: Callable[[], None]
    built: Callable[[], Any] | None = None

    def result(self) -> Any:
        from torch._inductor import config

        if self.built is None:
            self.start()
        # What could not be joined is compiled only now.
        with LOADING, config.patch(self.settings):
            return self.built() if self.built is not None else None


def finish(scopes: list[dict[str, Any]]) -> None:
    """Wait for the promised kernels of generated modules and put them in place.

    Raises:
        what the C++ compiler raises.
    """
    parts = _parts()
    while parts is not None and scopes:
        scope = scopes.pop()
        for name, value in list(scope.items()):
            if isinstance(value, parts[2]):
                scope[name] = value.result()


def _parts() -> tuple[Any, Any, Any] | None:
    from torch._inductor import async_compile, codecache

    found = getattr(async_compile, "AsyncCompile", None)
    cache = getattr(codecache, "CppPythonBindingsCodeCache", None)
    promise = getattr(codecache, "LambdaFuture", None)
    load = getattr(cache, "load_pybinding_async", None)
    if promise is None or load is None or "submit_fn" not in inspect.signature(load).parameters:
        return None
    return (found, cache, promise) if hasattr(found, "cpp_pybinding") and hasattr(found, "wait") else None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
