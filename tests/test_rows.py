"""The row analysis: what leaks is refused by the operator's name, what is proved is true in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sizewise
from benchmarks.families import FAMILIES
from benchmarks.models import ATTENTION, decoder, minilm, minilm_inputs
from sizewise import CompilationConfig, Dim
from sizewise.verify.rows import Rows, analyse, rules
from sizewise.verify.rows.program import program_run
from sizewise.verify.rows.rules.base import Rule
from sizewise.verify.tolerance import tensors_of

from .rows_support import OPERATORS, Apply, Line, call_of, checked, cut, difference, other_rows, verdict_of

ROWS, FEW = 5, 2
FIRST_AXIS = Rows(0)
slow = pytest.mark.slow


def filled_behind_the_dispatcher(x: Tensor) -> Tensor:
    """As an extension's kernel does."""
    out = torch.empty_like(x)
    with torch._C.DisableTorchFunction():
        out.numpy()[:] = x.numpy().mean(0)
    return out


LEAKS: dict[str, tuple[Callable[[Tensor], Any], str, str]] = {
    "mean": (lambda x: x - x.mean(0), "aten::mean.dim", "takes mean over the rows of batch"),
    "sum": (lambda x: x.sum(0), "aten::sum.dim_IntList", "takes sum over the rows"),
    "sum of everything": (lambda x: x / x.sum(), "aten::sum", "over the rows"),
    "softmax": (lambda x: x.softmax(0), "aten::_softmax", "takes softmax over the rows"),
    "cumsum": (lambda x: x.cumsum(0), "aten::cumsum", "over the rows"),
    "cumsum backwards": (lambda x: x.flip(0).cumsum(0).flip(0), "aten::flip", "to other places"),
    "topk": (lambda x: x.topk(2, 0)[0], "aten::topk", "over the rows"),
    "sort": (lambda x: x.sort(0)[0], "aten::sort", "over the rows"),
    "by the size": (lambda x: x / x.shape[0], "aten::div.Tensor", "is given a number that follows batch"),
    "by the size, a tensor": (lambda x: x * torch.tensor(x.shape[0]), "torch.tensor", "values that follow batch"),
    "the last row": (lambda x: x - x[-1], "aten::select.int", "takes one of the rows"),
    "the last rows": (lambda x: x[1:], "aten::slice.Tensor", "some of the rows"),
    "flip": (lambda x: x.flip(0), "aten::flip", "to other places"),
    "roll": (lambda x: x.roll(1, 0), "aten::roll", "to other places"),
    "every pair": (lambda x: x.flatten(1) @ x.flatten(1).T, "aten::mm", "in several axes"),
    "twice": (lambda x: torch.cat([x, x], 0), "aten::cat", "leaves the rows of batch apart in result"),
    "arange reversed": (
        lambda x: x + torch.arange(x.shape[0]).flip(0)[:, None, None],
        "aten::flip",
        "to other places",
    ),
    "arange backwards": (
        lambda x: x + torch.arange(x.shape[0] - 1, -1, -1)[:, None, None],
        "aten::arange.start_step",
        "start is 1 and 4 at batch=2 and 5",
    ),
    "max of all": (lambda x: x * x.max(), "aten::max", "over the rows"),
    "scale": (lambda x: x / x.abs().max(), "aten::max", "over the rows"),
    "scale as Python sees it": (lambda x: x * x.max().item(), "aten::_local_scalar_dense", "depend on the rows"),
    "a list": (lambda x: x * max(x.flatten().tolist()), "torch.Tensor.tolist", "takes values of batch out"),
    "numpy": (lambda x: x + float(x.numpy().max()), "torch.Tensor.numpy", "takes values of batch out"),
    "a branch": (lambda x: x + 1 if bool((x > 9).any()) else x, "aten::_local_scalar_dense", "a condition"),
    "std": (lambda x: x / x.std(0), "aten::std.correction", "over the rows"),
    "einsum": (lambda x: torch.einsum("bij,bij->ij", x, x), "aten::bmm", "sums over the rows"),
    "dropout": (lambda x: F.dropout(x, 0.5), "aten::bernoulli_.float", "draws random numbers"),
    "batch norm of the batch": (
        lambda x: F.batch_norm(x, None, None, training=True),
        "aten::native_batch_norm",
        "uses the statistics of the rows",
    ),
    "its neighbours": (
        lambda x: F.conv1d(x.permute(2, 1, 0), torch.ones(4, 4, 2)).permute(2, 1, 0),
        "aten::convolution",
        "sums over neighbouring rows",
    ),
    "attention along the dim": (
        lambda x: F.scaled_dot_product_attention(*[x.permute(1, 0, 2)[None]] * 3),
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "attend to one another",
    ),
    "attention along the dim, step by step": (
        lambda x: F.scaled_dot_product_attention(*[x.permute(1, 0, 2).double()] * 3),
        "aten::bmm",
        "in several axes",
    ),
    "in a place of its own, of the next": (
        lambda x: x[(torch.arange(x.shape[0]) + 1) % x.shape[0], 0],
        "aten::remainder.Scalar",
        "is given a number that follows batch",
    ),
    "looked up in every row": (lambda x: x.select(1, 0)[x[..., 0].long() % 2], "aten::index.Tensor", "from one row"),
    "two rows put beside": (lambda x: torch.cat([x, torch.ones(2, 4, 8)]), "aten::cat", "beside the rows"),
    "rows that meet": (lambda x: x.reshape(4, -1, 8), "aten::view", "mixes the rows"),
    "written by all": (lambda x: x.clone().sub_(x.mean(0)), "aten::mean.dim", "over the rows"),
    "written to one": (lambda x: torch.zeros(3, 8).index_put((x[:, 0, 0].long() % 3,), x[:, 0]), "aten::index_put", ""),
    "written behind the dispatcher": (
        lambda x: (lambda other: (setattr(other, "data", x.flip(0)), other * 2)[1])(torch.zeros(x.shape)),
        "aten::zeros",
        "changed beside all operators",
    ),
    "memory that nobody fills": (
        lambda x: torch.empty_like(x) * 2,
        "aten::empty_like",
        "no operator writes to before it is read",
    ),
    "filled by a kernel that is no operator": (
        lambda x: filled_behind_the_dispatcher(x),
        "aten::empty_like",
        "no operator writes to before it is read",
    ),
    "a diagonal through the rows": (lambda x: x.diagonal(), "aten::diagonal", "a diagonal through the rows"),
    "a higher-order operator": (
        lambda x: torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)),
        "cond",
        "is not known to keep the rows of batch apart",
    ),
    "embedding bag": (
        lambda x: F.embedding_bag(x[..., 0].long().abs() % 3, torch.ones(3, 8)),
        "aten::_embedding_bag_forward_only",
        "is not known to keep the rows of batch apart",
    ),
}


