"""One distinct piece, compiled for ranges of sizes and for exact sizes.

The names and rules are vLLM's ``PiecewiseBackend``: ranges are inclusive at both ends, an exact size is
``Range(n, n)`` and wins over the ranges, and everything is compiled before the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from .compilers import Artifact, Compiler, compiler_named
from .config.compilation import CompilationConfig
from .config.sizes import wrong_type
from .errors import SizewiseError
from .errors import build as errors
from .errors import config as config_errors
from .ranges import Range
from .trace.lines import location_in
from .trace.shapes import concrete, expression, narrowed

logger = logging.getLogger("sizewise.piecewise")


FIRST_SIZE = "first"


@dataclass
class RangeEntry:
    """What was compiled for one range; ``artifact`` is None until then."""

    compile_range: Range
    artifact: Artifact | None = None
    all: Mapping[Range, RangeEntry] = field(default_factory=dict, repr=False, compare=False)
    """The entries of the same piece, this one among them."""

    @property
    def compiled(self) -> bool:
        return self.artifact is not None

    @property
    def runnable(self) -> Callable[[list[Any]], Sequence[Any]]:
        if self.artifact is None:
            compiled = ", ".join(str(interval) for interval, entry in self.all.items() if entry.compiled)
            raise errors.NoCompiledEntry(range=self.compile_range, available=compiled or "none compiled yet")
        return self.artifact.runnable


@dataclass
class OnceLog:
    """Debug lines that are written once per build, however many pieces say them."""

    seen: set[str] = field(default_factory=set)

    def debug(self, line: str) -> None:
        if line not in self.seen:
            self.seen.add(line)
            logger.debug(line)


class PiecewiseBackend:
    """A graph compiled for ``compile_ranges`` and ``compile_sizes`` of its first size.

    ``graph`` is an `fx.GraphModule` whose placeholders carry ``meta["example_value"]`` (fake tensors and
    ``SymInt``\\ s). ``sym_shape_indices`` are the positions of the inputs that are sizes; by default they
    are read off the placeholders. With ``returns_tuple=False`` a call returns the single output itself.
    ``config`` supplies sizes, ranges and the backend where they are not given. ``symbol`` is the size that
    ranges are about: the first one by default, None where the piece is static in it.

    Raises:
        CaptureSizesInCompileSizes (SW101): the word ``"cudagraph_capture_sizes"`` among the sizes.
        UnrecognizedCompileSize, NotPositive: other things that are no sizes.
        WrongType (SW104): among the ranges something that is no `Range`.
        NothingToCompile (SW304): neither sizes nor ranges.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        *,
        compile_sizes: Sequence[int] | None = None,
        compile_ranges: Sequence[Range] | None = None,
        config: CompilationConfig | None = None,
        sym_shape_indices: Sequence[int] | None = None,
        returns_tuple: bool = True,
        compiler: Compiler | None = None,
        symbol: sympy.Symbol | str | None = FIRST_SIZE,
        name: str = "0",
        log: OnceLog | None = None,
    ) -> None:
        self.graph = graph
        self.config = config
        self.name = name
        self._log = log or OnceLog()
        self.compile_ranges = checked_ranges(compile_ranges)
        self._log.debug(f"PiecewiseBackend: compile_ranges: {[str(r) for r in self.compile_ranges]}")
        self.compile_sizes = compile_sizes if compile_sizes is not None else (config.compile_sizes if config else None)
        self._log.debug(f"PiecewiseBackend: compile_sizes: {self.compile_sizes}")
        self.returns_tuple = returns_tuple
        self._placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        if sym_shape_indices is None:
            sym_shape_indices = [i for i, n in enumerate(self._placeholders) if _is_size(n)]
        self.sym_shape_indices = list(sym_shape_indices)
        self.compiler = compiler or compiler_named((config.backend if config else "") or "inductor")
        self.symbol = self._first_symbol() if isinstance(symbol, str) else symbol
        # Exact sizes come first: they win over the ranges.
        self.range_entries: dict[Range, RangeEntry] = {}
        for size in checked_sizes(self.compile_sizes):
            exact = Range(start=size, end=size)
            if exact not in self.compile_ranges:
                self.range_entries[exact] = RangeEntry(compile_range=exact, all=self.range_entries)
        for interval in self.compile_ranges:
            self.range_entries[interval] = RangeEntry(compile_range=interval, all=self.range_entries)
        if not self.range_entries:
            raise errors.NothingToCompile()
        self._graph_logged = False

    def _first_symbol(self) -> sympy.Symbol | None:
        """The first size among the inputs, as vLLM takes it."""
        for node in self._placeholders:
            value = node.meta.get("example_value")
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            for size in sizes:
                if isinstance(size, torch.SymInt) and isinstance(expression(size), sympy.Symbol):
                    return expression(size)
        return None

    def compile_all(self) -> list[Artifact]:
        """Compile every range and size that is not compiled yet; the new artifacts."""
        return [self.compile_range(entry.compile_range) for entry in self._missing()]

    def _missing(self) -> Iterator[RangeEntry]:
        return (entry for entry in list(self.range_entries.values()) if not entry.compiled)

    def compile_range(self, interval: Range, *, finish: bool = True) -> Artifact:
        """Compile for one of the ranges; without ``finish`` it may be called only after `finish`.

        Raises:
            UnknownCompileRange (SW139): it is none of them.
            CompileFailed (SW301), NoCompiler (SW306).
        """
        if not isinstance(interval, Range) or interval not in self.range_entries:
            known = ", ".join(map(str, self.range_entries))
            raise config_errors.UnknownCompileRange(interval=interval, known=known)
        if not self._graph_logged:
            logger.debug("PiecewiseBackend: graph of piece %s:\n%s", self.name, self.graph.code.strip())
            self._graph_logged = True
        entry = self.range_entries[interval]
        options = dict(self.config.inductor_compile_config) if self.config else {}
        with self.inputs_for(interval) as (inputs, fake_mode):
            try:
                entry.artifact = self.compiler.compile(self.graph, inputs, fake_mode, options)
            except SizewiseError:
                raise
            except Exception as problem:
                raise compile_failed(problem, self.name, location_in(self.graph, problem)) from problem
        if finish:
            self.finish()
        return entry.artifact

    def finish(self) -> None:
        """Wait for what is still being built in the background.

        Raises:
            CompileFailed (SW301), NoCompiler (SW306).
        """
        for entry in self.range_entries.values():
            if entry.artifact is not None:
                try:
                    entry.artifact.finish()
                except Exception as problem:
                    entry.artifact = None
                    raise compile_failed(problem, self.name, location_in(self.graph, problem)) from problem

    @contextmanager
    def inputs_for(self, interval: Range) -> Iterator[tuple[list[Any], Any]]:
        """Example inputs whose first size is exactly, or lies in, ``interval``."""
        values = [node.meta["example_value"] for node in self._placeholders]
        fake_mode = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)
        if self.symbol is None or fake_mode is None:
            yield values, fake_mode
        elif interval.is_single_size():
            yield [concrete(value, self.symbol, interval.start, fake_mode) for value in values], fake_mode
        else:
            with narrowed(fake_mode, self.symbol, interval.start, interval.end):
                yield values, fake_mode

    def find_range(self, size: int | None) -> RangeEntry:
        """The entry that serves ``size``: the exact one, else the first range that holds it.

        A piece that has no size is served by its only kind of entry.

        Raises:
            ShapeOutOfRanges (SW303).
        """
        if size is None:
            return next(iter(self.range_entries.values()))
        exact = self.range_entries.get(Range(size, size)) if size >= 1 else None
        if exact is not None:
            return exact
        for entry in self.range_entries.values():
            if size in entry.compile_range:
                return entry
        ranges = ", ".join(str(interval) for interval in self.range_entries)
        raise errors.ShapeOutOfRanges(size=size, ranges=f"[{ranges}]")

    def __call__(self, *args: Any) -> Any:
        """Run the piece on ``args``; the first size among them chooses what runs."""
        outputs = self.find_range(self._size_of(args)).runnable(list(args))
        return tuple(outputs) if self.returns_tuple else outputs[0]

    def _size_of(self, args: Sequence[Any]) -> int | None:
        for index, node in enumerate(self._placeholders):
            value = node.meta.get("example_value")
            if isinstance(value, torch.SymInt) and expression(value) == self.symbol:
                return int(args[index])
            if isinstance(value, torch.Tensor):
                for axis, size in enumerate(value.shape):
                    if isinstance(size, torch.SymInt) and expression(size) == self.symbol:
                        return int(args[index].shape[axis])
        return None


