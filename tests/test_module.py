"""The compiled module: what it computes, what it refuses, what it counts. Pieces run in eager unless marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import sizewise
from benchmarks.models import ATTENTION, decoder, minilm, minilm_inputs
from sizewise import Dim
from sizewise.errors import call as call_errors
from sizewise.errors import trace as trace_errors
from sizewise.verify.tolerance import compare, sum_depth

from .small import BATCH, Net, X, ready


def test_every_size_in_range_is_eagers() -> None:
    fast = ready()
    with fast.counters.expect(traces=0, compilations=0, calls_program=16, calls_eager=0):
        for size in range(1, 17):
            x = torch.randn(size, 4)
            torch.testing.assert_close(fast(x), fast.__wrapped__(x))


@pytest.mark.slow
def test_minilm_runs_three_distinct_compiled_pieces() -> None:
    model = minilm()
    batch, seq = Dim("batch", 1, 8), Dim("seq", 1, 32)
    spec = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
    fast = sizewise.compile(model, dynamic_shapes=spec)
    fast.warmup(**minilm_inputs(4, 16))
    report = fast.report()
    assert (report.pieces.total, report.pieces.distinct, report.pieces.compiled) == (7, 3, 3)
    assert model.config._attn_implementation == "sdpa"
    depth = sum_depth(model)
    sizes = [(1, 1), (1, 8), (2, 31), (3, 5), (8, 32), (5, 1)]
    with fast.counters.expect(traces=0, compilations=0, calls_program=len(sizes), calls_eager=0):
        for seed, (rows, length) in enumerate(sizes):
            inputs = minilm_inputs(rows, length, seed)
            with torch.no_grad():
                reference = model(**inputs)
            seen = fast(**inputs)
            assert type(seen) is type(reference)
            assert reference.last_hidden_state.square().mean().sqrt() > 0.1
            assert compare(reference, seen, depth) is None


@pytest.mark.slow
def test_a_24_layer_decoder_runs_three_distinct_compiled_pieces() -> None:
    model = decoder(24)
    dims = {"ids": {0: Dim("batch", 1, 4), 1: Dim("length", 1, 16)}}
    fast = sizewise.compile(model, dynamic_shapes=dims, splitting_ops=[ATTENTION])
    fast.warmup(torch.randint(0, 256, (2, 8)))
    assert (fast.report().pieces.total, fast.report().pieces.distinct) == (25, 3)
    with fast.counters.expect(traces=0, compilations=0, calls_program=3, calls_eager=0):
        for rows, length in [(1, 1), (3, 7), (4, 16)]:
            ids = torch.randint(0, 256, (rows, length))
            with torch.no_grad():
                assert compare(model(ids), fast(ids), sum_depth(model)) is None


@pytest.mark.slow
def test_ranges_and_exact_sizes_are_all_used() -> None:
    fast = sizewise.compile(
        Net().eval(), dynamic_shapes={"x": {0: BATCH}}, compile_sizes=[4], compile_ranges_endpoints=[8]
    )
    fast.warmup(torch.randn(3, 4))
    assert fast.report().pieces.compiled == 3
    for size in range(1, 17):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))


@dataclass
class Out:
    y: Tensor
    n: int
    kind: str = "out"


class Pair(NamedTuple):
    first: Tensor
    second: Any


class Outputs(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        y = x * 2
        return {
            "data": Out(y, x.shape[0]),
            "pair": Pair(y + 1, [x.shape[0] * 2, None, "text", (y.sum(),)]),
            3: x,
            "top": x.topk(2),
        }


def test_outputs_keep_their_classes_keys_and_identity() -> None:
    fast = ready(Outputs())
    x = torch.randn(5, 4)
    seen, reference = fast(x), Outputs()(x)
    assert compare(reference, seen) is None
    assert list(seen) == ["data", "pair", 3, "top"]
    assert isinstance(seen["data"], Out)
    assert seen["data"].n == 5
    assert isinstance(seen["pair"], Pair)
    assert seen[3] is x
    assert type(seen["top"]) is type(reference["top"])


def test_calls_may_be_written_in_any_way() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}, "mask": {0: BATCH}}, backend="eager")
    x, mask = torch.randn(3, 4), torch.rand(3)
    fast.warmup_many([((x,), {}), ((x, mask), {}), ((x,), {"double": True})])
    assert len(fast.report().code.split("def entry")) == 4
    for args, kwargs in [
        ((x,), {}),
        ((x, mask), {}),
        ((), {"mask": mask, "x": x}),
        ((x, None), {"double": True}),
    ]:
        torch.testing.assert_close(fast(*args, **kwargs), fast.__wrapped__(*args, **kwargs))
    with pytest.raises(call_errors.OtherValue):
        fast(x, mask, double=True)


def test_dims_are_inferred_from_calls_that_differ() -> None:
    fast = sizewise.compile(Net().eval(), backend="eager")
    fast.warmup_many([((torch.randn(n, 4),), {}) for n in (2, 9, 5)])
    [(name, dim)] = fast.report().dims.items()
    assert (dim["min"], dim["max"]) == (1, 9)
    fast(torch.randn(1, 4))
    with pytest.raises(call_errors.SizeOutOfRange, match=f"dim '{name}' \\(1 to 9\\)"):
        fast(torch.randn(10, 4))


def test_one_call_without_dims_says_what_to_do() -> None:
    with pytest.raises(trace_errors.NoDynamicDims, match="warmup_many"):
        sizewise.compile(Net().eval(), backend="eager").warmup(torch.randn(3, 4))


def test_an_empty_declaration_is_a_static_program() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={}, backend="eager").warmup(torch.randn(3, 4))
    x = torch.randn(3, 4)
    torch.testing.assert_close(fast(x), fast.__wrapped__(x))
    with pytest.raises(call_errors.WrongShape):
        fast(torch.randn(4, 4))


BAD_CALLS = {
    "too large": (lambda f: f(torch.randn(17, 4)), call_errors.SizeOutOfRange, "SW401"),
    "empty": (lambda f: f(torch.randn(0, 4)), call_errors.SizeOutOfRange, "SW401"),
    "dtype": (lambda f: f(X.double()), call_errors.WrongDtype, "SW402"),
    "device": (lambda f: f(X.to("meta")), call_errors.WrongDevice, "SW403"),
    "static size": (lambda f: f(torch.randn(3, 5)), call_errors.WrongShape, "SW404"),
    "rank": (lambda f: f(torch.randn(3)), call_errors.WrongShape, "SW404"),
    "value": (lambda f: f(X, double=True), call_errors.OtherValue, "SW406"),
    "an int for a bool": (lambda f: f(X, double=0), call_errors.OtherValue, "SW406"),
    "a tensor for None": (lambda f: f(X, torch.ones(3)), call_errors.OtherValue, "SW406"),
    "a number for a tensor": (lambda f: f(3.0), call_errors.OtherValue, "SW406"),
    "grad": (lambda f: f(X.clone().requires_grad_()), call_errors.RequiresGrad, "SW407"),
    "missing": (lambda f: f(), call_errors.BadCall, "SW408"),
    "unknown": (lambda f: f(X, nope=1), call_errors.BadCall, "SW408"),
    "too many": (lambda f: f(X, None, None), call_errors.BadCall, "SW408"),
    "sparse": (lambda f: f(X.to_sparse()), call_errors.NotPlainTensor, "SW410"),
    "subclass": (lambda f: f(X.as_subclass(Sub)), call_errors.NotPlainTensor, "SW410"),
}


class Sub(torch.Tensor):
    pass


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_call_outside_what_was_built_is_named(name: str) -> None:
    call, error, code = BAD_CALLS[name]
    fast = ready()
    with fast.counters.expect(misses=0 if code == "SW408" else 1, calls_program=0, calls_eager=0):
        with pytest.raises(error) as seen:
            call(fast)
    assert seen.value.code == code
    fast(X)


@pytest.mark.parametrize("size", [17, 40])
def test_on_outside_eager_runs_the_original_and_counts(size: int) -> None:
    fast = ready(on_outside="eager")
    x = torch.randn(size, 4)
    with fast.counters.expect(misses=1, calls_eager=1, calls_program=0):
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))


def test_unequal_sizes_of_one_dim_are_named() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}, "mask": {0: BATCH}}, backend="eager")
    fast.warmup(X, torch.ones(3))
    with pytest.raises(call_errors.UnequalDims, match=r"mask\.shape\[0\] is 4, but dim 'batch' is 3 by x\.shape\[0\]"):
        fast(X, torch.ones(4))


def test_other_layouts_of_an_input_are_eagers() -> None:
    fast = ready()
    for x in [torch.randn(4, 3).t(), torch.randn(6, 4)[::2], torch.randn(1, 4).expand(3, 4)]:
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))


AMBIENT = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "the default dtype": lambda: Setting(torch.set_default_dtype, torch.float64, torch.float32),
    "the default device": lambda: torch.device("meta"),
    "deterministic algorithms": lambda: Setting(torch.use_deterministic_algorithms, True, False),
    "the number of threads": lambda: Setting(torch.set_num_threads, 2, 1),
    "float32 matmul precision": lambda: Setting(torch.set_float32_matmul_precision, "medium", "highest"),
}


class Setting:
    """A process-wide setting for the time of a block."""

    def __init__(self, setter: Any, value: Any, before: Any) -> None:
        self.setter, self.value, self.before = setter, value, before

    def __enter__(self) -> None:
        self.setter(self.value)

    def __exit__(self, *_: Any) -> None:
        self.setter(self.before)


@pytest.mark.parametrize("name", AMBIENT)
def test_another_ambient_state_is_named(name: str) -> None:
    fast = ready()
    with AMBIENT[name](), pytest.raises(call_errors.OtherAmbient, match=name):
        fast(X)
    fast(X)


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_grad_and_inference_mode_do_not_matter(context: Any) -> None:
    fast = ready()
    with context():
        seen = fast(X)
        assert torch.is_grad_enabled() is (context is torch.enable_grad)
    assert not seen.requires_grad
    torch.testing.assert_close(seen, fast.__wrapped__(X))


def test_warming_up_inside_inference_mode_serves_outside() -> None:
    with torch.inference_mode():
        fast = ready()
    with torch.no_grad():
        torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_vmap_and_dispatch_modes_run_the_original() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    fast = ready()
    with fast.counters.expect(calls_eager=2, calls_program=0):
        with Count():
            fast(X)
        torch.func.vmap(lambda row: fast(row[None])[0])(X)
    assert Count.calls > 3