def example() -> dict[str, Tensor]:
    return {"x": torch.randn(ROWS, 4, 8)}


@pytest.mark.parametrize("name", LEAKS)
def test_what_leaks_is_refused_by_name(name: str) -> None:
    function, operator, reason = LEAKS[name]
    verdict = verdict_of(Apply(function), example())
    assert not verdict.proved
    assert verdict.operator == operator
    assert reason in verdict.reason


@dataclass(frozen=True)
class Safe:
    make: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any]] = example
    axes: dict[str, int] | None = None
    rows: Rows = FIRST_AXIS


def of(function: Callable[[Tensor], Any], rows: Rows = FIRST_AXIS) -> Safe:
    return Safe(lambda: Apply(function), rows=rows)


def first_input(*shape: int, rows: int = ROWS) -> Callable[[], dict[str, Any]]:
    return lambda: {"input": torch.randn(rows, *shape)}


def trained(module: nn.Module) -> nn.Module:
    """With statistics that are not those of a new norm."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return module


def heads_in_the_batch(x: Tensor) -> Tensor:
    """Attention written out, (batch, length, heads * size) as (batch * heads, length, size)."""
    rows, length, _ = x.shape
    heads = x.view(rows, length, 2, 4).transpose(1, 2).reshape(rows * 2, length, 4)
    scores = torch.baddbmm(torch.zeros(1, 1, 1), heads, heads.transpose(1, 2)).softmax(-1)
    return torch.bmm(scores, heads).view(rows, 2, length, 4).transpose(1, 2).reshape(rows, length, 8)


def written_in_parts(x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], 4, 16)
    out[..., :8] = x
    out[..., 8:] = x.sin()
    out[:, 0] *= 2
    out[out > 1] = 0.5
    return out


class Positions(nn.Module):
    """Embeddings of tokens, of their places, and of the rows' numbers in a table of a fixed size."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.register_buffer("ids", torch.arange(16)[None])

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        last = (ids > 3).sum(1).clamp(max=length - 1)
        embedded = self.tokens(ids) + self.places(self.ids[:, :length]) + self.places.weight[:rows][:, None]
        return embedded[torch.arange(rows, device=ids.device), last]


