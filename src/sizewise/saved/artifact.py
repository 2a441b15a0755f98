"""The second path of a piece: torch's own artifact of it, with the kernels that torch leaves out.

For pieces whose generated code has no self-contained form (`extract`). An artifact is a pickle of torch's, which may
run anything when it is read: the caller has to check its digest first. Torch does not put the libraries of C++ kernels
in it and would start a C++ compiler to load it. So while it is loaded, each kernel that the generated code asks for is
given to it, by the digest of its source.

Private API: ``standalone_compile`` with ``aot`` and ``CompiledArtifact``;
``AsyncCompile.cpp_pybinding``, ``CppWrapperCodeCache.load_pybinding``, ``PyCodeCache.modules``, the variable
``TORCHINDUCTOR_CACHE_DIR``; ``strict_autograd_cache``. Checked on torch 2.13.0. Where one is missing, a piece has no
second path.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .extract import KernelFile, is_kernel, kernel_file
from .values import NotWritable, Unreadable

if TYPE_CHECKING:
    from ..compilers import Artifact

_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_CARRIED = ("cpp_pybinding", "wait")
"""What generated code may ask of ``async_compile``: with anything else, loading would compile."""
_LABEL = re.compile(r"\bgraph_\d+(?=_inductor_wrapper_call\b)")
"""How many graphs the process had compiled before, as a profiler shows it."""
_FOR_ARTIFACTS = {"compile_threads": 1, "force_disable_caches": False}
"""Artifacts are entries of torch's caches."""
Compile = Callable[[], Any]


@dataclass(frozen=True)
class Packed:
    """A piece as torch's artifact. ``kernels`` are by digest; ``is_raw``: the generated code is called directly."""

    data: bytes
    kernels: dict[str, KernelFile]
    settings: dict[str, Any]
    is_raw: bool


def pack(graph: fx.GraphModule, inputs: Sequence[Any], fake_mode: Any, built: Artifact) -> Packed:
    """Compile ``graph`` once more, as ``built`` was, into an artifact, and load that.

    Raises:
        NotWritable: it has none, or its code is not the one that was built; the message says why.
    """
    _refuse_other_kernels(built.source)
    settings = {**built.settings, **_FOR_ARTIFACTS}
    kernels = _Kernels(_kernels_of(built), may_compile=True)
    try:
        data = _compile(graph, inputs, fake_mode, settings, kernels)
        kernels.asked.clear()
        _, source = _load(data, kernels, settings, built.is_raw)
    except NotWritable:
        raise
    except Exception as problem:
        words = next((line.strip() for line in str(problem).splitlines() if line.strip()), "no message")
        raise NotWritable(f"an artifact, which torch does not make ({type(problem).__name__}: {words})") from problem
    if not _is_same(source, built.source):
        raise NotWritable("code that comes out otherwise when it is generated again")
    files = {digest: kernel_file(digest, kernel) for digest, kernel in kernels.asked.items()}
    return Packed(data, files, settings, built.is_raw)


def load(
    data: bytes, kernels: Mapping[str, Any], settings: Mapping[str, Any], is_raw: bool
) -> Callable[[list[Any]], Sequence[Any]]:
    """The piece that `pack` gave; ``kernels`` are loaded ones, by digest. ``data`` is unpickled.

    Raises:
        Unreadable: the code asks for a kernel that is not there.
        Exception: torch cannot read it.
    """
    call, _ = _load(data, _Kernels(dict(kernels), may_compile=False), settings, is_raw)
    return call


