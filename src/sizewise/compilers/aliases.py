"""Whether generated code hands out views of its inputs as views, so that nothing has to make them again.

Around a graph whose outputs are views of its inputs, AOTAutograd puts code that makes these views anew, for gradients
and for outputs that were copied. Generated code that returns ``reinterpret_tensor(input, ...)``, or the input itself,
needs none of that.

Private API: ``ViewAndMutationMeta.output_info`` with ``output_type``, the form of what Inductor generates. Checked on
torch 2.13.0. Where either is not as expected, the answer is no.
"""

from __future__ import annotations

import ast
from typing import Any


def returns_views(meta: Any, source: str) -> bool:
    """Whether every output that ``meta`` calls a view of an input is one in ``source``."""
    try:
        wanted = [
            index
            for index, output in enumerate(meta.output_info)
            if output.output_type.name in ("alias_of_input", "is_input")
        ]
        inputs, returned = _inputs_and_outputs(ast.parse(source))
        return all(_root(returned[index]) in inputs for index in wanted)
    except (AttributeError, IndexError, SyntaxError, ValueError):
        return False  # of another form than is known here


def _inputs_and_outputs(tree: ast.Module) -> tuple[set[str], list[ast.expr]]:
    """The names that ``call`` unpacks its arguments into, and the expressions it returns."""
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "call")
    (unpack,) = (
        node
        for node in call.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == "args"
    )
    target = unpack.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    inputs = {name.id for name in names if isinstance(name, ast.Name)}
    # A name that is given something else later is no input any more.
    stored = [node.id for node in ast.walk(call) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    inputs -= {name for name in inputs if stored.count(name) > 1}
    (result,) = (node.value for node in ast.walk(call) if isinstance(node, ast.Return))
    return inputs, result.elts if isinstance(result, ast.Tuple) else []


def _root(value: ast.expr) -> str:
    """The name that an expression is, or is a view of; '' for any other expression."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "reinterpret_tensor":
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) else ""