SAFE: dict[str, Safe] = {
    "MLP": Safe(lambda: nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 3)), first_input(4, 8)),
    "Conv2d, batch norm, pools": Safe(
        lambda: trained(
            nn.Sequential(
                nn.Conv2d(3, 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
                nn.Upsample(scale_factor=2),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
        ),
        first_input(3, 9, 9),
    ),
    "Conv1d, norms": Safe(
        lambda: trained(
            nn.Sequential(
                nn.Conv1d(4, 6, 3, groups=2),
                nn.BatchNorm1d(6),
                nn.GroupNorm(2, 6),
                nn.InstanceNorm1d(6, affine=True),
                nn.AvgPool1d(2),
                nn.AdaptiveMaxPool1d(2),
            )
        ),
        first_input(4, 12),
    ),
    "norms": Safe(lambda: nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8), nn.LayerNorm([4, 8])), first_input(4, 8)),
    "encoder layer": Safe(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda: {"src": torch.randn(ROWS, 4, 8)}
    ),
    "encoder layer, the batch second": Safe(
        lambda: nn.TransformerEncoderLayer(8, 2, 16),
        lambda: {"src": torch.randn(4, ROWS, 8)},
        {"src": 1},
        Rows(1),
    ),
    "attention with a mask of lengths": Safe(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: {
            **{name: torch.randn(ROWS, 4, 8) for name in ("query", "key", "value")},
            "key_padding_mask": torch.arange(4) >= torch.randint(1, 5, (ROWS, 1)),
            "attn_mask": torch.ones(4, 4).triu(1).bool(),
        },
        dict.fromkeys(("query", "key", "value", "key_padding_mask"), 0),
    ),
    "LSTM": Safe(lambda: nn.LSTM(8, 5, batch_first=True, bidirectional=True, num_layers=2), first_input(4, 8)),
    "LSTM, the batch second": Safe(
        lambda: nn.LSTM(8, 5), lambda: {"input": torch.randn(4, ROWS, 8)}, {"input": 1}, Rows(1)
    ),
    "GRU": Safe(lambda: nn.GRU(8, 5, batch_first=True, bidirectional=True), first_input(4, 8)),
    "positions": Safe(Positions, lambda: {"ids": torch.randint(0, 20, (ROWS, 6))}),
    "heads in the batch": of(heads_in_the_batch),
    "einsum": of(lambda x: torch.einsum("bij,bik->bjk", x, x)),
    "attention": of(lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3)),
    "attention, step by step": of(lambda x: F.scaled_dot_product_attention(*[x.double()] * 3, is_causal=True)),
    "rows as queries of fixed keys": of(
        lambda x: F.scaled_dot_product_attention(x.flatten(1)[None, None], *[torch.ones(1, 1, 3, 32)] * 2), Rows(2)
    ),
    "views": of(lambda x: x.view(-1, 2, 4).permute(2, 0, 1).reshape(4, x.shape[0], 8).unsqueeze(0), Rows(2)),
    "flattened": of(lambda x: x.reshape(-1, 8), Rows(0, 1, 4)),
    "twice and back": of(lambda x: torch.cat([x, x * 2]).sin().chunk(2)[1]),
    "split, stacked, unbound": of(lambda x: torch.stack(x.split(2, 1), 1).unbind(1)[0]),
    "repeated": of(
        lambda x: x.repeat_interleave(2, 0) + x.repeat(1, 2, 1)[:, :4].repeat_interleave(2, 0), Rows(0, 1, 2)
    ),
    "places": of(lambda x: x + torch.arange(x.shape[0])[:, None, None]),
    "chosen along other axes": of(lambda x: x.gather(1, x.argsort(1)).topk(3, -1)[0].cumsum(1).softmax(2)),
    "scattered along other axes": of(lambda x: torch.zeros_like(x).scatter_(1, x.argsort(1), x)),
    "each row in itself": of(lambda x: x[torch.arange(x.shape[0]), x[..., 0].argmax(1)]),
    "written in parts": of(written_in_parts),
    "in place": of(lambda x: x.mul_(2).add_(1).masked_fill_(x > 2, 0)),
    "detached": of(lambda x: x.detach() + x.data),
    "a mask made inside": of(lambda x: x.masked_fill(torch.arange(8) > x.argmax(-1, keepdim=True), 0.0)),
    "a diagonal of others": of(lambda x: x.diagonal(dim1=1, dim2=2) + x[..., :4].diagonal(dim1=2, dim2=1)),
    "distances": of(lambda x: torch.cdist(x, x.sin())),
    "sampled": of(lambda x: F.grid_sample(x[:, :, None], x.reshape(-1, 4, 4, 2).tanh(), align_corners=False)),
    "each by itself": of(torch.vmap(lambda row: row / row.sum())),
    "padded elsewhere": of(lambda x: F.pad(x, (1, 1, 2, 0))),
    "an unused mean": of(lambda x: (x.mean(0), x * 2)[1]),
}


