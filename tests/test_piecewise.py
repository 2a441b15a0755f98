"""`PiecewiseBackend` as its users build it; the first seed among them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from sizewise import CompilationConfig, Dim, PiecewiseBackend, Range, RangeEntry
from sizewise.errors import build as errors
from sizewise.errors import config as config_errors
from sizewise.split import Piece, split

from .test_trace import trace


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu()) + x.shape[0]


@pytest.fixture
def piece() -> Piece:
    [traced] = trace(Mlp(), torch.randn(3, 4), dims={"x": {0: Dim("batch", 1, 64)}})
    [step] = split(traced, [], user_set=True)
    assert isinstance(step, Piece)
    return step


def arguments(piece: Piece, module: Mlp, x: Tensor) -> list[Any]:
    """The piece's inputs by the names Dynamo gave them."""
    found: list[Any] = []
    for name in piece.inputs:
        layer = module.a if "modules_a" in name else module.b
        if "weight" in name or "bias" in name:
            found.append(layer.weight if "weight" in name else layer.bias)
        else:
            found.append(x if "argument" in name else x.shape[0])
    return found


def test_the_first_seed_word_for_word(piece: Piece) -> None:
    with pytest.raises(NotImplementedError) as seen:
        PiecewiseBackend(piece.graph, compile_sizes=["cudagraph_capture_sizes", 1, 2])  # type: ignore[list-item]
    message = str(seen.value)
    assert message.startswith(
        "cudagraph_capture_sizes not supported in compile_sizes. This should be handled in `post_init_cudagraph_sizes`."
    )
    assert isinstance(seen.value, config_errors.CaptureSizesInCompileSizes)
    assert "config.post_init_cudagraph_sizes()" in message


def test_the_first_seeds_way_out(piece: Piece) -> None:
    unsettled = CompilationConfig(compile_sizes=["cudagraph_capture_sizes", 1, 2], backend="eager")
    with pytest.raises(config_errors.CaptureSizesInCompileSizes):
        PiecewiseBackend(piece.graph, config=unsettled)
    settled = unsettled.post_init_cudagraph_sizes([1, 2, 4])
    backend = PiecewiseBackend(piece.graph, config=settled)
    assert backend.compile_sizes == [1, 2, 4]


def test_the_first_seeds_example_fix(piece: Piece) -> None:
    backend = PiecewiseBackend(piece.graph, compile_sizes=[1, 2, 4])
    compile_sizes = [s for s in backend.compile_sizes or [] if not isinstance(s, str)]
    assert all(isinstance(s, int) for s in compile_sizes)
    assert compile_sizes == [1, 2, 4]
    assert PiecewiseBackend(piece.graph, compile_ranges=[Range(1, 8)]).compile_sizes is None


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_has_to_be_positive(piece: Piece, size: int) -> None:
    with pytest.raises(errors.BadRange):
        PiecewiseBackend(piece.graph, compile_sizes=[size])


@pytest.mark.parametrize("size", ["8", 2.0, True, None])
def test_a_size_has_to_be_an_int(piece: Piece, size: Any) -> None:
    with pytest.raises(config_errors.UnrecognizedCompileSize, match="expect 'cudagraph_capture_sizes'"):
        PiecewiseBackend(piece.graph, compile_sizes=[size])


def test_sizes_or_ranges_have_to_be_given(piece: Piece) -> None:
    with pytest.raises(errors.NothingToCompile):
        PiecewiseBackend(piece.graph)


@pytest.mark.parametrize(("start", "end"), [(0, 3), (4, 3), (1.0, 2), (True, 2)])
def test_a_range_is_an_inclusive_interval(start: Any, end: Any) -> None:
    with pytest.raises(errors.BadRange):
        Range(start=start, end=end)


def test_ranges_hold_both_ends() -> None:
    interval = Range(start=2, end=4)
    assert [n for n in range(1, 6) if n in interval] == [2, 3, 4]
    assert Range(3, 3).is_single_size()
    assert not interval.is_single_size()


