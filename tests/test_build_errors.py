"""What a user sees when the tracer or the compiler gives up: torch's registry, the cause, and the line of the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import sizewise
from sizewise import Dim
from sizewise.errors import build as build_errors
from sizewise.errors import trace as errors
from sizewise.trace import breaks, lines

HERE = Path(__file__).name


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1  # the branch


class Prints(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("seen", x.shape[0])  # noqa: T201
        return x + 1


class Convolves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = self.conv(y)  # the operator that fails
        return z.relu()


def line_of(text: str) -> int:
    found = [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line]
    return found[0]


def refused(module: nn.Module, x: torch.Tensor, shapes: Any, **settings: Any) -> Exception:
    fast = sizewise.compile(module.eval(), dynamic_shapes=shapes, **settings)
    with pytest.raises(sizewise.SizewiseError) as seen:
        fast.warmup(x)
    return seen.value


BATCH = {"x": {0: Dim("batch", min=1, max=8)}}


@pytest.mark.parametrize(("module", "line"), [(Branch(), "# the branch"), (Prints(), 'print("seen", x')])
def test_a_refused_trace_names_torchs_graph_break(module: nn.Module, line: str) -> None:
    problem = refused(module, torch.randn(2, 4), BATCH, backend="eager")
    assert isinstance(problem, errors.NotTraceable)
    cause = problem.__cause__
    assert isinstance(cause, torch._dynamo.exc.Unsupported)
    registry = json.loads((Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json").read_text())
    known = problem.fields["graph_break"]
    id_ = known.split("graph break ")[1].split(" ")[0]
    assert cause.gb_type in [wording["Gb_type"] for wording in registry[id_]]
    assert "torch's hint: " in known
    assert known in str(problem)
    assert f"{HERE}:{line_of(line)} in forward: " in str(problem)


def test_hints_for_torchs_developers_are_left_out() -> None:
    problem = refused(Prints(), torch.randn(2, 4), BATCH, backend="eager")
    assert "report an issue" in str(problem.__cause__)
    assert "report an issue" not in str(problem)


def test_a_type_that_the_registry_lacks_has_no_id() -> None:
    found = breaks.graph_break(
        ValueError("nothing that torch lists\n  Hint: do this.\n  Hint: Please report an issue to PyTorch.")
    )
    assert (found.id, found.hints, str(found)) == ("", ("do this.",), "")


def test_without_the_registry_there_is_no_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "Data-dependent branching\n  Explanation: told here"
    assert breaks.graph_break(ValueError(text)).id.startswith("GB")
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert breaks.graph_break(ValueError(text)).id == ""
    (tmp_path / "_dynamo").mkdir()
    (tmp_path / "_dynamo" / "graph_break_registry.json").write_text("{ damaged")
    found = breaks.graph_break(ValueError(text))
    assert (found.id, found.explanation) == ("", "told here")


def test_the_registrys_own_words_stand_in_where_the_exception_has_none() -> None:
    type_ = "All __torch_function__ overrides returned NotImplemented due to TypeError from user code"
    found = breaks.graph_break(ValueError(type_))
    assert (found.id, found.type) == ("GB0000", type_)
    assert found.hints and all("{" not in hint for hint in found.hints)


def test_a_failed_compile_shows_the_users_line() -> None:
    length = {"x": {2: Dim("length", min=1, max=32)}}
    unbacked = {"type": "unbacked"}
    problem = refused(Convolves(), torch.randn(1, 4, 9), length, dynamic_shapes_config=unbacked)
    assert isinstance(problem, build_errors.CompileFailed)
    assert type(problem.__cause__).__name__ == "InductorError"
    line = line_of("# the operator that fails")
    assert f"{HERE}:{line} in forward: z = self.conv(y)" in problem.fields["where"]
    assert problem.fields["where"] in str(problem)


def traced(*stacks: str | None) -> fx.GraphModule:
    graph = fx.Graph()
    value = graph.placeholder("x")
    for stack in stacks:
        value = graph.call_function(torch.sin, (value,))
        value.stack_trace = stack
    graph.output(value)
    return fx.GraphModule({}, graph)


def frame(number: int) -> str:
    ours = '  File "<sizewise trace 0>", line 2, in traced'
    return f'{ours}\n  File "/m.py", line {number}, in forward\n    y{number} = f(x)\n'


@pytest.mark.parametrize(
    ("stacks", "shown"),
    [
        ([], ""),
        ([None], ""),
        (['  File "<sizewise trace 0>", line 2, in traced\n'], ""),
        ([frame(3), frame(3)], "\n  at /m.py:3 in forward: y3 = f(x)"),
        ([frame(3), frame(5), frame(9)], "\n  at /m.py:3 in forward: y3 = f(x)\n  to /m.py:9 in forward: y9 = f(x)"),
        (['  File "/m.py", line 3, in forward\n'], "\n  at /m.py:3 in forward"),
        (
            [frame(4) + '  File "/env/torch/nn/functional.py", line 7, in conv\n    return _conv(x)\n'],
            "\n  at /m.py:4 in forward: y4 = f(x)",
        ),
    ],
)
def test_without_a_failing_node_the_lines_of_the_piece_are_shown(stacks: list[str | None], shown: str) -> None:
    assert lines.location_in(traced(*stacks), ValueError("the compiler said no")) == shown


def test_a_failing_node_is_found_behind_causes_that_go_in_a_circle() -> None:
    graph = traced(frame(3), frame(5))

    class Fails(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            if n.stack_trace == frame(5):
                raise KeyError("no lowering")
            return super().run_node(n)

    with pytest.raises(KeyError) as seen:
        Fails(graph).run_node(list(graph.graph.nodes)[2])
    outer = ValueError("wrapped")
    outer.__cause__ = seen.value
    seen.value.__context__ = outer
    assert lines.location_in(graph, outer) == "\n  at /m.py:5 in forward: y5 = f(x)"


@torch.library.custom_op("sizewise_build_errors::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[0], 1)


@rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(3, 1)  # wrong: it has as many rows as x


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        counted: torch.Tensor = rows(x)
        return counted.reshape(counted.shape[0]) * 2


def test_without_the_self_test_a_program_that_raises_at_the_example_is_not_served() -> None:
    settings: dict[str, Any] = {"backend": "eager", "self_test": False}
    problem = refused(Rows(), torch.randn(2, 4), BATCH, **settings)
    assert isinstance(problem, build_errors.ProgramFails)
    assert "invalid for input of size 2" in str(problem)
    assert isinstance(problem.__cause__, RuntimeError)
