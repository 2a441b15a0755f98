"""What an error says to do, done: the remedies of the messages lead on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import CompilationConfig, Dim, PiecewiseBackend, Range, diagnose
from sizewise.cli import explaining
from sizewise.cli.targets import load_target
from sizewise.errors import SizewiseError
from sizewise.errors import build as build_errors
from sizewise.errors import call as call_errors
from sizewise.errors import command as command_errors
from sizewise.errors import config as config_errors
from sizewise.errors import state as state_errors
from sizewise.errors import trace as trace_errors
from sizewise.reference.store import APPLICATION, Store, discard_damaged, readable

BATCH = Dim("batch", min=1, max=8)
X = torch.randn(2, 4)


def compiled(module: nn.Module | None = None, shapes: Any = None, **options: Any) -> Any:
    shapes = {"input": {0: BATCH}} if shapes is None else shapes
    module = module or nn.Linear(4, 2)
    return sizewise.compile(module.eval(), dynamic_shapes=shapes, backend="eager", **options)


def todo(error: SizewiseError) -> str:
    """What a message says to do, without the line of its code."""
    return str(error).partition("What to do: ")[2].rpartition("\n")[0]


# -- settings


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("rms_norm", "write '+rms_norm' to enable the operator or '-rms_norm' to disable it"),
        (" +rms_norm", "write '+rms_norm'"),
        ("*rms_norm", "write '+rms_norm' to enable"),
        ("ALL", "write 'all'"),
        ("", "remove the entry"),
        ("+", "remove the entry"),
    ],
)
def test_what_to_write_for_an_entry_of_custom_ops(op: str, says: str) -> None:
    with pytest.raises(config_errors.CustomOpSyntax) as caught:
        CompilationConfig(custom_ops=[op])
    assert says in todo(caught.value).partition(";")[0]
    for word in re.findall(r"'([^']+)'", todo(caught.value)):
        assert CompilationConfig(custom_ops=[word]).custom_ops == [word]


@pytest.mark.parametrize(
    "settings",
    [
        {"cudagraph_capture_sizes": []},
        {"max_cudagraph_capture_size": 0},
        {"cudagraph_mm_encoder": True, "encoder_cudagraph_max_vision_items_per_batch": -1},
        {"cudagraph_mm_encoder": True, "encoder_cudagraph_max_frames_per_batch": -1},
    ],
)
def test_settings_that_are_to_be_left_out(settings: dict[str, Any]) -> None:
    with pytest.raises(config_errors.ConfigError, match=r"leave (it|cudagraph_capture_sizes) out"):
        CompilationConfig(**settings)
    CompilationConfig(cudagraph_mode="NONE").resolve()


def test_an_empty_list_within_a_grid_is_named_by_its_dim() -> None:
    with pytest.raises(config_errors.NoCaptureSizes, match=r"Seen: cudagraph_capture_sizes\['seq'\]=\[\]"):
        CompilationConfig(cudagraph_capture_sizes={"batch": [1], "seq": []})


def test_what_to_widen_for_a_size_outside() -> None:
    config = CompilationConfig(compile_sizes=[1, 64], compile_ranges_endpoints=[16])
    with pytest.raises(config_errors.SizeOutOfRange, match="let dim 'batch' go from 1 to 64"):
        config.resolve(dims={"batch": (1, 32)})
    config.resolve(dims={"batch": (1, 64)})
    with pytest.raises(config_errors.SizeOutOfRange, match="pass max_size=16"):
        config.compile_ranges(max_size=8)
    config.compile_ranges(max_size=16)
    with pytest.raises(config_errors.SizeOutOfRange, match="pass min_size=16"):
        config.compile_ranges(max_size=64, min_size=20)
    config.compile_ranges(max_size=64, min_size=16)


@pytest.mark.parametrize("dims", [[("batch", (1, 8))], [], "batch", {"batch"}])
def test_dims_that_are_no_dict(dims: Any) -> None:
    with pytest.raises(config_errors.WrongType, match=r"dims is not a dict of \(min, max\) by name"):
        CompilationConfig().resolve(dims=dims)


def test_a_pair_is_made_of_the_dim_that_was_given() -> None:
    with pytest.raises(config_errors.InvalidDimRange, match=re.escape("dims={'batch': (1, 8)}")):
        CompilationConfig().resolve(dims={"batch": BATCH})  # type: ignore[dict-item]
    with pytest.raises(config_errors.InvalidDimRange, match=re.escape("dims={'batch': (1, 64)}")):
        CompilationConfig().resolve(dims={"batch": 64})  # type: ignore[dict-item]
    with pytest.raises(config_errors.InvalidDimRange, match="max_size=64, min_size=1"):
        CompilationConfig().compile_ranges(1, 64)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("PIECEWISE", "config=CompilationConfig(mode='PIECEWISE')"),
        (3, "config=CompilationConfig(mode='PIECEWISE')"),
        ("max-autotune-no-cudagraphs", 'inductor_compile_config={"max_autotune": True}'),
        ("fast", "leave mode out"),
    ],
)
def test_what_to_write_for_a_preset_there_is_not(mode: Any, says: str) -> None:
    with pytest.raises(config_errors.UnknownPreset) as caught:
        sizewise.compile(nn.Linear(4, 2).eval(), mode=mode)
    assert says in todo(caught.value) and "(reduce-overhead, max-autotune) are refused" in todo(caught.value)


def test_an_option_that_inductor_does_not_have() -> None:
    with pytest.raises(config_errors.UnknownInductorOption, match="write 'max_autotune'"):
        sizewise.compile(nn.Linear(4, 2).eval(), inductor_compile_config={"max_autotun": True})
    for good in ("max_autotune", "triton.cudagraphs", "force_disable_caches"):
        sizewise.compile(nn.Linear(4, 2).eval(), inductor_compile_config={good: False})
    # Attributes of the module that are no options.
    for bad in ("os", "patch", "nothing_like_it"):
        with pytest.raises(config_errors.UnknownInductorOption):
            CompilationConfig(inductor_compile_config={bad: 1}).resolve()


# -- one piece


def graph() -> torch.fx.GraphModule:
    traced = torch.fx.symbolic_trace(nn.Tanh())
    for node in traced.graph.nodes:
        node.meta["example_value"] = torch.randn(3, 4)
    return traced


def backend(ranges: Any) -> PiecewiseBackend:
    return PiecewiseBackend(graph(), compile_ranges=ranges, config=CompilationConfig(backend="eager"))


@pytest.mark.parametrize("wrong", [(1, 4), [1, 4], 4, "1-4"])
def test_a_range_that_is_none(wrong: Any) -> None:
    with pytest.raises(config_errors.WrongType, match=r"compile_ranges\[1\] is not a sizewise.Range") as caught:
        backend([Range(5, 8), wrong])
    assert ("Range(1, 4)" in todo(caught.value)) == isinstance(wrong, tuple | list)


@pytest.mark.parametrize("wrong", [Range(1, 8), (1, 4), [1, 4], None])
def test_a_range_that_the_backend_does_not_have(wrong: Any) -> None:
    made = backend([Range(1, 4), Range(5, 8)])
    with pytest.raises(config_errors.UnknownCompileRange, match=re.escape("Its ranges are: (1, 4), (5, 8).")):
        made.compile_range(wrong)
    made.compile_range(Range(1, 4))


def test_the_ranges_that_are_compiled_are_named() -> None:
    made = backend([Range(1, 4), Range(5, 8)])
    with pytest.raises(build_errors.NoCompiledEntry, match="Available keys: none compiled yet"):
        made.range_entries[Range(5, 8)].runnable
    made.compile_range(Range(1, 4))
    with pytest.raises(build_errors.NoCompiledEntry, match=re.escape("Available keys: (1, 4)")):
        made.range_entries[Range(5, 8)].runnable


# -- dims and traces


class Nested(nn.Module):
    def forward(self, x: Any, scale: int = 1) -> torch.Tensor:
        return x["parts"][1] * scale


def declared_in(message: str) -> Any:
    found = re.search(r"dynamic_shapes=(\{.*?\}+\]?\}*)(?=[:.,])", message)
    assert found is not None, message
    return eval(found[1], {"Dim": Dim})


@pytest.mark.parametrize(
    "wrong", [{"x": {"parts": [None, [64, None]]}}, {"x": {"parts": [None, {0: 64}]}}, {"x": {0: BATCH}}]
)
def test_a_declaration_can_be_copied_from_the_message(wrong: Any) -> None:
    call = {"parts": [torch.randn(3), torch.randn(3, 4)]}
    with pytest.raises(trace_errors.BadDynamicShapes) as caught:
        compiled(Nested(), wrong).warmup(call)
    shapes = declared_in(todo(caught.value))
    fast = compiled(Nested(), {"x": {"parts": [None, {0: Dim("batch", 1, 64)}]}}).warmup(call)
    assert fast(call).shape == (3, 4)
    if "container" not in str(caught.value):
        assert shapes == {"x": {"parts": [None, {0: Dim("batch", 1, 64)}]}}


def test_what_is_no_tensor_is_left_out() -> None:
    shapes = {"x": {"parts": [None, {0: BATCH}]}, "scale": {0: BATCH}}
    with pytest.raises(trace_errors.BadDynamicShapes, match="leave scale out of dynamic_shapes"):
        compiled(Nested(), shapes).warmup({"parts": [torch.randn(3), torch.randn(3, 4)]}, 2)


@pytest.mark.parametrize(
    ("axis", "example", "says"),
    [
        (-1, torch.zeros(2, 4), "write 1 for -1: axes count from 0."),
        (2, torch.zeros(2, 4), "name an axis from 0 to 1, or warm up with a tensor that has axis 2."),
        (0, torch.tensor(1.0), "leave input out of dynamic_shapes"),
    ],
)
def test_the_axis_that_was_meant(axis: int, example: torch.Tensor, says: str) -> None:
    with pytest.raises(trace_errors.NoSuchAxis) as caught:
        compiled(nn.Tanh(), {"input": {axis: BATCH}}).warmup(example)
    assert todo(caught.value).startswith(says)


def test_no_dims_at_all() -> None:
    fast = sizewise.compile(nn.Linear(4, 2).eval(), backend="eager")
    with pytest.raises(trace_errors.NoDynamicDims, match=r"The only call has \{'input': \(2, 4\)\}") as caught:
        fast.warmup(X)
    compiled(shapes=declared_in(todo(caught.value))).warmup(X)
    with pytest.raises(trace_errors.NoDynamicDims, match="No size differs between the 2 calls"):
        fast.warmup_many([((X,), {}), ((X,), {})])
    with pytest.raises(trace_errors.NoDynamicDims, match=r"No calls were given[\s\S]*at least one call"):
        fast.warmup_many([])


class Fixes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.new_ones(4, 1)  # the line that fixes it


def test_the_line_that_fixed_a_size_is_shown() -> None:
    with pytest.raises(trace_errors.SizeSpecialized) as caught:
        compiled(Fixes(), {"x": {0: BATCH}}).warmup(torch.randn(4, 4))
    assert "return x + x.new_ones(4, 1)" in str(caught.value) and Path(__file__).name in str(caught.value)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).softmax(-1).cos()


@pytest.mark.parametrize(
    ("op", "says"),
    [
        ("aten::softmax.int", "write 'aten::softmax'."),
        ("aten::mm", "name an operator of the graph (aten::"),
        (nn.Conv2d, "name the class of a module that runs (Linear, Net), or an operator of the graph: aten::cos"),
    ],
)
def test_names_that_cut_the_graph(op: Any, says: str) -> None:
    with pytest.raises(trace_errors.UnknownSplittingOp) as caught:
        compiled(Net(), {"x": {0: BATCH}}, splitting_ops=[op]).warmup(X)
    assert todo(caught.value).startswith(says)
    compiled(Net(), {"x": {0: BATCH}}, splitting_ops=["aten::softmax", nn.Linear]).warmup(X)


@pytest.mark.parametrize("variable", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_how_tracing_is_switched_on_again(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(trace_errors.TracingDisabled, match=f"unset {variable} and start the process again"):
        compiled().warmup(X)
    monkeypatch.delenv(variable)
    says = re.escape("set torch._dynamo.config.disable = False")
    with torch._dynamo.config.patch(disable=True), pytest.raises(trace_errors.TracingDisabled, match=says):
        compiled().warmup(X)
    compiled().warmup(X)


# -- calls


def test_what_sets_the_ambient_state_back() -> None:
    fast = compiled().warmup(X)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(call_errors.OtherAmbient) as caught:
        fast(X)
    assert todo(caught.value).startswith("call it outside torch.autocast")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(call_errors.OtherAmbient) as caught:
            fast(X)
        (setter,) = re.findall(r"torch\.set_num_threads\(\d+\)", todo(caught.value))
        eval(setter, {"torch": torch})
        fast(X)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("make", "how"),
    [
        (lambda: X.to_sparse(), "x.to_dense()"),
        (lambda: X.as_subclass(type("Sub", (torch.Tensor,), {})), "x.as_subclass(torch.Tensor)"),
        (lambda: torch.nested.nested_tensor([X[0], X[1]]), "torch.nested.to_padded_tensor(x, 0.0)"),
        (
            lambda: torch.nested.nested_tensor([X[0], X[1]], layout=torch.jagged),
            "torch.nested.to_padded_tensor(x, 0.0)",
        ),
        (lambda: torch.complex(X, X).conj().imag, "x.resolve_conj().resolve_neg()"),
    ],
)
def test_what_makes_a_plain_tensor(make: Any, how: str) -> None:
    x, fast = make(), compiled().warmup(X)
    with pytest.raises(call_errors.NotPlainTensor) as caught:
        fast(x)
    assert how in todo(caught.value) and 'on_outside="eager"' in todo(caught.value)
    fast(eval(how, {"x": x, "torch": torch}))
    if "resolve" not in how:
        with pytest.raises(call_errors.NotPlainTensor) as caught:
            compiled().warmup(x)
        assert how in todo(caught.value) and "on_outside" not in todo(caught.value)


def test_a_condition_on_sizes_that_a_call_breaks() -> None:
    assert diagnose._holds("batch % 2 == 0 and math.sqrt(batch) > 1", {"batch": 4, "seq": 1})
    assert not diagnose._holds("batch == seq + 1", {"batch": 4, "seq": 1})


# -- the wrapper


def test_what_there_was_to_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = compiled()
    with pytest.raises(state_errors.NotWarm, match=r"refresh\(\) has no warm-up to repeat") as caught:
        fast.refresh()
    assert "SIZEWISE_REQUIRE_WARM" not in str(caught.value)
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    with pytest.raises(state_errors.NotWarm, match="SIZEWISE_REQUIRE_WARM=1"):
        fast(X)
    fast.close()
    with pytest.raises(state_errors.Closed):
        fast.refresh()


def test_after_a_change_of_dtype_the_warm_up_is_made_again() -> None:
    fast = compiled().warmup(X)
    fast.double()
    with pytest.raises(state_errors.Stale, match="after a change of dtype or device, warmup"):
        fast(X)
    assert fast.warmup(X.double())(X.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("calls", "place"),
    [
        ([X, X], r"calls\[0\] is a tensor of shape \(2, 4\)"),
        (X, r"calls is a tensor of shape \(2, 4\)"),
        (None, "calls is a NoneType"),
        ([(X, {})], r"the args of calls\[0\] is a tensor"),
        ([((X,), {}), ((X,),)], r"calls\[1\] is a tuple of 1"),
        ([((X,), X)], r"the kwargs of calls\[0\] is a tensor"),
        ([((X,), {0: X})], r"the kwargs of calls\[0\] is a dict"),
    ],
)
def test_calls_that_are_none(calls: Any, place: str) -> None:
    fast = compiled()
    with pytest.raises(state_errors.NotCalls, match=place):
        fast.warmup_many(calls)
    assert fast.state == "new"
    fast.warmup_many(iter([((X,), {})]))


class Labelled(nn.Linear):
    @property
    def label_count(self) -> int:
        return len(self.labels)  # type: ignore[arg-type]


def test_the_error_within_a_property_is_shown() -> None:
    fast = compiled(Labelled(4, 2))
    with pytest.raises(state_errors.PropertyFails, match="no attribute 'labels'") as caught:
        fast.label_count
    assert isinstance(caught.value.__cause__, AttributeError) and not hasattr(fast, "label_count")
    fast.labels = ["no", "yes"]
    assert fast.label_count == 2
    with pytest.raises(state_errors.ForwardedMissing):
        fast.label_counts


def test_options_that_work_are_offered_alone() -> None:
    with pytest.raises(state_errors.BadOption, match="is not one of 'error', 'eager'"):
        compiled(on_outside="fallback")
    with pytest.raises(state_errors.BadOption, match="outputs='view' is not one of 'copy', 'static'"):
        compiled(outputs="view")
    with pytest.raises(state_errors.BadOption, match=r"config=CompilationConfig\(\*\*settings\)"):
        sizewise.compile(nn.Linear(4, 2), config={"backend": "eager"})  # type: ignore[arg-type]


def test_counts() -> None:
    fast = compiled().warmup(X)
    with pytest.raises(AssertionError, match=r"expected \{'calls_program': 2\}, seen \{'calls_program': 1\}") as caught:
        with fast.counters.expect(calls_program=2):
            fast(X)
    assert isinstance(caught.value, state_errors.CountsDiffer)
    with pytest.raises(AttributeError, match="write 'calls_program'"):
        fast.counters.call_program
    assert not hasattr(fast.counters, "nothing")


# -- the command line


@pytest.mark.parametrize("text", ["alone.py:make", "alone:make", "below/alone.py:make"])
def test_the_command_that_loads_a_target_alone(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / Path(text.partition(":")[0]).parent
    folder.mkdir(exist_ok=True)
    (folder / "alone_too.py").write_text("")
    (folder / "alone.py").write_text("import alone_too\n\ndef make():\n    raise ValueError('this one')\n")
    with pytest.raises(command_errors.TargetFailed) as caught:
        load_target(text)
    for name in [name for name in sys.modules if name.startswith("alone")]:
        del sys.modules[name]
    command = caught.value.fields["command"].replace("python ", f"{sys.executable} ", 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.endswith("ValueError: this one\n")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("SW999", "Sizewise has no error with the code SW999. Its codes go from SW101 to SW711. Nearest: SW711"),
        ("sw-402x", "Nearest: SW402"),
        ("SW414", "Nearest: SW413"),
        ("SW307", "SW307 is retired"),
    ],
)
def test_a_code_that_is_unknown(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    assert explaining.quick(["explain", code]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("No match: ") and says in said.out
    assert "errors index" not in said.err  # no index would know it


@pytest.fixture
def cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of which the second half is gone."""
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    path = tmp_path / "errors.sqlite"
    Store(path).close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def test_a_damaged_index_is_named_and_made_anew(cut_short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explaining.quick(["explain", "ValueError: of another package"]) == 3
    said = capsys.readouterr().err
    assert "[SW711]" in said and "run `sizewise errors index`" in said and "Traceback" not in said
    assert explaining.quick(["explain", "SW401"]) == 0
    assert "[SW711]" in capsys.readouterr().err
    assert discard_damaged(cut_short) and not cut_short.exists()
    Store(cut_short).close()
    assert not discard_damaged(cut_short) and cut_short.exists()


def test_a_file_of_somebody_else_is_never_deleted(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    for content in (b"", b"notes", b"SQLite format 3\0" + bytes(200)):
        path.write_bytes(content)
        assert not discard_damaged(path) and path.read_bytes() == content
    assert not discard_damaged(tmp_path / "none")
    path.write_bytes(b"notes")
    with pytest.raises(command_errors.IndexUnreadable, match="delete the file if nothing else needs it"):
        with readable(path), Store(path):
            pass
    assert APPLICATION.to_bytes(4, "big") == b"SZWS"


def test_a_locked_index_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    with Store(path) as writer:
        writer._db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(command_errors.IndexUnreadable, match="another process writes it"):
            with readable(path), Store(path, timeout=0.01) as store:
                store.distributions()
        assert not discard_damaged(path)
        writer._db.rollback()