@pytest.mark.parametrize("name", SAFE)
@torch.no_grad()
def test_what_is_safe_is_proved_and_true(name: str) -> None:
    safe = SAFE[name]
    module, values = safe.make().eval(), safe.inputs()
    axes = safe.axes or dict.fromkeys(values, 0)
    verdict = verdict_of(module, values, axes)
    assert verdict.proved, verdict
    assert next(iter(verdict.outputs.values())) == safe.rows
    assert_true(module, values, axes, verdict.outputs)


def assert_true(module: Any, values: dict[str, Any], axes: dict[str, int], outputs: Any) -> None:
    """The real rows are what they are without the others, whatever the others hold."""
    calls = [cut(values, axes, FEW), values, other_rows(values, axes, FEW)]
    few, *others = [list(tensors(module(**{key: value.clone() for key, value in call.items()}))) for call in calls]
    for other in others:
        for rows, one, seen in zip(outputs.values(), few, other, strict=True):
            assert not difference(one, seen, rows, FEW, 1e-4)


def tensors(value: Any) -> Any:
    return (tensor for _, tensor in tensors_of(value))


class Counting(nn.Module):
    def __init__(self, of_rows: bool) -> None:
        super().__init__()
        self.of_rows = of_rows
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.sum() if self.of_rows else 1
        return x * 2