def _is_size(node: fx.Node) -> bool:
    return not isinstance(node.meta.get("example_value"), torch.Tensor)


def checked_ranges(ranges: Iterable[Any] | None) -> list[Range]:
    """The ranges as a list. Raises SW104 for what is no `Range`."""
    listed = list(ranges or ())
    for index, interval in enumerate(listed):
        if not isinstance(interval, Range):
            pair = isinstance(interval, tuple | list) and len(interval) == 2
            example = f", such as Range({interval[0]!r}, {interval[1]!r})" if pair else ""
            raise wrong_type(f"compile_ranges[{index}]", interval, f"a sizewise.Range{example}")
    return listed


def checked_sizes(sizes: Iterable[Any] | None) -> list[int]:
    """Exact sizes, checked and without repeats, in the order given."""
    found: list[int] = []
    listed = list(sizes or ())
    for size in listed:
        if size == "cudagraph_capture_sizes":
            raise config_errors.CaptureSizesInCompileSizes(compile_sizes=listed)
        if type(size) is not int:
            raise config_errors.UnrecognizedCompileSize(size=size, compile_sizes=listed)
        if size not in found:
            found.append(size)
    return found


def compile_failed(problem: Exception, piece: str, where: str) -> SizewiseError:
    """A compiler's exception as a Sizewise error; the cause is kept by the raise. ``where``: the user's line."""
    text = str(problem)
    last = [line.strip() for line in text.splitlines() if line.strip()]
    # Of a C++ compiler's many lines the first error says what is wrong.
    words = next((line for line in last if "error: " in line), last[0] if last else "no message")
    cause = f"{type(problem).__name__}: {words}"
    name = type(problem).__name__
    if name == "InvalidCxxCompiler" or "InvalidCxxCompiler" in text:
        return errors.NoCompiler(seen=cause)
    reason, hint = _likely_reason(name, text)
    return errors.CompileFailed(reason=reason, piece=piece, cause=cause, where=where, hint=hint)


def _likely_reason(name: str, text: str) -> tuple[str, str]:
    if "CppCompileError" in name or "CppCompileError" in text:
        return (
            "that the C++ compiler refused the generated code",
            'run `sizewise doctor` to check the compiler; a bundle built elsewhere and backend="eager" need none.',
        )
    if "No space left" in text:
        return "that the disk is full", "free space in the directory that TORCHINDUCTOR_CACHE_DIR names."
    return (
        "an operator that the compiler cannot handle with symbolic sizes",
        "name that operator in splitting_ops, so that it runs between pieces, or use "
        'CompilationConfig(backend="eager").',
    )
