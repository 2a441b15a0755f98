"""An exception of Dynamo as an error of Sizewise: what happened in the user's words, where, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

import sympy
import torch
from torch import fx

from ..calls import Call
from ..errors import trace as errors
from ..traced.paths import ARGUMENT, MODULE
from .breaks import graph_break
from .evidence import Effect
from .lines import node_location, user_location
from .shapes import expression

_DATA_DEPENDENT = ("data-dependent expression", "Could not guard on data-dependent", "data dependent")


class SizeGuard(Exception):
    """The trace needed to know a size. Internal: the policy decides what to do about it."""

    def __init__(self, reason: str, where: str, graph_break: str) -> None:
        super().__init__(reason)
        self.reason, self.where, self.graph_break = reason, where, graph_break


def explain(problem: Exception, owner: str, call: Call) -> NoReturn:
    """Raise ``problem`` as NotTraceable (SW207), or as SizeGuard where another policy may do."""
    text = str(problem)
    where = user_location(problem)
    known = graph_break(problem)
    if "cannot be converted to Scalar" in text:
        # The code around the graph took a number out of a stand-in.
        reason = "it returns a number taken from a tensor, or computed from a size as a float"
        hint = "return the tensor, or the size itself, and compute the number outside."
        raise errors.NotTraceable(
            owner=owner, reason=reason, where=where, graph_break=str(known), hint=hint
        ) from problem
    reason = in_words(_first_line(text), call)
    size_guard = any(sign in text for sign in (*_DATA_DEPENDENT, "GuardOnDataDependentSymNode", "ConstraintViolation"))
    if size_guard or type(problem).__name__ == "ConstraintViolationError":
        raise SizeGuard(reason=reason, where=where, graph_break=str(known)) from problem
    hint = next((way_out for sign, way_out in _WAYS_OUT.items() if sign in text), "")
    if not hint and known.hints:
        hint = known.hints[0] if not known.id else "follow torch's hint, or compile the modules around that line."
    hint = hint or "rewrite that line, or compile the parts of the module around it."
    raise errors.NotTraceable(owner=owner, reason=reason, where=where, graph_break=str(known), hint=hint) from problem


def _first_line(text: str) -> str:
    """The part of a torch message that says what happened, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    failed = re.search(r"got (\w+)\((['\"])(.+?)\2\)", text)
    if failed and "fake tensor" in text:
        return f"{failed.group(1)}: {failed.group(3)}"
    telling = [line for line in lines if line.startswith("- Not all values") or "Could not guard" in line]
    return (telling or lines or ["no message"])[0].removeprefix("- ")


_WAYS_OUT = {
    "builtin `print`": "remove the print from the forward.",
    "no fake impl registered": "register one with the operator's register_fake: the result's shape, uncomputed.",
    "when making fake tensor call": "run the module in eager mode on these inputs: it probably fails there as well.",
    "Data-dependent branching": "use torch.where instead of the branch, or pass the condition in as a Python value.",
    "Data dependent operator": "use a mask instead of a size or value taken from the data.",
    "item() call": "keep the value a tensor, or pass it in as a Python number.",
}
"""What to do by a part of torch's message; torch's own hints speak of torch.compile."""


def in_words(reason: str, call: Call) -> str:
    """Dynamo's names for the traced function's locals replaced by the user's."""
    reason = reason.replace(f"L['{MODULE}']", "self")
    reason = re.sub(rf"L\['{ARGUMENT}(\d+)'\]", lambda found: call.passed[int(found.group(1))].path, reason)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", reason)