def test_what_is_written_to_the_module_may_not_depend_on_rows() -> None:
    assert verdict_of(Counting(of_rows=False), example()).proved
    module = Counting(of_rows=True)
    verdict = verdict_of(module, example())
    assert not verdict.proved and verdict.operator == "aten::sum"
    assert "outlives the call" in verdict.reason
    assert float(module.seen) == 0


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(9, 4, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.table[: x.shape[0]] = x
        return self.table[: x.shape[0]] * 2


def test_rows_written_to_a_table_of_the_module_are_refused() -> None:
    module = Table()
    verdict = verdict_of(module, example())
    assert not verdict.proved and verdict.operator == "aten::copy_"
    assert "writes rows of batch into a tensor that does not follow it" in verdict.reason
    assert not module.table.any()


def test_arguments_that_are_written_stay_the_callers() -> None:
    values = example()
    before = values["x"].clone()
    assert verdict_of(Apply(lambda x: x.add_(1)), values).proved
    assert torch.equal(values["x"], before)
    assert not verdict_of(Apply(lambda x: (x.sub_(x.mean(0)), x.sin())[1]), values).proved


class Several(nn.Module):
    def forward(self, x: Tensor, state: Tensor, scale: Tensor, times: int = 2) -> dict[str, Any]:
        return {"state": state + x.mean(1) * scale, "both": [x * times, scale * 2], "rows": x.shape[0]}


def test_several_arguments_each_along_its_own_axis() -> None:
    values = {"x": torch.randn(ROWS, 4, 8), "state": torch.randn(3, ROWS, 8), "scale": torch.randn(8)}
    verdict = verdict_of(Several(), values, {"x": 0, "state": 1})
    assert verdict.proved
    assert verdict.outputs == {"result['state']": Rows(1), "result['both'][0]": Rows(0), "result['both'][1]": None}


def test_rows_of_two_arguments_have_to_meet() -> None:
    class Meet(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x[:, None] + y

    values = {"x": torch.randn(ROWS, 3), "y": torch.randn(ROWS, 3)}
    verdict = verdict_of(Meet(), values)
    assert not verdict.proved and verdict.operator == "aten::add.Tensor"


@pytest.mark.parametrize(
    ("values", "axes", "reason"),
    [
        ({"x": torch.ones(5, 5)}, {"x": 0}, ""),
        ({"x": torch.ones(5, 2)}, {"x": 1}, "are not at two sizes of batch"),
        ({"x": torch.ones(5, 2)}, {"z": 0}, "no tensor argument has batch"),
        ({"x": torch.ones(5, 2)}, {}, "no tensor argument has batch"),
    ],
)
def test_calls_that_say_nothing(values: dict[str, Any], axes: dict[str, int], reason: str) -> None:
    verdict = verdict_of(Apply(torch.sin), values, axes)
    assert reason in verdict.reason
    assert verdict.proved == (not reason)


def test_a_mask_with_the_dim_in_two_axes_is_not_proved() -> None:
    module = Apply(torch.sin)
    calls = [call_of(module, {"x": torch.ones(size, size)}) for size in (2, 5)]
    verdict = analyse(lambda call: module(**call.kwargs), module, *calls, {"x": 0}, "seq")
    assert not verdict.proved and verdict.reason == "x has seq in several axes"


def test_what_cannot_be_looked_into_is_refused() -> None:
    class Box:
        def __init__(self, value: Tensor) -> None:
            self.value = value

    verdict = verdict_of(Apply(lambda x: {"box": Box(x)}), example())
    assert not verdict.proved and "a Box at result['box']" in verdict.reason


def test_other_operators_at_another_size() -> None:
    verdict = verdict_of(Apply(lambda x: x.sin() if x.shape[0] > 3 else x.cos()), example())
    assert not verdict.proved and verdict.operator == "aten::cos"
    assert verdict.reason == "runs aten::sin in its place at another size of batch"
    verdict = verdict_of(Apply(lambda x: sum(row.sum() for row in x)), example())
    assert not verdict.proved and verdict.operator == "aten::unbind.int"


def test_a_module_that_fails() -> None:
    verdict = verdict_of(Apply(lambda x: x.view(2, 4, 8)), example())
    assert not verdict.proved and "does not run at batch=5" in verdict.reason


def test_along_another_dim() -> None:
    """A sequence can be padded where nothing mixes it."""
    tokens = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.LayerNorm(4))
    assert verdict_of(tokens, {"input": torch.randn(3, ROWS, 8)}, {"input": 1}).proved
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    verdict = verdict_of(layer, {"src": torch.randn(3, ROWS, 8)}, {"src": 1})
    assert not verdict.proved and "attend to one another" in verdict.reason


def test_an_operator_of_somebody_else() -> None:
    verdict = verdict_of(decoder(1), {"ids": torch.randint(0, 256, (ROWS, 6))})
    assert not verdict.proved and verdict.operator == ATTENTION
    assert verdict.reason == "is not known to keep the rows of batch apart"


def traced(module: nn.Module, values: dict[str, Any], shapes: Any, **options: Any) -> Any:
    """A module's program, operator by operator."""
    config = CompilationConfig(backend="eager")
    fast = sizewise.compile(module, dynamic_shapes=shapes, config=config, **options).warmup(**values)
    return program_run(fast.built.entries[0].program, module)


@slow
def test_minilm_is_proved_along_the_batch_and_not_along_the_sequence() -> None:
    module, values = minilm(), minilm_inputs(ROWS, 6)
    direct = verdict_of(module, values)
    assert not direct.proved, "transformers asks whether the mask is all ones, unless it is traced"
    assert direct.operator == "aten::_local_scalar_dense"
    both = {0: Dim("batch", 1, 8), 1: Dim("seq", 2, 16)}
    run = traced(module, values, {"input_ids": both, "attention_mask": both})
    verdict = verdict_of(module, values, run=run)
    assert verdict.proved and set(verdict.outputs.values()) == {Rows(0)}
    verdict = verdict_of(module, values, {"input_ids": 1, "attention_mask": 1}, run=run)
    assert not verdict.proved and verdict.operator


@slow
@pytest.mark.parametrize("name", ["Llama, with a mask", "ViT", "TransformerEncoderLayer"])
def test_a_programs_graph_is_proved(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    module, values, shapes = family.make()
    run = traced(module, values, shapes, **family.options)
    verdict = verdict_of(module, values, dict.fromkeys(shapes, 0), run=run)
    assert verdict.proved, verdict


LINES = st.lists(
    st.tuples(
        st.sampled_from(sorted(OPERATORS)),
        # The last result twice as often as any.
        st.one_of(st.just(-1), st.integers(0, 9)),
        st.integers(0, 9),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@given(lines=LINES, few=st.integers(1, 4), more=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_proved_of_random_operators_is_true(lines: list[Line], few: int, more: int, seed: int) -> None:
    found = checked(lines, few, more, seed)
    assert not found.wrong, (found.wrong, found.verdict)


def test_random_operators_are_proved_and_refused() -> None:
    """Each of the operators is refused on a dim or proved on one, so that the random test means something."""
    proved, refused = set(), set()
    for name in OPERATORS:
        for first, i in [(0, 0), (0, 1), (2, 0)]:
            for second in (0, 2, 3):
                found = checked([(name, first, second, i, 1)], 2, 3, 0)
                assert not found.wrong, (name, found.wrong)
                if len(found.verdict.outputs) == 2:
                    (proved if found.verdict.proved else refused).add(name)
    assert len(proved) > 60
    assert len(refused) > 40


WRONG: dict[str, Line] = {
    "flip": ("flip", 0, 0, 0, 0),
    "roll": ("roll", 0, 0, 0, 0),
    "sort": ("sort", 0, 0, 0, 0),
    "_softmax": ("softmax", 0, 0, 0, 0),
    "native_batch_norm": ("batch_norm of the batch", 0, 0, 0, 0),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_found_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the random test compares would show a rule that lets a leak through."""
    assert not checked([WRONG[rule]], 2, 3, 0).wrong
    wrong = Rule(lambda op: [op.operands()[0].rows, *[None] * (len(op.results) - 1)])
    monkeypatch.setitem(rules.RULES, rule, wrong)
    assert "result[1] differs" in checked([WRONG[rule]], 2, 3, 0).wrong
