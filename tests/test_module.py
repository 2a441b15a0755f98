"""The compiled module: what it computes, what it refuses, what it counts. Pieces run in eager unless marked."""

from __future__ import annotations

import copy
import pickle
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import sizewise
from benchmarks.models import ATTENTION, decoder, minilm, minilm_inputs
from sizewise import CompiledModule, Dim
from sizewise.errors import call as call_errors
from sizewise.errors import state as state_errors
from sizewise.errors import trace as trace_errors
from sizewise.verify.tolerance import compare, sum_depth

BATCH = Dim("batch", 1, 16)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)
        self.register_buffer("shift", torch.ones(4))
        self.label = "net"

    def forward(self, x: Tensor, mask: Tensor | None = None, *, double: bool = False) -> Tensor:
        y = self.b(self.a(x).relu()) + self.shift
        y = y if mask is None else y * mask[:, None]
        return y * 2 if double else y


def ready(module: nn.Module | None = None, **options: Any) -> CompiledModule:
    module = (module or Net()).eval()
    fast: CompiledModule = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager", **options)
    return fast.warmup(torch.randn(3, 4))


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


X = torch.randn(3, 4)
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


# -- weights


def test_loading_in_place_is_seen_at_once() -> None:
    fast = ready()
    fast.load_state_dict({name: torch.randn_like(value) for name, value in fast.state_dict().items()})
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_replaced_weights_of_the_same_layout_are_used() -> None:
    fast = ready()
    module = fast.__wrapped__
    fresh = {name: torch.randn_like(value) for name, value in module.state_dict().items()}
    module.load_state_dict(fresh, assign=True)
    torch.testing.assert_close(fast(X), module(X))
    module.a.weight.data = torch.randn(8, 4)
    torch.testing.assert_close(fast(X), module(X))
    module.shift = torch.randn(4)
    torch.testing.assert_close(fast(X), module(X))


