"""A program's own graph as a callable in eager mode: what the row analysis reads, whatever compiled the pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx, nn

from ...calls import Call
from ...program import load_caller
from ...weights import WeightBinding

if TYPE_CHECKING:
    from ...caller import BuiltProgram  # which imports the tracer


def program_run(program: BuiltProgram, module: nn.Module) -> Callable[[Call], Any]:
    """The program with its pieces run operator by operator.

    Unlike the module, it takes the same way through the code whatever the values are. It makes no entry check: calls
    are contiguous and in range.
    """
    traced = program.traced
    pieces = [_in_eager_mode(piece.graph) for piece in program.pieces]
    function = load_caller(program.source, program.scope, pieces, f"{traced.owner} in eager mode")
    # Here, not at each call: what fetching compares is no part of what is logged.
    weights = WeightBinding(module, program.weight_inputs, traced.owner).fetch()
    places = {dim.name: (path, axis) for path, axes in traced.spec.items() for axis, dim in axes.items()}

    def run(call: Call) -> Any:
        tensors = call.tensor_values()
        sizes = [tensors[path].shape[axis] for path, axis in (places[name] for name in program.size_names)]
        return function(weights, *sizes, *(tensors[path] for path in program.arguments))

    return run


def _in_eager_mode(graph: fx.GraphModule) -> Callable[..., Sequence[Any]]:
    forward = graph.forward

    def run(inputs: list[Any]) -> Sequence[Any]:
        found: Sequence[Any] = forward(*inputs)
        return found

    return run
