"""What the processes of the cache's tests do. A fork server imports this once, so that each need not (`processes`).

Every function here runs in a process of its own, which tells what it does through a pipe.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partialmethod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import sizewise
import sizewise.build
import sizewise.saved.files
import sizewise.warm
from sizewise import CompiledModule, Dim
from sizewise.cache import Store
from sizewise.events import Event

Tell = Callable[..., None]


class Warnings(logging.Handler):
    """Keeps what Sizewise logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("sizewise").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def load(path: str) -> Any:
    """The module in a file, with its folder to import others from."""
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(
    tell: Tell,
    pipe: Connection,
    path: str,
    argument: Any = 0,
    seed: int | None = None,
    stops_at: str = "",
    tells: str = "",
    before_publishing: Callable[[], None] | None = None,
    **options: Any,
) -> None:
    """Warm up ``make(argument)`` of the file at ``path``, serve its calls, and tell how that went.

    At the stage ``stops_at``, an event or a step of publishing, it tells so and waits; at ``tells`` it goes on.
    """
    warnings = Warnings()
    module, calls, dynamic = load(path).make(argument)
    if seed is not None:
        new_weights(module, seed)

    def reached(stage: str) -> None:
        if stage in (stops_at, tells):
            tell(stage=stage)
        if stage == stops_at:
            pipe.recv()

    def progress(event: Event) -> None:
        if event.name == "cache.wait" and event.seconds < 1:
            tell(waits_for=event.fields["owner"])
        reached(event.name)
        if event.name == "publish.start" and before_publishing is not None:
            before_publishing()

    Store.publish = partialmethod(Store.publish, stage=reached)  # type: ignore[method-assign,assignment]
    dims = {name: {axis: Dim(*dim) for axis, dim in axes.items()} for name, axes in dynamic.items()}
    fast: CompiledModule = sizewise.compile(module, dynamic_shapes=dims, **options)
    try:
        fast.warmup_many([(call.get("args", ()), call.get("kwargs", {})) for call in calls], progress=progress)
    except sizewise.SizewiseError as problem:
        tell(error=str(problem), code=problem.code, warnings=warnings.lines)
        return
    tell(
        right=all(equal(fast, module, call) for call in calls),
        **fast.counters.as_dict(),
        hit=fast.report().cache["hit"],
        why=fast.report().cache["why"],
        guards=len(fast.report().guards),
        warnings=warnings.lines,
    )


def new_weights(module: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)


def equal(fast: Any, module: Any, call: Mapping[str, Any]) -> bool:
    """Whether a call gives what eager gives, which is not nothing."""
    args, kwargs = call.get("args", ()), call.get("kwargs", {})
    with torch.no_grad():
        wanted, seen = module(*args, **kwargs), fast(*args, **kwargs)
    return bool(wanted.square().mean().sqrt() > 0.1) and torch.allclose(seen, wanted, rtol=1e-4, atol=1e-5)


def replace_libraries() -> None:
    """Put a copy in the place of every library that was built: what a compiler does that comes late."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    mapped = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    for path in (Path(name) for name in mapped if name.startswith(cache_dir()) and name.endswith(".so")):
        copy = path.with_suffix(f".{os.getpid()}")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)


def limit_files() -> None:
    """From now on no file may get larger than 3000 bytes, as with a quota."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


def break_locks() -> None:
    """From now on no lock of the store works, as on some network file systems; those of Inductor do."""
    import errno
    import fcntl

    def broken(lock: Callable[..., None]) -> Callable[..., None]:
        def fails(descriptor: int, *more: Any) -> None:
            if "programs-1/locks" in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            lock(descriptor, *more)

        return fails

    fcntl.lockf, fcntl.flock = broken(fcntl.lockf), broken(fcntl.flock)


def impatient(tell: Tell, pipe: Connection, **arguments: Any) -> None:
    """`serve`, but nobody is waited for longer than a moment."""
    sizewise.warm.PATIENCE = 0.3
    serve(tell, pipe, **arguments)


def without_locks(tell: Tell, pipe: Connection, **arguments: Any) -> None:
    break_locks()
    serve(tell, pipe, **arguments)


def _once() -> None:
    """One build, so that what the first one of a process costs is paid before the children are forked."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as empty:
        os.environ["SIZEWISE_CACHE_DIR"] = empty
        dims = {"input": {0: Dim("batch", 1, 4)}}
        fast: CompiledModule = sizewise.compile(torch.nn.Linear(2, 2).eval(), dynamic_shapes=dims)
        fast.warmup(torch.ones(3, 2))


_once()