CHANGES = {
    "dtype of one": lambda m: setattr(m.a.weight, "data", m.a.weight.data.double()),
    "dtype of all": lambda m: m.double(),
    "layout": lambda m: setattr(m.a.weight, "data", torch.randn(4, 8).t()),
    "shape": lambda m: setattr(m.b, "weight", nn.Parameter(torch.randn(6, 8))),
    "device": lambda m: m.to("meta"),
    "removed": lambda m: delattr(m, "shift"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_of_another_layout_are_stale(change: str) -> None:
    fast = ready()
    CHANGES[change](fast.__wrapped__)
    with fast.counters.expect(stale=1), pytest.raises(state_errors.Stale, match=r"at warm-up|removed"):
        fast(X)


def test_refresh_builds_for_the_module_as_it_is() -> None:
    fast = ready(on_stale="eager")
    fast.double()
    with fast.counters.expect(stale=1, calls_eager=1), pytest.raises(RuntimeError):
        fast(X)  # the original, in double, with a float input: torch's own error
    with pytest.raises(sizewise.SizewiseError):
        fast.refresh()  # the example it was warmed up with is a float as well
    fast.float()
    torch.testing.assert_close(fast.refresh()(X), fast.__wrapped__(X))


# -- states


def test_states_in_order() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    assert fast.state == "new"
    states: list[str] = []
    fast.warmup_many([((X,), {})], progress=lambda event: states.append(fast.state))
    assert set(states) == {"warming"}
    assert fast.state == "ready"
    fast.reset()
    assert fast.state == "new"
    fast(X)
    assert fast.state == "ready"
    fast.close()
    assert fast.state == "closed"
    for use in (lambda: fast(X), lambda: fast.warmup(X), fast.reset):
        with pytest.raises(state_errors.Closed):
            use()


def test_a_failed_warmup_leaves_it_new_and_usable() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with pytest.raises(sizewise.SizewiseError):
        fast.warmup(torch.randn(3, 5))
    assert fast.state == "new"
    fast.warmup(X)
    assert fast.state == "ready"


def test_an_interrupted_warmup_leaves_it_new_and_usable() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")

    def interrupt(event: Any) -> None:
        if event.name == "compile.start":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fast.warmup_many([((X,), {})], progress=interrupt)
    assert fast.state == "new"
    fast.warmup(X)
    torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_the_first_call_warms_up_unless_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    with pytest.raises(state_errors.NotWarm):
        fast(X)
    monkeypatch.delenv("SIZEWISE_REQUIRE_WARM")
    with fast.counters.expect(traces=1, calls_program=1):
        torch.testing.assert_close(fast(X), fast.__wrapped__(X))


def test_racing_first_calls_build_once() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    results: list[tuple[Tensor, Tensor]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        for size in range(1, 17):
            x = torch.randn(size, 4)
            results.append((fast(x), x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    with fast.counters.expect(traces=1, calls_program=64):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    for seen, x in results:
        torch.testing.assert_close(seen, fast.__wrapped__(x))


def test_a_module_in_training_is_refused_before_and_after() -> None:
    with pytest.raises(trace_errors.TrainingMode, match="Dropout"):
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
        net[1].train()
        ready_net = sizewise.compile(net, dynamic_shapes={"input": {0: BATCH}}, backend="eager")
        ready_net.warmup(X)
    fast = ready()
    fast.__wrapped__.train()
    with pytest.raises(trace_errors.TrainingMode):
        fast(X)


def test_more_programs_than_allowed_are_refused() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager", max_programs=1)
    with pytest.raises(state_errors.TooManyPrograms, match="max_programs=1"):
        fast.warmup_many([((X,), {}), ((X,), {"double": True})])


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


def test_warming_up_leaves_buffers_as_they_were_and_calls_write_them() -> None:
    module = Stateful().eval()
    module.total.fill_(3.0)
    fast = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager").warmup(X)
    assert torch.equal(module.total, torch.full((4,), 3.0))
    reference = copy.deepcopy(module)
    for size in (2, 5, 1):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), reference(x))
    torch.testing.assert_close(module.total, reference.total)


class Writes(nn.Module):
    def forward(self, x: Tensor, out: Tensor) -> Tensor:
        out.copy_(x * 2)
        return out + 1


def test_an_argument_that_is_written_is_written_or_refused() -> None:
    dims = {"x": {0: BATCH}, "out": {0: BATCH}}
    fast = sizewise.compile(Writes().eval(), dynamic_shapes=dims, backend="eager")
    fast.warmup(X, torch.empty(3, 4))
    out = torch.zeros(5, 4)
    x = torch.randn(5, 4)
    fast(x, out)
    torch.testing.assert_close(out, x * 2)
    with pytest.raises(call_errors.WrittenInputLayout, match="not contiguous"):
        fast(x, torch.zeros(4, 5).t())
    with pytest.raises(call_errors.WrittenInputLayout, match="shares memory"):
        base = torch.zeros(10, 4)
        fast(base[:5], base[5:])


class WritesAndReturns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu_()


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_module_that_only_writes_its_argument(backend: str) -> None:
    fast = sizewise.compile(WritesAndReturns().eval(), dynamic_shapes={"x": {0: BATCH}}, backend=backend).warmup(X)
    x = torch.randn(5, 4)
    wanted = x.relu()
    assert fast(x) is x
    assert torch.equal(x, wanted)


# -- the face of the original


def test_it_is_a_module_with_the_originals_face() -> None:
    module = Net().eval()
    fast = ready(module)
    assert isinstance(fast, nn.Module)
    assert fast.__wrapped__ is module
    assert list(fast.state_dict()) == list(module.state_dict())
    assert fast.a is module.a
    assert fast.label == "net"
    fast.label = "changed"
    assert module.label == "changed"
    assert dict(fast.named_parameters()).keys() == dict(module.named_parameters()).keys()
    assert "state" in dir(fast)
    with pytest.raises(AttributeError, match="nope"):
        fast.nope
    assert not hasattr(fast, "nope")


def test_training_pickling_and_replicas_are_refused() -> None:
    fast = ready()
    with pytest.raises(state_errors.TrainRefused):
        fast.train()
    assert fast.eval() is fast
    assert not fast.training
    with pytest.raises(state_errors.NotPicklable):
        pickle.dumps(fast)


def test_a_deepcopy_is_its_own_and_not_warm() -> None:
    fast = ready()
    other = copy.deepcopy(fast)
    assert other.state == "new"
    assert other.a.weight is not fast.a.weight
    torch.testing.assert_close(other(X), fast(X))


class Generates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1

    def generate(self) -> str:
        return "original"

    def encode(self, x: Tensor) -> Tensor:
        return self(x) * 2


def test_generate_is_refused_by_name() -> None:
    fast = ready(Generates())
    with pytest.raises(state_errors.GenerateRefused, match="inplace=True"):
        fast.generate()
    assert fast.__wrapped__.generate() == "original"


# -- the forms


def test_a_function_and_both_decorators() -> None:
    def double(x: Tensor) -> Tensor:
        """Twice x."""
        return x * 2

    options: dict[str, Any] = {"dynamic_shapes": {"x": {0: BATCH}}, "backend": "eager"}
    direct = sizewise.compile(double, **options)
    decorated = sizewise.compile(**options)(double)
    for form in (direct, decorated):
        assert torch.equal(form(X), X * 2)
        assert form.__name__ == "double"
    bare = sizewise.compile(double)
    assert torch.equal(bare.warmup_many([((X,), {}), ((torch.randn(5, 4),), {})])(X), X * 2)


def test_a_bound_method() -> None:
    module = Generates().eval()
    fast = sizewise.compile(module.encode, dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    assert torch.equal(fast(X), (X + 1) * 2)


def test_in_place_keeps_the_instance_and_its_hooks() -> None:
    module = Net().eval()
    reference = copy.deepcopy(module)
    same = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager", inplace=True)
    assert same is module
    torch.testing.assert_close(module(X), reference(X))
    assert module.forward.compiled.counters.calls_program == 1
    with pytest.raises(state_errors.NotPicklable):
        pickle.dumps(module)
    seen: list[int] = []
    module.register_forward_hook(lambda *_: seen.append(1))
    module(X)
    assert seen == [1]


def test_a_class_gives_compiled_instances() -> None:
    @sizewise.compile(dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    class Mine(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            return self.lin(x) * self.factor

    instance = Mine(3.0).eval()
    torch.testing.assert_close(instance(X), instance.lin(X) * 3.0)
    assert instance.forward.compiled.counters.calls_program == 1
    assert Mine.__name__ == "Mine"


def test_disable_gives_the_target_back() -> None:
    module = Net()
    assert sizewise.compile(module, disable=True) is module


@pytest.mark.parametrize("target", [3, "model", len, object()])
def test_what_is_no_target_is_refused(target: Any) -> None:
    with pytest.raises(state_errors.BadTarget):
        sizewise.compile(target)


@pytest.mark.parametrize(
    "option",
    [{"on_outside": "ignore"}, {"on_stale": "maybe"}, {"outputs": "view"}, {"on_miss": "eager"}],
)
def test_a_wrong_option_lists_the_right_ones(option: dict[str, Any]) -> None:
    with pytest.raises(state_errors.BadOption, match="is not one of"):
        sizewise.compile(Net(), **option)


@pytest.mark.parametrize(
    "option",
    [
        {"persistent": ["cache"]},
        {"pad_values": {"x": 0}},
        {"outputs": "static"},
        {"on_miss": "error"},
        {"decode": {}},
    ],
)
def test_what_does_not_exist_yet_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(state_errors.NotAvailable):
        sizewise.compile(Net(), **option)


def test_captures_are_refused_by_name() -> None:
    with pytest.raises(sizewise.SizewiseError, match="not available yet"):
        sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, cudagraph_mode="FULL")


def test_a_misspelt_argument_names_the_right_one() -> None:
    with pytest.raises(state_errors.UnknownOption, match="dynamic_shapes"):
        sizewise.compile(Net(), dynamic_shape={"x": {0: BATCH}})


def test_an_example_outside_the_range_is_refused() -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with pytest.raises(call_errors.SizeOutOfRange):
        fast.warmup(torch.randn(17, 4))


def test_a_first_call_that_compiles_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    fast = sizewise.compile(Net().eval(), dynamic_shapes={"x": {0: BATCH}}, backend="eager")
    with caplog.at_level("WARNING", logger="sizewise"):
        fast(X)
        fast(X)
    assert [record.getMessage() for record in caplog.records] == [
        "Net was not warmed up: it is compiled now, in the middle of a call"
    ]


class FastPath(nn.Module):
    """Eager takes a shortcut for padding masks that no trace takes."""

    def __init__(self, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_shortcut_of_eager_mode_that_depends_on_data_is_refused(nested: bool) -> None:
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[1, 5:] = True
    dims = {"x": {0: BATCH, 1: Dim("seq", 1, 12)}, "mask": {0: BATCH, 1: Dim("seq", 1, 12)}}
    fast = sizewise.compile(FastPath(nested).eval(), dynamic_shapes=dims, backend="eager")
    if nested:
        with pytest.raises(sizewise.SizewiseError, match="enable_nested_tensor=False"):
            fast.warmup(torch.randn(3, 6, 16), mask)
    else:
        fast.warmup(torch.randn(3, 6, 16), mask)


def test_compiling_twice_is_refused() -> None:
    with pytest.raises(state_errors.BadTarget, match="compiled already"):
        sizewise.compile(ready())


def test_counters_expect_is_exact() -> None:
    fast = ready()
    with pytest.raises(AssertionError, match="expected"), fast.counters.expect(calls_program=2):
        fast(X)
    with pytest.raises(AssertionError, match="no counts named"), fast.counters.expect(call_program=1):
        fast(X)


def test_the_report_prints_and_serialises() -> None:
    import json

    fast = ready()
    fast(X)
    report = fast.report()
    assert "1 distinct" in str(report)
    data = json.loads(report.to_json())
    assert data["counters"]["calls_program"] == 1
    assert data["dims"]["batch"]["policy"] == "unbacked"
    assert "def call(weights, size_batch, arg_x):" in report.code
    assert {size["verdict"] for size in report.sizes} == {"equal"}


# -- kinds of trouble an attack found


class ReadsStrides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.stride(0)


class WritesData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.data.mul_(2)
        return x + 1


@pytest.mark.parametrize("module", [ReadsStrides(), WritesData()], ids=lambda m: type(m).__name__)
def test_a_module_that_notices_a_copy_gets_none(module: nn.Module) -> None:
    try:
        fast = ready(module)
    except sizewise.SizewiseError as refusal:
        assert refusal.code
        return
    with pytest.raises(call_errors.WrittenInputLayout):
        fast(torch.randn(4, 5).t())


class IndexFromTheEnd(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x.shape[0] - 3] * 2


class SqueezesADerivedSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones((x.shape[0] + 2) % 5 + 1, 3).squeeze(0) * x.sum()


@pytest.mark.parametrize(
    ("module", "says"), [(IndexFromTheEnd(), "batch=1"), (SqueezesADerivedSize(), "")], ids=["index", "squeeze"]
)
def test_a_size_the_module_cannot_run_or_runs_otherwise_is_found_before_serving(module: nn.Module, says: str) -> None:
    try:
        fast = ready(module)
    except sizewise.SizewiseError as refusal:
        assert says in str(refusal)
        return
    for size in range(1, 17):
        x = torch.randn(size, 4)
        torch.testing.assert_close(fast(x), module(x))


class Keywords(nn.Module):
    def forward(self, **parts: Tensor) -> Tensor:
        return torch.cat(list(parts.values()), -1)


def test_the_order_of_keywords_is_the_callers() -> None:
    a, b = torch.zeros(3, 2), torch.ones(3, 2)
    dims = {"a": {0: BATCH}, "b": {0: BATCH}}
    fast = sizewise.compile(Keywords().eval(), dynamic_shapes=dims, backend="eager", on_outside="eager")
    fast.warmup(a=a, b=b)
    assert torch.equal(fast(a=a, b=b), fast.__wrapped__(a=a, b=b))
    assert torch.equal(fast(b=b, a=a), fast.__wrapped__(b=b, a=a))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


def test_untied_weights_are_noticed() -> None:
    fast = ready(Tied())
    fast.__wrapped__.b.weight = nn.Parameter(torch.randn(4, 4))
    with pytest.raises(state_errors.Stale, match=r"b\.weight|a\.weight"):
        fast(X)


def test_data_of_the_same_address_and_another_layout_is_noticed() -> None:
    module = nn.Linear(4, 4).eval()
    fast = sizewise.compile(module, dynamic_shapes={"input": {0: BATCH}}, backend="eager").warmup(X)
    module.weight.data = module.weight.data.t()
    with pytest.raises(state_errors.Stale, match="strides"):
        fast(X)


class HiddenRandom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gumbel_softmax(x, hard=True)


def test_a_random_operator_of_any_name_is_refused() -> None:
    with pytest.raises(sizewise.SizewiseError):
        ready(HiddenRandom())


def test_side_effects_are_seen_while_other_threads_change_warnings() -> None:
    import time
    import warnings

    class Keeps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x * 2
            return self.last + 1

    stop = threading.Event()

    def user() -> None:
        while not stop.is_set():
            with warnings.catch_warnings(record=True):
                time.sleep(0.002)

    thread = threading.Thread(target=user)
    thread.start()
    try:
        for _ in range(3):
            with pytest.raises(trace_errors.SideEffect):
                ready(Keeps())
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", ["type", "len", "fetch", "program", "tensor_0", "size_batch", "Tensor", "repr"])
def test_an_argument_may_have_any_name(name: str) -> None:
    scope: dict[str, Any] = {"nn": nn}
    exec(f"class M(nn.Module):\n    def forward(self, x, {name}):\n        return x - {name}", scope)
    dims = {"x": {0: BATCH}, name: {0: BATCH}}
    fast = sizewise.compile(scope["M"]().eval(), dynamic_shapes=dims, backend="eager").warmup(X, X + 1)
    assert torch.equal(fast(X, X * 2), X - X * 2)


class AddsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(1)
        return x * self.total.sum(0)


def test_an_argument_that_is_a_written_buffer_is_refused() -> None:
    module = AddsBuffer().eval()
    fast = sizewise.compile(module, dynamic_shapes={"x": {0: BATCH}}, backend="eager").warmup(X)
    reference = copy.deepcopy(module)
    torch.testing.assert_close(fast(X), reference(X))
    with pytest.raises(call_errors.WrittenInputLayout, match="shares memory"):
        fast(module.total)


class KeepsAPlainTensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count, self.kept = torch.zeros(1), [torch.zeros(1)]

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        self.kept[0].add_(1)
        return x * 2


def test_warming_up_leaves_plain_tensors_as_they_were() -> None:
    module = KeepsAPlainTensor().eval()
    fast = ready(module)
    assert (float(module.count), float(module.kept[0])) == (0.0, 0.0)
    fast(X)
    assert (float(module.count), float(module.kept[0])) == (1.0, 1.0)