class _Kernels:
    """The kernels that generated code is given; with ``may_compile`` also others."""

    def __init__(self, known: dict[str, Any], may_compile: bool) -> None:
        self._known, self._may_compile = known, may_compile
        self.asked: dict[str, Any] = {}

    def get(self, source: Any, compile_it: Compile) -> Any:
        digest = _digest(source)
        if digest not in self._known:
            if not self._may_compile:
                raise Unreadable("it asks for a kernel that was not saved with it")
            self._known[digest] = compile_it()
        return self.asked.setdefault(digest, self._known[digest])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, code that this thread loads gets its kernels here. The caller holds `inductors_state`."""
        from torch._inductor.async_compile import AsyncCompile
        from torch._inductor.codecache import CppWrapperCodeCache

        thread, pybinding = threading.get_ident(), AsyncCompile.cpp_pybinding
        wrapper = vars(CppWrapperCodeCache).get("load_pybinding")
        load_wrapper = CppWrapperCodeCache.load_pybinding

        def cpp_pybinding(self_: Any, argtypes: list[str], source_code: str) -> Any:
            def compile_it() -> Any:
                return pybinding(self_, argtypes, source_code)

            if threading.get_ident() != thread:
                return compile_it()
            return self.get([argtypes, source_code], compile_it)

        def load_pybinding(*args: Any, **kwargs: Any) -> Any:
            def compile_it() -> Any:
                return load_wrapper(*args, **kwargs)

            return compile_it() if threading.get_ident() != thread else self.get([args, kwargs], compile_it)

        replaced: Any = CppWrapperCodeCache  # a class method that it inherits
        AsyncCompile.cpp_pybinding, replaced.load_pybinding = cpp_pybinding, load_pybinding
        try:
            yield
        finally:
            AsyncCompile.cpp_pybinding = pybinding
            if wrapper is None:
                del replaced.load_pybinding
            else:
                replaced.load_pybinding = wrapper


def _compile(
    graph: fx.GraphModule, inputs: Sequence[Any], fake_mode: Any, settings: Mapping[str, Any], kernels: _Kernels
) -> bytes:
    from torch._inductor import standalone_compile

    from ..compilers.inductor import inductors_state, tracing

    with (
        inductors_state(settings),
        tracing(fake_mode),
        # Where torch cannot make an artifact it shall say why.
        torch._functorch.config.patch(enable_autograd_cache=True, strict_autograd_cache=True),
        kernels.in_place(),
        tempfile.TemporaryDirectory(prefix="sizewise-") as folder,
    ):
        path = Path(folder) / "artifact"
        made = standalone_compile(graph, list(inputs), dynamic_shapes="from_tracing_context", aot=True)
        made.save(path=str(path))
        return path.read_bytes()


def _load(
    data: bytes, kernels: _Kernels, settings: Mapping[str, Any], is_raw: bool
) -> tuple[Callable[[list[Any]], Sequence[Any]], str]:
    """The piece, and the generated code in it."""
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.standalone_compile import CompiledArtifact

    from ..compilers.inductor import inductors_state

    with (
        inductors_state(settings),
        kernels.in_place(),
        tempfile.TemporaryDirectory(prefix="sizewise-") as folder,
        _cache_in(folder),
    ):
        known = len(PyCodeCache.modules)
        path = Path(folder) / "artifact"
        path.write_bytes(data)
        artifact = CompiledArtifact.load(path=str(path))
        generated = [module for module in PyCodeCache.modules[known:] if str(module.__file__).startswith(folder)]
        if len(generated) != 1:
            raise Unreadable(f"it holds {len(generated)} pieces of generated code, not one")
        source = Path(str(generated[0].__file__)).read_text()
    if is_raw:
        call: Callable[[list[Any]], Sequence[Any]] = generated[0].call
        return call, source

    def run(inputs: list[Any]) -> Sequence[Any]:
        result: Sequence[Any] = artifact(*inputs)
        return result

    return run, source


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Torch writes what it unpacks to its cache directory: a private one, since its own need not be writable."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before


def _kernels_of(built: Artifact) -> dict[str, Any]:
    """The kernels of the code that was built, which compilers need not make again."""
    scope = getattr(built.code, "__globals__", {})
    found = {}
    for node in ast.parse(built.source).body:
        if is_kernel(node) and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            kernel = scope.get(ast.unparse(node.targets[0]))
            if kernel is not None:
                found[_digest([ast.literal_eval(argument) for argument in node.value.args])] = kernel
    return found


def _digest(source: Any) -> str:
    return hashlib.sha256(json.dumps(source, sort_keys=True, default=repr).encode()).hexdigest()


def _refuse_other_kernels(source: str) -> None:
    try:
        tree = ast.parse(source)
    except SyntaxError as problem:
        raise NotWritable(f"generated code that is no Python: {problem}") from None
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    asked = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "async_compile"}
    for name in sorted(asked.difference(_CARRIED)):
        raise NotWritable(f"kernels of async_compile.{name}, which only a compiler can make")


def _is_same(first: str, second: str) -> bool:
    """Whether two generated sources say the same, but for comments and texts that nothing reads."""
    return _statements(first) == _statements(second)


def _statements(source: str) -> list[str]:
    body = ast.parse(_LABEL.sub("", source)).body
    return [
        ast.dump(node) for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
