"""The wrapper that owns captures: when it captures, what it replays, what it refuses, and whose results are whose."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise.graphs
from sizewise import monitor
from sizewise.config import CUDAGraphMode
from sizewise.counters import Counters
from sizewise.errors import call as call_errors
from sizewise.errors import capture as errors
from sizewise.errors import config as config_errors
from sizewise.errors import state as state_errors
from sizewise.graphs import (
    BatchDescriptor,
    CUDAGraphWrapper,
    FakeBackend,
    check_current,
    current_context,
    forward_context,
    inside_capture,
    is_current,
)

RECORD = json.loads((Path(__file__).parent / "seeds/002_a02f24e17699f4b2.txt").read_text())["record"]


@pytest.fixture(autouse=True)
def open_gate_and_no_gradients() -> Iterator[None]:
    monitor.set_cudagraph_capturing_enabled(True)
    with torch.no_grad():
        yield
    monitor.set_cudagraph_capturing_enabled(True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)
        self.label = "net"

    def forward(self, x: torch.Tensor, scale: float = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = self.b(self.a(x).relu()) * scale
        return y if mask is None else y * mask[:, None]


class Fails:
    @property
    def broken(self) -> int:
        return {}.no_such_thing  # type: ignore[attr-defined, no-any-return]


def wrapped(runnable: Any = None, mode: str = "FULL", **options: Any) -> Any:
    backend = options.pop("backend", None) or FakeBackend()
    return CUDAGraphWrapper(Net().eval() if runnable is None else runnable, mode=mode, backend=backend, **options)


def of(rows: int, **more: Any) -> BatchDescriptor:
    return BatchDescriptor.of(batch=rows, **more)


def called(wrapper: Any, *args: Any, mode: str = "FULL", descriptor: Any = None, session: Any = None, **kw: Any) -> Any:
    with forward_context(mode, descriptor or of(args[0].shape[0]), session=session):
        return wrapper(*args, **kw)


def closed() -> Any:
    return monitor.cudagraph_capturing(False)


# -- the document's operator, and its three ways out


class MyOp(nn.Module):
    """Captures a graph of its own in forward, as in the document."""

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__()
        self.linear, self.backend = nn.Linear(4, 4), backend
        self._graph: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._graph is None:
            with self.backend.session() as session:
                job = sizewise.graphs.Job(self._eager, (x.clone(),), weights=tuple(self.linear.parameters()))
                self._graph = session.capture(job)
        self._graph.inputs[0].copy_(x)
        self._graph.replay()
        result: torch.Tensor = self._graph.result.clone()
        return result

    def _eager(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Fixed(MyOp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._eager(x)


def test_a_lazy_capture_in_service_is_the_documents_error() -> None:
    backend = FakeBackend()
    op = MyOp(backend)
    monitor.set_cudagraph_capturing_enabled(False)
    with pytest.raises(RuntimeError) as caught:
        op(torch.randn(3, 4))
    assert str(caught.value).startswith(RECORD["errorMessage"]) and "[SW601]" in str(caught.value)
    assert backend.attempts == 0 and op._graph is None


def test_first_solution_the_wrapper_captures_it_at_warm_up() -> None:
    backend = FakeBackend()
    op = Fixed(backend)
    wrapper = wrapped(op, backend=backend)
    called(wrapper, torch.randn(3, 4))
    with closed():
        for _ in range(3):
            x = torch.randn(3, 4)
            torch.testing.assert_close(called(wrapper, x), op._eager(x))
        with pytest.raises(errors.CapturingDisabled):
            called(wrapper, torch.randn(2, 4))
    assert wrapper.counters.captures == len(backend.captures) == 1 and wrapper.counters.calls_capture == 4


def test_second_solution_a_bracket() -> None:
    op = MyOp(FakeBackend())
    x = torch.randn(3, 4)
    monitor.set_cudagraph_capturing_enabled(False)
    with monitor.cudagraph_capturing(True):
        op(x)
    torch.testing.assert_close(op(x), op._eager(x))
    again = MyOp(FakeBackend())
    monitor.set_cudagraph_capturing_enabled(True)
    again(x)
    monitor.set_cudagraph_capturing_enabled(False)
    torch.testing.assert_close(again(x), again._eager(x))


def test_third_solution_no_graphs_for_that_one_component() -> None:
    backend = FakeBackend()
    op, rest = wrapped(Fixed(backend), backend=backend), wrapped(nn.Linear(4, 4), backend=backend)

    def model(x: torch.Tensor) -> Any:
        with forward_context("NONE"):
            y = op(x)
        return rest(y)

    called(model, torch.randn(3, 4))
    with closed():
        x = torch.randn(3, 4)
        torch.testing.assert_close(called(model, x), rest.unwrap()(op.unwrap()._eager(x)))
    assert op.counters.captures == 0 and op.counters.calls_program == 2 and rest.counters.captures == 1


def test_a_lazy_capture_inside_the_wrappers_is_refused_and_named() -> None:
    backend = FakeBackend()
    wrapper = wrapped(MyOp(backend), backend=backend)
    with pytest.raises(errors.CaptureFailed, match="a capture within another capture"):
        called(wrapper, torch.randn(3, 4))
    assert wrapper.unwrap()._graph is None and not wrapper.entries and not backend.captures
    assert backend.bytes == 0 and not inside_capture()


# -- what a call does


def test_a_graph_per_descriptor_at_the_first_call_and_replays_after_it() -> None:
    backend = FakeBackend()
    wrapper = wrapped(backend=backend)
    with backend.session() as session:
        for rows in (16, 8, 1):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(called(wrapper, x, session=session), wrapper.unwrap()(x))
    assert backend.sizes == [((16, 4),), ((8, 4),), ((1, 4),)]
    assert len({capture.pool for capture in backend.captures}) == 1 and len(backend.sessions) == 1
    with closed(), wrapper.counters.expect(captures=0, calls_capture=9, calls_program=0):
        for rows in (1, 8, 16, 8, 1, 16, 1, 1, 8):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    assert backend.warm_ups == 3


def test_without_a_session_each_graph_has_memory_of_its_own() -> None:
    backend = FakeBackend()
    wrapper = wrapped(backend=backend)
    for rows in (2, 3):
        called(wrapper, torch.randn(rows, 4))
    assert len({capture.pool for capture in backend.captures}) == len(backend.sessions) == 2


@pytest.mark.parametrize("mode", ["PIECEWISE", "NONE", None])
def test_without_its_mode_it_is_the_runnable(mode: str | None) -> None:
    wrapper = wrapped()
    x = torch.randn(3, 4)
    with wrapper.counters.expect(calls_program=1, captures=0, calls_capture=0):
        seen = wrapper(x) if mode is None else called(wrapper, x, mode=mode)
    assert torch.equal(seen, wrapper.unwrap()(x)) and not wrapper.entries


def test_piecewise_relaxes_its_key_and_full_does_not() -> None:
    for mode, graphs in (("PIECEWISE", 1), ("FULL", 2)):
        wrapper = wrapped(mode=mode)
        for uniform in (True, False, True):
            called(wrapper, torch.randn(3, 4), mode=mode, descriptor=of(3, uniform=uniform))
        assert len(wrapper.entries) == graphs
    assert of(3, uniform=True).relaxed() == of(3) == of(3).relaxed()
    assert str(of(3, seq=5, uniform=True)) == "(batch=3, seq=5, uniform)"


def test_a_full_graph_around_piecewise_ones() -> None:
    backend = FakeBackend()
    piece = wrapped(nn.Linear(4, 4), "PIECEWISE", backend=backend)
    whole = wrapped(lambda x: piece(x).relu(), "FULL", backend=backend, weights=tuple(piece.parameters()))
    for mode in ("FULL", "PIECEWISE"):
        for _ in range(2):
            x = torch.randn(3, 4)
            torch.testing.assert_close(called(whole, x, mode=mode), piece.unwrap()(x).relu())
    assert whole.counters.captures == piece.counters.captures == 1
    assert whole.counters.calls_capture == piece.counters.calls_capture == 2


def test_inside_somebody_elses_capture_it_is_the_runnable() -> None:
    backend = FakeBackend()
    wrapper = wrapped(backend=backend)
    x = torch.randn(3, 4)
    called(wrapper, x)
    replays = backend.captures[0].replays
    with FakeBackend().session() as session:
        capture = session.capture(sizewise.graphs.Job(lambda x: called(wrapper, x), (x,)))
        fresh = session.capture(sizewise.graphs.Job(lambda x: called(wrapper, x), (torch.randn(7, 4),)))
    capture.replay()
    fresh.replay()
    torch.testing.assert_close(fresh.result, wrapper.unwrap()(fresh.inputs[0]))
    assert backend.captures[0].replays == replays and len(wrapper.entries) == 1


def test_modes_and_contexts_that_cannot_be() -> None:
    for mode in ("NONE", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"):
        with pytest.raises(errors.InvalidRuntimeMode, match=f"^Invalid cudagraph runtime mode: {mode}"):
            wrapped(mode=mode)
    for mode in ("FULL_AND_PIECEWISE", "FULL"):
        with pytest.raises(errors.InvalidRuntimeMode), forward_context(mode):
            pass
    with pytest.raises(config_errors.InvalidCudagraphMode), forward_context("FUL", of(1)):
        pass
    with pytest.raises(state_errors.BadOption, match="outputs='mine'"):
        wrapped(outputs="mine")
    assert current_context() is None


def test_contexts_nest_and_end() -> None:
    with forward_context("FULL", of(3)) as outer:
        with forward_context(CUDAGraphMode.NONE) as inner:
            assert current_context() is inner
        with pytest.raises(KeyError), forward_context("PIECEWISE", of(3)):
            raise KeyError
        assert current_context() is outer
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
        assert seen == [None]


# -- arguments


Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Given:
    value: torch.Tensor
    scale: float = 2.0


def nests(pair: Pair, given: Given, *, more: dict[str, Any]) -> dict[str, Any]:
    y = (pair.first + pair.second[0]) * given.scale
    return {"pair": Pair(y, [y, more["z"].sum()]), "given": Given(given.value + 1), "rows": y.shape[0]}


def test_arguments_and_results_in_any_containers() -> None:
    def values() -> tuple[Pair, Given, dict[str, Any]]:
        return Pair(torch.randn(3), (torch.randn(3),)), Given(torch.randn(2)), {"z": torch.randn(4), "none": None}

    wrapper = wrapped(nests)
    for _ in range(3):
        pair, given, more = values()
        with forward_context("FULL", of(3)):
            seen = wrapper(pair, given, more=more)
        wanted = nests(pair, given, more=more)
        assert type(seen["pair"]) is Pair and type(seen["given"]) is Given and seen["rows"] == 3
        assert seen["pair"].first is seen["pair"].second[0], "one tensor stays one"
        torch.testing.assert_close(seen["pair"].first, wanted["pair"].first)
        torch.testing.assert_close(seen["pair"].second[1], wanted["pair"].second[1])
        torch.testing.assert_close(seen["given"].value, wanted["given"].value)
    assert wrapper.counters.captures == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((torch.randn(1, 4),), {}, r"\(3, 4\) torch.float32 on cpu.* as args\[0\]; this call gives \(1, 4\)"),
        ((torch.randn(3, 4).double(),), {}, "torch.float64"),
        ((torch.randn(3, 4), 2.0), {}, r"its other arguments; this call gives \(\(tensor, 2.0\)"),
        ((torch.randn(3, 4),), {"scale": 1.0}, "its other arguments"),
        ((torch.randn(3, 4),), {"mask": torch.ones(3)}, "mask: tensor"),
        ((torch.randn(3, 4),), {"mask": object()}, "a object, which may hold tensors"),
        ((torch.randn(3, 4).to_sparse(),), {}, "a sparse or quantized tensor"),
    ],
)
@pytest.mark.parametrize("copy_inputs", [True, False])
def test_a_call_that_is_not_the_captured_one(args: Any, kwargs: Any, words: str, copy_inputs: bool) -> None:
    wrapper = wrapped(copy_inputs=copy_inputs)
    called(wrapper, torch.randn(3, 4))
    with pytest.raises(errors.ReplayArgumentsDiffer, match=words):
        called(wrapper, *args, descriptor=of(3), **kwargs)


def test_the_order_of_keywords_and_the_memory_of_tensors_do_not_matter_to_copies() -> None:
    wrapper = wrapped()
    called(wrapper, torch.randn(3, 4), scale=2.0, mask=torch.ones(3))
    x, mask = torch.randn(4, 3).t(), torch.rand(3)
    with closed():
        seen = called(wrapper, x, mask=mask, scale=2.0)
    torch.testing.assert_close(seen, wrapper.unwrap()(x, 2.0, mask))


@pytest.mark.parametrize("by_name", [False, True])
def test_addresses_that_drift(by_name: bool) -> None:
    wrapper = wrapped(copy_inputs=False)
    x, mask = torch.randn(3, 4), torch.ones(3)

    def call(x: torch.Tensor, mask: torch.Tensor) -> Any:
        args, kwargs = ((x,), {"mask": mask}) if by_name else ((x, 1.0, mask), {})
        return called(wrapper, *args, **kwargs)

    call(x, mask)
    x.copy_(torch.randn(3, 4))
    torch.testing.assert_close(call(x, mask), wrapper.unwrap()(x, 1.0, mask))
    with pytest.raises(AssertionError) as caught:
        call(x, mask.clone())
    wording = f"Input addresses for cudagraphs are different during replay. Expected {mask.data_ptr()}, got "
    assert str(caught.value).startswith(wording) and isinstance(caught.value, errors.InputAddressesDiffer)
    assert ("at mask of" if by_name else "at args[2] of") in str(caught.value)
    with pytest.raises(errors.InputAddressesDiffer, match=r"args\[0\]"):
        call(x.clone(), mask)
    with pytest.raises(errors.ReplayArgumentsDiffer, match="strides"):
        call(x.view(4, 3).t(), mask)


@pytest.mark.parametrize("write", [lambda x: x.add_(1), lambda x: x.relu_()])
def test_arguments_that_are_written(write: Callable[[torch.Tensor], torch.Tensor]) -> None:
    backend = FakeBackend()
    x = torch.rand(3, 4)  # relu_ leaves these values as they are
    with pytest.raises(errors.CaptureFailed, match=r"writes to args\[0\].*copy_inputs=False"):
        called(wrapped(lambda x: write(x) * 2, backend=backend), x)
    assert backend.bytes == 0
    wrapper, wanted = wrapped(lambda x: write(x) * 2, copy_inputs=False), x.clone()
    for _ in range(3):
        seen = called(wrapper, x)
        assert torch.equal(seen, write(wanted) * 2) and torch.equal(x, wanted)


def test_what_the_runnable_counts_is_not_counted_by_the_capture() -> None:
    total = torch.zeros(4)

    def counts(x: torch.Tensor) -> torch.Tensor:
        return total.add_(x.sum(0)) * 1

    wrapper, wanted = wrapped(counts, state=(total,)), torch.zeros(4)
    for _ in range(3):
        x = torch.randn(3, 4)
        wanted += x.sum(0)
        torch.testing.assert_close(called(wrapper, x), wanted)


def test_a_backend_with_memory_of_its_own() -> None:
    x = torch.randn(3, 4)
    wrapper = wrapped(backend=FakeBackend(overwrite_inputs=True))
    for _ in range(2):
        torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    with pytest.raises(errors.CaptureFailed, match="copy_inputs has to be True"):
        called(wrapped(backend=FakeBackend(overwrite_inputs=True), copy_inputs=False), x)


def test_gradients_and_inference_mode() -> None:
    wrapper = wrapped()
    with torch.enable_grad():
        with pytest.raises(call_errors.RequiresGrad, match=r"args\[0\] requires grad"):
            called(wrapper, torch.randn(3, 4, requires_grad=True))
        assert not called(wrapper, torch.randn(3, 4)).requires_grad
        with pytest.raises(call_errors.RequiresGrad):
            called(wrapper, torch.randn(3, 4, requires_grad=True))
    called(wrapper, torch.randn(3, 4, requires_grad=True))
    fresh = wrapped()
    with torch.inference_mode():
        called(fresh, torch.randn(3, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(called(fresh, x), fresh.unwrap()(x))


def test_autocast_is_part_of_the_call() -> None:
    wrapper = wrapped()
    x = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
        assert called(wrapper, x).dtype is torch.bfloat16
    with pytest.raises(errors.ReplayArgumentsDiffer, match=r"captured with \(torch.bfloat16, None\) as autocast"):
        called(wrapper, x)


def test_inference_tensors_whose_addresses_count() -> None:
    with torch.inference_mode():
        x = torch.randn(3, 4)
        wrapper = wrapped(copy_inputs=False)
        for _ in range(2):
            torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    assert wrapper.counters.calls_capture == 2


def test_within_torch_compile_it_is_the_runnable() -> None:
    wrapper = wrapped()
    x = torch.randn(3, 4)
    with forward_context("FULL", of(3)):
        seen = torch.compile(lambda x: wrapper(x) + 1, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(seen, wrapper.unwrap()(x) + 1)
    assert not wrapper.entries


# -- results


def test_copies_are_the_callers() -> None:
    wrapper = wrapped()
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    first = called(wrapper, x)
    called(wrapper, y)
    torch.testing.assert_close(first, wrapper.unwrap()(x))
    assert is_current(first) and check_current(first) is first


def test_static_results_know_when_they_are_stale() -> None:
    backend = FakeBackend()
    wrapper, other = (wrapped(backend=backend, outputs="static") for _ in range(2))
    x = torch.randn(3, 4)
    with backend.session() as session:
        for rows in (3, 2):
            called(wrapper, torch.randn(rows, 4), session=session)
        called(other, torch.randn(2, 4), session=session)
    first = called(wrapper, x)
    view = first[1:]
    assert is_current(first) and is_current(view)
    torch.testing.assert_close(first, wrapper.unwrap()(x))
    second = called(wrapper, torch.randn(3, 4))
    assert first.data_ptr() == second.data_ptr() and is_current(second)
    assert not is_current(first) and not is_current(view)
    with pytest.raises(errors.StaleOutput, match=r"shape \(3, 4\).*after 1 further"):
        check_current(first)
    called(other, torch.randn(2, 4))  # another wrapper in the same memory
    assert not is_current(second) and second.isnan().all()
    with pytest.raises(errors.StaleOutput):
        check_current(second)
    assert is_current(second.clone()) and is_current(torch.randn(2))


class Foreign:
    """A backend whose sessions have only what the interface has."""

    def __init__(self) -> None:
        self.name, self._fake = "foreign", FakeBackend()

    def session(self) -> Any:
        fake = self._fake.session()

        class Session:
            bytes = 0

            def __enter__(self) -> Session:
                self._inner = fake.__enter__()
                return self

            def __exit__(self, *problem: Any) -> Any:
                return fake.__exit__(*problem)

            def capture(self, job: Any) -> Any:
                return self._inner.capture(job)

            def release(self) -> None:
                self._inner.release()

        return Session()


def test_a_session_with_only_the_interface() -> None:
    wrapper = wrapped(backend=Foreign(), outputs="static")
    x = torch.randn(3, 4)
    first = called(wrapper, x)
    assert is_current(first)
    torch.testing.assert_close(first, wrapper.unwrap()(x))
    called(wrapper, x)
    assert not is_current(first)


def test_a_result_that_may_hide_tensors() -> None:
    class Hides:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    with pytest.raises(errors.CaptureFailed, match="Hides, which may hold tensors"):
        called(wrapped(lambda x: Hides(x * 2)), torch.randn(3, 4))


# -- weights


def moved(module: nn.Module) -> None:
    module.a.weight.data = torch.randn(8, 4)  # type: ignore[union-attr]


def replaced(module: nn.Module) -> None:
    module.a.weight = nn.Parameter(torch.randn(8, 4))  # type: ignore[union-attr]


@pytest.mark.parametrize("bound", [lambda net: net, lambda net: net.forward])
@pytest.mark.parametrize("change", [moved, replaced])
def test_weights_elsewhere_make_a_graph_stale(bound: Callable[[Net], Any], change: Callable[[Net], None]) -> None:
    net = Net().eval()
    wrapper = wrapped(bound(net))
    x = torch.randn(3, 4)
    called(wrapper, x)
    net.a.weight.copy_(torch.randn(8, 4))
    with wrapper.counters.expect(stale=0, calls_capture=1):
        torch.testing.assert_close(called(wrapper, x), net(x))
    change(net)
    with closed(), wrapper.counters.expect(stale=1, calls_capture=0, calls_program=1):
        torch.testing.assert_close(called(wrapper, x), net(x))
    wrapper.release()
    with wrapper.counters.expect(stale=0, captures=1, calls_capture=1):
        torch.testing.assert_close(called(wrapper, x), net(x))


def test_weights_of_a_function() -> None:
    weight = torch.randn(4)
    wrapper = wrapped(lambda x: x * weight, weights=(weight,))
    x = torch.randn(3, 4)
    called(wrapper, x)
    weight.data = torch.randn(4)
    assert torch.equal(called(wrapper, x), x * weight) and wrapper.counters.stale == 1


# -- failures


def test_a_forbidden_operator_is_an_error_with_its_name() -> None:
    backend = FakeBackend()
    wrapper = wrapped(lambda x: x * x.max().item(), backend=backend)
    with pytest.raises(RuntimeError, match=r"cannot be captured for \(batch=3\): aten._local_scalar_dense"):
        called(wrapper, torch.randn(3, 4))
    assert not wrapper.entries and backend.bytes == 0 and wrapper.counters.captures == 0
    x = torch.randn(3, 4)
    assert torch.equal(called(wrapper, x, mode="NONE"), x * x.max())


def test_out_of_memory_halfway_leaves_the_rest() -> None:
    backend = FakeBackend(out_of_memory_at=2)
    wrapper = wrapped(backend=backend)
    with backend.session() as session:
        called(wrapper, torch.randn(8, 4), session=session)
        with pytest.raises(errors.CaptureFailed, match=r"\(batch=4\): out of memory"):
            called(wrapper, torch.randn(4, 4), session=session)
        called(wrapper, torch.randn(2, 4), session=session)
    with closed():
        for rows in (2, 8):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    assert list(wrapper.entries) == [of(8), of(2)]


@pytest.mark.parametrize("copy_inputs", [True, False])
def test_an_interrupt_in_the_middle(copy_inputs: bool) -> None:
    backend = FakeBackend(interrupt_at=2)
    wrapper = wrapped(backend=backend, copy_inputs=copy_inputs)
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    called(wrapper, x)
    kept = backend.bytes
    with pytest.raises(KeyboardInterrupt):
        called(wrapper, y)
    assert backend.bytes == kept and list(wrapper.entries) == [of(3)] and not inside_capture()
    for one in (x, y):
        torch.testing.assert_close(called(wrapper, one), wrapper.unwrap()(one))


def test_release_and_a_session_that_is_gone() -> None:
    backend = FakeBackend()
    wrapper = wrapped(backend=backend)
    with backend.session() as session:
        for rows in (3, 2):
            called(wrapper, torch.randn(rows, 4), session=session)
    wrapper.release()
    assert backend.bytes == 0 and not wrapper.entries
    with closed(), pytest.raises(errors.CapturingDisabled):
        called(wrapper, torch.randn(3, 4))


def test_graphs_that_went_with_their_session_are_captured_again() -> None:
    backend = FakeBackend(out_of_memory_at=2)
    wrapper = wrapped(backend=backend)
    with pytest.raises(errors.CaptureFailed), backend.session() as session:
        for rows in (8, 4):
            called(wrapper, torch.randn(rows, 4), session=session)
    assert backend.bytes == 0
    x = torch.randn(8, 4)
    with closed(), pytest.raises(errors.CapturingDisabled):
        called(wrapper, x)
    for _ in range(2):
        torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    assert wrapper.counters.captures == 2 and backend.bytes > 0


def test_threads_share_one_graph() -> None:
    wrapper = wrapped()
    wrong: list[Any] = []

    def call() -> None:
        with torch.no_grad():
            for _ in range(30):
                x = torch.randn(3, 4)
                if not torch.allclose(called(wrapper, x), wrapper.unwrap()(x)):
                    wrong.append(x)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and wrapper.counters.captures == 1 and wrapper.counters.calls_capture == 120


# -- as an object


def test_attributes_are_the_runnables() -> None:
    wrapper = wrapped()
    assert wrapper.label == "net" and wrapper.a is wrapper.unwrap().a and hasattr(wrapper, "state_dict")
    assert not hasattr(wrapper, "nothing") and getattr(wrapper, "nothing", 3) == 3
    with pytest.raises(AttributeError) as caught:
        wrapper.nothing
    assert str(caught.value).startswith("Attribute nothing not exists in the runnable of cudagraph wrapper")
    assert isinstance(caught.value, errors.MissingInRunnable) and "Net" in str(caught.value)
    with pytest.raises(errors.MissingInRunnable, match="Attribute broken") as caught:
        wrapped(Fails()).broken
    assert "no_such_thing" in str(caught.value.__cause__)
    with pytest.raises(errors.MissingInRunnable):
        CUDAGraphWrapper.__new__(CUDAGraphWrapper).label


def test_copies_pickles_and_repr() -> None:
    wrapper = wrapped()
    x = torch.randn(3, 4)
    called(wrapper, x)
    other = copy.deepcopy(wrapper)
    assert type(other) is CUDAGraphWrapper and not other.entries and other.unwrap() is not wrapper.unwrap()
    other.unwrap().a.weight.zero_()
    torch.testing.assert_close(called(other, x), other.unwrap()(x))
    torch.testing.assert_close(called(wrapper, x), wrapper.unwrap()(x))
    with pytest.raises(state_errors.NotPicklable):
        pickle.dumps(wrapper)
    assert repr(wrapper) == "<CUDAGraphWrapper of Net, FULL, 1 graph(s)>"


def test_the_package_exports_lazily() -> None:
    names = sizewise.graphs.__all__
    assert names == sorted(names) and set(names) == set(sizewise.graphs._HOMES)
    assert all(getattr(sizewise.graphs, name) is not None for name in names)
    with pytest.raises(AttributeError, match="nope"):
        sizewise.graphs.nope
    code = "import sys, sizewise.graphs; assert 'torch' not in sys.modules; "
    code += "from sizewise.graphs import CUDABackend, CUDAGraphWrapper, FakeBackend; import torch; "
    code += "assert not torch.cuda.is_initialized(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "platformdirs", "filelock", "typer", "rich", "torch._dynamo"} & set(done.stdout.split())


# -- the profiling run


def test_a_profiling_run_says_how_long_it_took(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    counters.add("compilations", 3)
    with caplog.at_level(logging.INFO, logger="sizewise"), monitor.profiling_run(counters):
        pass
    (line,) = caplog.messages
    assert line.startswith("Initial profiling/warmup run took 0.") and line.endswith(" s")


@pytest.mark.parametrize("what", ["traces", "compilations"])
def test_nothing_compiles_in_a_profiling_run(what: str, caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    with caplog.at_level(logging.INFO, logger="sizewise"), pytest.raises(AssertionError) as caught:
        with monitor.profiling_run(counters):
            counters.add(what)
    wording = (
        "backend compilation occurred during the initial profiling run; all compilation should be complete before the "
        "profiling run starts"
    )
    assert str(caught.value).startswith(wording) and isinstance(caught.value, errors.CompiledInProfilingRun)
    assert not caplog.messages
    with pytest.raises(KeyError), monitor.profiling_run(counters):
        raise KeyError
