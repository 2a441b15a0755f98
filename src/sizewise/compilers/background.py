"""C++ compilers at work while Python goes on: a piece's kernels are built in the background, and waited for at the end.

Inductor generates a piece's code and then waits for its C++ compiler, kernel after kernel. Here the generated module
keeps promises in place of kernels until `finish` is called, so that the C++ compilers of several kernels and pieces
run side by side, and beside the code generation of the pieces after them.

Private API: ``AsyncCompile.cpp_pybinding`` and ``.wait``, ``CppPythonBindingsCodeCache.load_pybinding_async`` and
``LambdaFuture``. Checked on torch 2.13.0 and 2.14.1. Where one is missing, kernels are built one by one.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from .machine import find_out

MOST = 8
"""Most C++ compilers at a time: each takes some hundred megabytes."""


class Background:
    """Up to ``workers`` C++ compilers at a time; by default one per core that the process may use, up to `MOST`."""

    def __init__(self, workers: int | None = None) -> None:
        self._pool = ThreadPoolExecutor(workers or min(MOST, _cores()), thread_name_prefix="sizewise-compile")
        self._machine: Future[dict[str, Any]] | None = None

    def start(self, options: Mapping[str, Any]) -> None:
        """Begin to find out what Inductor has to know about the machine."""
        context = contextvars.copy_context()  # settings of torch are kept in it
        self._machine = self._pool.submit(context.run, find_out, dict(options))

    def machine(self) -> dict[str, Any]:
        """The settings that spare Inductor from finding it out, once they are known."""
        return self._machine.result() if self._machine is not None else {}

    @contextmanager
    def collecting(self) -> Iterator[list[dict[str, Any]]]:
        """Within, this thread's Inductor leaves kernels to the background; the scopes that hold promises of them.

        The caller has to keep other threads from doing the same (`trace.dynamo.TRACING`).
        """
        scopes: list[dict[str, Any]] = []
        parts = _parts()
        if parts is None:
            yield scopes
            return
        async_compile, code_cache, promise = parts
        original_binding, original_wait = async_compile.cpp_pybinding, async_compile.wait
        thread = threading.get_ident()

        def cpp_pybinding(self_: Any, argtypes: list[str], source_code: str) -> Any:
            if threading.get_ident() != thread:
                return original_binding(self_, argtypes, source_code)
            return promise(code_cache.load_pybinding_async(argtypes, source_code, submit_fn=self._pool.submit))

        def wait(self_: Any, scope: dict[str, Any]) -> None:
            if threading.get_ident() == thread:
                scopes.append(scope)
            original_wait(self_, scope)

        async_compile.cpp_pybinding, async_compile.wait = cpp_pybinding, wait
        try:
            yield scopes
        finally:
            async_compile.cpp_pybinding, async_compile.wait = original_binding, original_wait

    def close(self) -> None:
        """Wait for the compilers that run; no others are started."""
        self._pool.shutdown(wait=True, cancel_futures=True)


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