def side_effect(effects: Sequence[Effect], owner: str, call: Call) -> errors.SideEffect:
    """SW211 with the attributes that are set and the first line that sets one."""
    names = [name for effect in effects for name in _changed(effect, call)]
    where = next((effect.where for effect in effects if effect.where), "")
    if any(effect.source.endswith("._buffers") for effect in effects):
        todo = f"an assignment, += included, puts another tensor there; write into the buffer: {names[0]}.add_(1), say."
    elif any(effect.attributes and MODULE in effect.source for effect in effects):
        name = names[0].rpartition(".")[2]
        todo = (
            f"return the value instead, or make {name} a buffer that is written in place: in __init__ "
            f'self.register_buffer("{name}", torch.zeros(())) in the place of its assignment, and here '
            f"self.{name}.add_(1) or .copy_(), as an assignment, += included, puts another object there."
        )
    else:
        todo = "return the value instead, or keep it in a registered buffer that is written in place."
    return errors.SideEffect(owner=owner, sources=", ".join(names), where=where, todo=todo)


def _changed(effect: Effect, call: Call) -> list[str]:
    """The changed object's name, or those of its attributes: ``self.inner.n``, ``the global n of my.module``."""
    source = re.sub(r"\._modules\['([^']*)'\]", r".\1", in_words(effect.source, call))
    imported = re.fullmatch(r"G\['__import_(.+)'\]", source)
    if imported is not None:
        module = imported.group(1).replace("_dot_", ".")
        return [f"the global {name} of {module}" for name in effect.attributes] or [f"a global of {module}"]
    base = re.sub(r"\._(buffers|parameters|modules)$", "", source) if effect.attributes else source
    return [f"{base}.{name}" for name in effect.attributes] or [source]


def needs_data(problem: SizeGuard) -> bool:
    """Whether a trace with a hint for every size still needed a value: then it is one that comes from the data."""
    return any(sign in problem.reason for sign in _DATA_DEPENDENT)


def data_branch(problem: SizeGuard, owner: str) -> errors.NotTraceable:
    """SW207 for code that goes by a number that is only known with the data."""
    return errors.NotTraceable(
        owner=owner,
        reason="a Python branch or a size goes by a number that depends on the data",
        where=problem.where,
        graph_break=problem.graph_break,
        hint="use torch.where or a mask instead, or compute the number outside and pass it in as a Python number.",
    )


def data_dependent(owner: str, node: fx.Node | None, where: str) -> errors.NotTraceable:
    """SW207 for a size or number that is only known with the data; ``node`` of the graph makes it, where known."""
    name = _operator(node)
    if name in ("item", "tolist", "_local_scalar_dense"):
        reason = "it takes a number out of a tensor (.item(), int(), float() or .tolist()), which depends on the data"
        hint = "keep the value a tensor, without .item(); or compute it outside and pass it in, as a tensor."
    elif name in _SELECT:
        what = "indexing with a mask" if name == "getitem" else name
        reason = f"the size of the result of {what} depends on the data"
        hint = "use a mask (torch.where, or a product with it) instead of selecting elements."
    else:
        reason = f"a size or value{f' that {name} makes' if name else ''} depends on the data"
        hint = "compile the parts of the module around it."
    where = (node_location(node) if node is not None else "") or where
    return errors.NotTraceable(owner=owner, reason=reason, where=where, graph_break="", hint=hint)


_SELECT = ("getitem", "nonzero", "argwhere", "where", "masked_select", "unique", "unique_consecutive", "bincount")


def _operator(node: fx.Node | None) -> str:
    """The plain name of what a node calls: ``nonzero`` for the method, the function and the operator."""
    if node is None or node.op not in ("call_function", "call_method"):
        return ""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.split(".")[0]


def asserted_at(graph: fx.GraphModule, condition: sympy.Basic) -> str:
    """The user's line behind the node that computes a condition on sizes, or ''."""
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymBool) and expression(value) == condition:
            return node_location(node)
    # Torch asserted it by itself: at the first operator that got a size which the condition is about.
    about = {part for part in sympy.preorder_traversal(condition) if part is not condition and part.args}
    for node in graph.graph.nodes:
        for given in node.all_input_nodes:
            value = given.meta.get("example_value")
            sizes = value.shape if isinstance(value, torch.Tensor) else ()
            if any(isinstance(size, torch.SymInt) and expression(size) in about for size in sizes):
                return node_location(node)
    return ""