def test_exact_sizes_win_over_ranges(piece: Piece) -> None:
    config = CompilationConfig(backend="eager")
    backend = PiecewiseBackend(
        piece.graph, compile_sizes=[8], compile_ranges=[Range(1, 16), Range(17, 64)], config=config
    )
    assert set(backend.range_entries) == {Range(8, 8), Range(1, 16), Range(17, 64)}
    assert backend.find_range(8).compile_range == Range(8, 8)
    assert backend.find_range(9).compile_range == Range(1, 16)
    assert backend.find_range(16).compile_range == Range(1, 16)
    assert backend.find_range(17).compile_range == Range(17, 64)
    with pytest.raises(errors.ShapeOutOfRanges, match=r"Shape: 65 out of considered ranges: \[\(8, 8\)"):
        backend.find_range(65)


def test_nothing_runs_before_it_is_compiled(piece: Piece) -> None:
    backend = PiecewiseBackend(piece.graph, compile_ranges=[Range(1, 64)], config=CompilationConfig(backend="eager"))
    with pytest.raises(errors.NoCompiledEntry, match="Missing compiled runnable for range"):
        backend(*arguments(piece, Mlp(), torch.randn(3, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
@torch.no_grad()
def test_a_backend_computes_what_the_module_does(compiler: str) -> None:
    module = Mlp().eval()
    [traced] = trace(module, torch.randn(3, 4), dims={"x": {0: Dim("batch", 1, 64)}})
    [step] = split(traced, [], user_set=True)
    assert isinstance(step, Piece)
    config = CompilationConfig(backend=compiler)
    backend = PiecewiseBackend(
        step.graph,
        compile_sizes=[8],
        compile_ranges=[Range(1, 16), Range(17, 64)],
        config=config,
        sym_shape_indices=step.sym_shape_indices,
        returns_tuple=False,
    )
    artifacts = backend.compile_all()
    assert len(artifacts) == 3
    assert {artifact.compiler for artifact in artifacts} == {compiler}
    assert backend.compile_all() == []
    for size in (1, 7, 8, 16, 17, 64):
        x = torch.randn(size, 4)
        torch.testing.assert_close(backend(*arguments(step, module, x)), module(x))
    if compiler == "inductor":
        exact = next(a for a in artifacts if a is backend.range_entries[Range(8, 8)].artifact)
        assert "8L" in exact.source or "(8," in exact.source


def test_entries_say_whether_they_are_compiled() -> None:
    assert not RangeEntry(compile_range=Range(1, 2)).compiled


def test_the_debug_lines_are_written_once(piece: Piece, caplog: pytest.LogCaptureFixture) -> None:
    from sizewise.piecewise import OnceLog

    log = OnceLog()
    config = CompilationConfig(backend="eager")
    with caplog.at_level(logging.DEBUG, logger="sizewise.piecewise"):
        for _ in range(3):
            backend = PiecewiseBackend(
                piece.graph, compile_sizes=[1], compile_ranges=[Range(2, 4)], config=config, log=log
            )
            backend.compile_all()
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("PiecewiseBackend: compile_ranges: ['(2, 4)']") == 1
    assert lines.count("PiecewiseBackend: compile_sizes: [1]") == 1
    graphs = [line for line in lines if line.startswith("PiecewiseBackend: graph of piece")]
    assert len(graphs) == 3  # once per backend, although each compiled two ranges


class Broken:
    """A compiler that fails as real ones do."""

    name = "broken"

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        raise self.problem


def test_a_failed_compile_names_the_likely_reason_and_keeps_the_cause(piece: Piece) -> None:
    problem = ValueError("no kernel for frobnicate")
    backend = PiecewiseBackend(piece.graph, compile_ranges=[Range(1, 4)], compiler=Broken(problem))
    with pytest.raises(
        RuntimeError, match=r"Sizewise failed to compile the model\. The most likely reason for"
    ) as seen:
        backend.compile_all()
    assert isinstance(seen.value, errors.CompileFailed)
    assert seen.value.__cause__ is problem
    assert "frobnicate" in str(seen.value)
    assert not any(entry.compiled for entry in backend.range_entries.values())


def test_a_graph_written_by_hand(piece: Piece) -> None:
    """No Dynamo: any fx graph with example values will do."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        example = mode.from_tensor(torch.ones(3, 2))
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = example
    graph.output((graph.call_function(torch.relu, (x,)),))
    config = CompilationConfig(backend="eager")
    backend = PiecewiseBackend(fx.GraphModule(nn.Module(), graph), compile_ranges=[Range(1, 1)], config=config)
    backend.compile_all()
    seen = torch.randn(3, 2)
    assert torch.equal(backend(seen)[0], seen.relu())
