"""What goes wrong with CUDA graphs goes wrong with the fake, and CUDA's own backend makes the documented calls."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from sizewise import monitor
from sizewise.errors import capture as errors
from sizewise.graphs import CannotCapture, CUDABackend, FakeBackend, Job, inside_capture


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
    monitor.set_cudagraph_capturing_enabled(True)


def job(call: Callable[..., Any], *shape: int, weights: tuple[torch.Tensor, ...] = (), **more: Any) -> Job:
    return Job(call, (torch.randn(*shape or (3, 4)),), weights=weights, **more)


def one(call: Callable[..., Any], *shape: int, backend: FakeBackend | None = None, **more: Any) -> Any:
    with (backend or FakeBackend()).session() as session:
        return session.capture(job(call, *shape, **more))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


# -- memory


def test_a_replay_computes_with_what_the_inputs_hold() -> None:
    capture = one(lambda x: (x * 2, [x.sum(-1)]))
    assert capture.result[0].isnan().all(), "a capture computes nothing"
    first = capture.result[0]
    for _ in range(3):
        x = torch.randn(3, 4)
        capture.inputs[0].copy_(x)
        capture.replay()
        assert capture.result[0] is first and torch.equal(first, x * 2)
        torch.testing.assert_close(capture.result[1][0], x.sum(-1))
    assert capture.replays == 3


def test_a_replay_overwrites_the_results_of_its_session_and_of_no_other() -> None:
    backend = FakeBackend()
    with backend.session() as session:
        large, small = session.capture(job(doubled, 8, 4)), session.capture(job(lambda x: (x > 0, x.int()), 2, 4))
    alone = one(doubled, 8, 4, backend=backend)
    for capture in (alone, small, large):
        capture.replay()
    assert torch.equal(large.result, large.inputs[0] * 2) and torch.equal(alone.result, alone.inputs[0] * 2)
    x = small.inputs[0]
    assert torch.equal(small.result[0], x <= 0) and torch.equal(small.result[1], ~x.int())
    small.replay()
    assert large.result.isnan().all() and torch.equal(small.result[0], x > 0)
    assert large.pool is small.pool is not alone.pool
    assert session.bytes == max(large.bytes, small.bytes) == large.bytes
    assert backend.bytes == large.bytes + alone.bytes


def test_weights_are_read_where_they_were() -> None:
    layer = nn.Linear(4, 4)
    capture = one(layer, weights=tuple(layer.parameters()))
    x, moved = capture.inputs[0], torch.randn(4, 4)
    layer.weight.copy_(torch.randn(4, 4))
    old = layer(x)
    capture.replay()
    torch.testing.assert_close(capture.result, old)
    layer.weight.data = moved
    capture.replay()
    torch.testing.assert_close(capture.result, old)
    assert layer.weight.data_ptr() == moved.data_ptr()
    assert not torch.allclose(layer(x), old)


def test_what_is_bound_as_fixed_is_read_where_it_was() -> None:
    weight = torch.ones(4)
    capture = one(lambda held, size, x: x * held[0] * size, fixed=([weight], 3))
    weight.data = torch.zeros(4)
    capture.replay()
    assert torch.equal(capture.result, capture.inputs[0] * 3)


def test_a_packed_call_gets_one_list() -> None:
    capture = one(lambda given: [given[0] + 1], packed=True)
    capture.replay()
    assert torch.equal(capture.result[0], capture.inputs[0] + 1)


def test_results_that_are_inputs_or_weights_stay_what_they_are() -> None:
    bias = torch.randn(4)
    capture = one(lambda x: (x, bias, x + bias), weights=(bias,))
    capture.replay()
    assert capture.result[0] is capture.inputs[0] and capture.result[1] is bias and not bias.isnan().any()


def test_inputs_are_the_jobs_own_or_overwritten() -> None:
    x = torch.randn(3, 4)
    with FakeBackend().session() as session:
        assert session.capture(Job(doubled, (x,))).inputs[0] is x
    with FakeBackend(overwrite_inputs=True).session() as session:
        capture = session.capture(Job(doubled, (x,)))
    kept = x.clone()
    capture.replay()
    assert torch.equal(capture.result, x * 2) and torch.equal(x, kept)
    assert capture.inputs[0] is not x and capture.inputs[0].isnan().all()


def test_a_result_that_changes_its_shape_is_not_replayed() -> None:
    sizes = iter((3, 3, 2))
    capture = one(lambda x: x[: next(sizes)] * 2)
    with pytest.raises(CannotCapture, match=r"of shape \(3, 4\) is \(2, 4\)"):
        capture.replay()


# -- order and counts


def test_what_was_captured_in_which_order() -> None:
    backend = FakeBackend(cudagraph_num_of_warmups=2)
    with backend.session() as session:
        for rows in (16, 8, 1):
            session.capture(job(doubled, rows, 4))
    assert backend.sizes == [((16, 4),), ((8, 4),), ((1, 4),)]
    assert (backend.attempts, backend.warm_ups, len(backend.sessions)) == (3, 6, 1)
    assert not backend.freed and session.bytes == 16 * 4 * 4


def test_a_session_is_given_up_as_a_whole() -> None:
    backend = FakeBackend()
    with backend.session() as session:
        first, second = session.capture(job(doubled, 8, 4)), session.capture(job(doubled, 2, 4))
    first.release()
    with pytest.raises(CannotCapture, match="released"):
        first.replay()
    second.replay()  # shares memory with the first, so that stays
    assert session.bytes and not backend.freed
    second.release()
    second.release()
    assert session.bytes == 0 and backend.freed == [second.pool] and second.result.isnan().all()
    with pytest.raises(CannotCapture, match="released"):
        second.replay()


def test_a_generation_beside_another() -> None:
    backend = FakeBackend()
    old, new = one(doubled, backend=backend), one(doubled, backend=backend)
    new.replay()
    backend.sessions[0].release()
    assert torch.equal(new.result, new.inputs[0] * 2)
    new.replay()
    assert old.released and len(backend.freed) == 1


def test_two_replays_at_one_time() -> None:
    backend = FakeBackend()
    with backend.session() as session:
        inner = session.capture(job(doubled))
        calls: list[Any] = [doubled, doubled, lambda x: inner.replay()]
        outer = session.capture(job(lambda x: calls.pop(0)(x)))
        with pytest.raises(CannotCapture, match="overlap"):
            outer.replay()
        inner.replay()


# -- what no capture can hold


def swallows(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * x.sum().item()
    except Exception:
        return x * 2


@pytest.mark.parametrize(
    ("call", "operator"),
    [
        (lambda x: x * x.sum().item(), "aten._local_scalar_dense.default"),
        (lambda x: x * 2 if x.sum() > 0 else x, "aten._local_scalar_dense.default"),
        (swallows, "aten._local_scalar_dense.default"),
        (lambda x: torch.nonzero(x), "aten.nonzero.default"),
        (lambda x: x[x > 0], "aten.index.Tensor"),
        (lambda x: x.masked_select(x > 0), "aten.masked_select.default"),
        (lambda x: x.unique(), "aten._unique2.default"),
        (lambda x: x * float(torch.equal(x, x)), "aten.equal.default"),
        (lambda x: x + torch.randn_like(x), "aten.randn_like.default"),
        (lambda x: nn.functional.dropout(x, 0.5), "random numbers"),
        (lambda x: torch.bernoulli(x.sigmoid()), "aten.bernoulli.default"),
        (lambda x: one(doubled).result, "a capture within another capture"),
    ],
)
def test_what_is_illegal_is_named(call: Callable[..., Any], operator: str) -> None:
    backend = FakeBackend()
    with backend.session() as session:
        with pytest.raises(CannotCapture, match=operator):
            session.capture(job(call))
        good = session.capture(job(doubled))
    good.replay()
    assert torch.equal(good.result, good.inputs[0] * 2)
    assert backend.captures == [good] and not inside_capture()


@pytest.mark.parametrize("forbidden", ["allocate", "synchronize"])
def test_memory_from_elsewhere_and_waiting(forbidden: str) -> None:
    backend = FakeBackend()
    arguments = (3,) if forbidden == "allocate" else ()
    with pytest.raises(CannotCapture, match="pool" if forbidden == "allocate" else "waits"):
        one(lambda x: (getattr(backend, forbidden)(*arguments), x * 2)[1], backend=backend)
    getattr(backend, forbidden)(*arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[torch.tensor([0, 1])],
        lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0],
        lambda x: nn.functional.dropout(x, 0.5, training=False),
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: x.clone().index_put_((x > 0,), torch.tensor(1.0)),
        lambda x: x.to(torch.float64).cumsum(0).float(),
    ],
)
def test_what_only_looks_illegal(call: Callable[..., Any]) -> None:
    capture = one(call, 4, 4)
    capture.replay()
    torch.testing.assert_close(capture.result, call(capture.inputs[0]))


def test_the_gate() -> None:
    backend = FakeBackend()
    with backend.session() as session:
        monitor.set_cudagraph_capturing_enabled(False)
        with pytest.raises(errors.CapturingDisabled):
            session.capture(job(doubled))
    with pytest.raises(errors.CapturingDisabled), backend.session():
        pass
    assert backend.attempts == 0 and len(backend.sessions) == 1


# -- failures halfway


def test_out_of_memory_halfway() -> None:
    backend = FakeBackend(out_of_memory_at=2)
    with backend.session() as session:
        first = session.capture(job(doubled, 8, 4))
        with pytest.raises(CannotCapture, match="out of memory"):
            session.capture(job(doubled, 4, 4))
        third = session.capture(job(doubled, 2, 4))
    assert first.pool is not third.pool, "a pool in which a capture failed is not used again"
    first.replay()
    third.replay()
    assert torch.equal(first.result, first.inputs[0] * 2) and torch.equal(third.result, third.inputs[0] * 2)
    assert backend.sizes == [((8, 4),), ((2, 4),)] and not backend.freed


def test_a_pool_that_nobody_else_uses_is_freed_with_the_failure() -> None:
    backend = FakeBackend(out_of_memory_at=1)
    with backend.session() as session:
        pool = session.pool
        with pytest.raises(CannotCapture):
            session.capture(job(doubled))
    assert backend.freed == [pool] and session.bytes == 0


def test_an_error_of_the_call_and_an_interrupt() -> None:
    backend = FakeBackend(interrupt_at=3)

    def fails(x: torch.Tensor) -> torch.Tensor:
        if inside_capture() and backend.warm_ups % 2:
            return x @ x
        return x

    with pytest.raises(KeyboardInterrupt), backend.session() as session:
        kept = session.capture(job(doubled))
        with pytest.raises(CannotCapture, match="RuntimeError: mat1 and mat2"):
            session.capture(job(lambda x: x if backend.warm_ups < 2 else x @ x))
        session.capture(job(doubled))
    assert kept.released and session.bytes == 0 and not inside_capture()
    again = one(fails, 4, 4, backend=backend)  # the backend is of use after it
    again.replay()


# -- CUDA's backend, on a stand-in for torch.cuda; the real one is exercised by scripts/gpu_check.py


class StandIn:
    """What CUDABackend uses of torch.cuda, writing down each call."""

    def __init__(self, **fails: Any) -> None:
        self.log: list[Any] = []
        self.reserved, self.capturing = 0, False
        self.fails, self.pools = fails, 0
        self.current = SimpleNamespace(
            name="default", wait_stream=self.note("wait"), wait_event=self.note("wait event")
        )
        self.default = self.current
        stand_in = self

        class CUDAGraph:
            def __init__(self) -> None:
                self.reset, self.replay = stand_in.note("reset"), stand_in.note("replay")

        self.CUDAGraph = CUDAGraph

    def note(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self.log.append((name, *args))

    def is_available(self) -> bool:
        return True

    def Stream(self) -> Any:
        return SimpleNamespace(name="side", wait_stream=self.note("side waits"))

    def Event(self) -> Any:
        return SimpleNamespace(record=self.note("record"))

    def current_stream(self, device: Any = None) -> Any:
        return self.current

    def set_stream(self, stream: Any) -> None:
        self.current = stream

    def synchronize(self) -> None:
        self.log.append("synchronize")
        assert not self.capturing

    def empty_cache(self) -> None:
        self.log.append("empty_cache")

    def memory_stats(self) -> dict[str, int]:
        return {"reserved_bytes.all.current": self.reserved}

    def mem_get_info(self) -> tuple[int, int]:
        return 10**6 - 2 * self.reserved, 10**6

    def graph_pool_handle(self) -> str:
        self.pools += 1
        return f"pool {self.pools}"

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        yield

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def graph(self, graph: Any, *, pool: str, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self.log.append(("graph", pool, stream.name, capture_error_mode))
        self.current, self.capturing = stream, True
        try:
            yield
            failed = self.fails.pop(pool, None)
            if failed is not None:
                raise failed
            self.reserved += 100
        finally:
            self.capturing = False
            if self.fails.pop("end", None):  # as the end of a broken capture: its stream stays the current one
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            self.current = self.default


def cuda(**fails: Any) -> tuple[StandIn, CUDABackend]:
    stand_in = StandIn(**fails)
    return stand_in, CUDABackend(cuda=stand_in, kind="cpu")


def test_cuda_captures_on_one_stream_into_one_pool() -> None:
    stand_in, backend = cuda()
    with backend.session() as session:
        assert not gc.isenabled()
        large, small = session.capture(job(doubled, 8, 4)), session.capture(job(doubled, 2, 4))
    assert gc.isenabled()
    graphs = [line for line in stand_in.log if line[0] == "graph"]
    assert graphs == [("graph", "pool 1", "side", "thread_local")] * 2
    assert stand_in.current is stand_in.default
    assert (large.bytes, session.bytes, session.device_bytes) == (100, 200, 400)
    with session.turn():
        small.replay()
    assert stand_in.log[-3:] == [("wait event", session._done), ("replay",), ("record", stand_in.default)]
    assert session.clock.now == 1


@pytest.mark.parametrize("warmups", [0, 1, 3])
def test_cuda_warms_up_before_it_captures(warmups: int) -> None:
    stand_in = StandIn()
    seen: list[tuple[str, bool]] = []
    with CUDABackend(cudagraph_num_of_warmups=warmups, cuda=stand_in, kind="cpu").session() as session:
        session.capture(job(lambda x: seen.append((stand_in.current.name, stand_in.capturing)) or x * 2))
    assert seen == [("side", False)] * warmups + [("side", True)]


def test_cuda_gives_captures_up_together() -> None:
    stand_in, backend = cuda()
    with backend.session() as session:
        first, second = session.capture(job(doubled, 8, 4)), session.capture(job(doubled, 2, 4))
    first.release()
    assert ("reset",) not in stand_in.log
    with pytest.raises(CannotCapture, match="released"):
        first.replay()
    second.release()
    assert stand_in.log.count(("reset",)) == 2 and session.bytes == 0 and first.result is None
    session.release()
    assert stand_in.log.count(("reset",)) == 2


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "^out of memory: .*Tried$"),
        (RuntimeError("CUDA error: operation not permitted"), "^RuntimeError: CUDA error: operation not permitted$"),
    ],
)
@pytest.mark.parametrize("end", [False, True])
def test_a_failed_cuda_capture_drops_its_pool(problem: Exception, words: str, end: bool) -> None:
    stand_in, backend = cuda(end=end)
    calls = iter([None, problem])

    def fails(x: torch.Tensor) -> torch.Tensor:
        failure = next(calls, None)
        if failure is not None:
            raise failure
        return x * 2

    with backend.session() as session:
        stand_in.fails["end"] = False
        first = session.capture(job(doubled))
        stand_in.fails["end"] = end
        with pytest.raises(CannotCapture, match=words):
            session.capture(job(fails))
        assert stand_in.current is stand_in.default, "not the stream of the capture"
        assert stand_in.log.count(("reset",)) == 1
        session.capture(job(doubled))
        first.replay()
    assert [line[1] for line in stand_in.log if line[0] == "graph"] == ["pool 1", "pool 1", "pool 2"]


def test_a_failed_cuda_capture_names_the_operator() -> None:
    stand_in, backend = cuda()

    def waits(x: torch.Tensor) -> torch.Tensor:
        value = x.sum().item()
        if stand_in.capturing:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return x * value

    with backend.session() as session, pytest.raises(CannotCapture) as caught:
        session.capture(job(waits))
    assert str(caught.value).startswith("aten._local_scalar_dense.default reads a value on the host")
    assert "operation not permitted" in str(caught.value)


@pytest.mark.parametrize("end", [False, True])
def test_an_interrupt_in_a_cuda_capture(end: bool) -> None:
    stand_in, backend = cuda()
    runs: list[int] = []

    def pressed(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        if stand_in.capturing:
            stand_in.fails["end"] = end
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt), backend.session() as session:
        kept = session.capture(job(doubled))
        session.capture(job(pressed))
    assert kept.released and stand_in.log.count(("reset",)) == 2 and session.bytes == 0
    assert gc.isenabled() and not inside_capture() and stand_in.current is stand_in.default


def test_a_nested_cuda_capture_and_other_devices() -> None:
    _, backend = cuda()
    with backend.session() as session:
        with pytest.raises(CannotCapture, match="within another"):
            session.capture(job(lambda x: session.capture(job(doubled)).result))
        with pytest.raises(CannotCapture, match="cpu, meta"):
            session.capture(Job(doubled, (torch.ones(2),), weights=(torch.ones(2, device="meta"),)))
    with CUDABackend(cuda=StandIn()).session() as session, pytest.raises(CannotCapture, match="on one GPU"):
        session.capture(job(doubled))


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(CannotCapture, match="no CUDA device"), CUDABackend().session():
        pass


def test_the_collector_stays_as_it_was() -> None:
    _, backend = cuda()
    gc.disable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    try:
        with backend.session():
            pass
        assert not gc.isenabled() and gc.get_freeze_count() == frozen
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_signatures_that_it_uses_are_torchs() -> None:
    names = set(inspect.signature(torch.cuda.graph.__init__).parameters)
    assert {"cuda_graph", "pool", "stream", "capture_error_mode"} <= names
    calls = "CUDAGraph Stream Event current_stream set_stream synchronize empty_cache memory_stats mem_get_info"
    more = "graph_pool_handle device stream graph is_available is_initialized is_current_stream_capturing"
    assert not [name for name in f"{calls} {more}".split() if not hasattr(torch.cuda, name)]
