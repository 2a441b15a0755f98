"""Cut a traced graph at its splitting operators into steps, in the original order.

A *piece* is a run of operators between two cuts and becomes a graph of its own; the operators at the
cuts are called as they are. Sizes are never handed from piece to piece: each piece that needs one
computes it from the symbols, so that equal layers stay equal graphs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from .errors import trace as errors
from .trace.graph import TracedGraph


@dataclass
class Piece:
    """A subgraph to compile. ``inputs`` and ``outputs`` are names of values of the traced graph."""

    index: int
    graph: fx.GraphModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def sym_shape_indices(self) -> tuple[int, ...]:
        """Positions of the inputs that are sizes."""
        holders = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        return tuple(i for i, node in enumerate(holders) if not is_tensor_like(node))


@dataclass
class SplitCall:
    """Operators that are called between pieces, as the model wrote them."""

    nodes: list[fx.Node]
    operator: str


Step = Piece | SplitCall

SHOWN = 6
"""Names in an error: at most so many."""
_NEVER_COMPILED = ("aten::_assert_async",)
"""Operators that are always called between pieces: Inductor drops this check of values on a CPU (torch 2.13)."""


def is_size(node: fx.Node) -> bool:
    """Whether a node's value is a symbolic size (or a condition on one)."""
    return isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool, torch.SymFloat))


def is_tensor_like(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def operator_name(node: fx.Node) -> str:
    """The operator a node calls as ``namespace::name``; '' for what is no operator.

    Dynamo's graph holds torch functions and methods, not overloads: ``torch.nn.functional.softmax`` and
    ``x.softmax()`` are both ``aten::softmax``.
    """
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return str(target._qualified_op_name)
    if node.op == "call_method":
        return f"aten::{target}"
    if node.op == "call_function":
        module = getattr(target, "__module__", None) or ""
        if module.startswith(("torch", "_operator")) or not module:
            return f"aten::{getattr(target, '__name__', target)}"
    return ""


def split(traced: TracedGraph, splitting_ops: Sequence[str | type], user_set: bool) -> list[Step]:
    """The steps of ``traced``, cut at ``splitting_ops`` (operator names and module classes).

    ``user_set`` says that a user listed them: a name that cuts nothing is then an error.

    Raises:
        UnknownSplittingOp (SW216): no such operator, or it does not occur in the graph.
    """
    cuts = _cuts(traced.graph, splitting_ops, user_set)
    groups = _groups(traced.graph, cuts)
    used_outside = _uses(groups)
    steps: list[Step] = []
    for kind, nodes in groups:
        if kind == "split":
            steps.append(SplitCall(nodes, cuts[nodes[0]]))
        else:
            steps.append(_piece(len([s for s in steps if isinstance(s, Piece)]), traced.graph, nodes, used_outside))
    return steps


def _cuts(graph: fx.GraphModule, splitting_ops: Sequence[str | type], user_set: bool) -> dict[fx.Node, str]:
    """Nodes to call between pieces -> what names them in reports."""
    cuts: dict[fx.Node, str] = {}
    hits = dict.fromkeys(splitting_ops, 0)
    for node in graph.graph.nodes:
        if node.op not in ("call_function", "call_method") or is_size(node):
            continue
        if getattr(node.target, "__name__", "") == "getitem" and not is_tensor_like(node.args[0]):
            continue  # an item of a tuple of results stays with what made the tuple
        name = operator_name(node)
        if name in _NEVER_COMPILED:
            cuts[node] = name
        for wanted in splitting_ops:
            if wanted == name or (isinstance(wanted, type) and _inside(node, wanted)):
                cuts[node] = name if isinstance(wanted, str) else wanted.__name__
                hits[wanted] += 1
    if user_set:
        for wanted, count in hits.items():
            if not count:
                _refuse_name(wanted, graph)
    _keep_items_with_producer(graph, cuts)
    return cuts


def _inside(node: fx.Node, cls: type) -> bool:
    """Whether a node was traced inside a module of class ``cls``."""
    classes = [entry[1] for entry in (node.meta.get("nn_module_stack") or {}).values()]
    names = (cls, f"{cls.__module__}.{cls.__qualname__}")
    return any(found in names for found in classes)


def _keep_items_with_producer(graph: fx.GraphModule, cuts: dict[fx.Node, str]) -> None:
    """The items of an operator's tuple of results are taken where the operator is called."""
    for node in graph.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem":
            producer = node.args[0]
            if producer in cuts and not is_tensor_like(producer):
                cuts[node] = cuts[producer]


def _refuse_name(wanted: str | type, graph: fx.GraphModule) -> None:
    names = sorted({operator_name(node) for node in graph.graph.nodes} - {""})
    if isinstance(wanted, type):
        classes = _classes(graph)
        some = f"the class of a module that runs ({', '.join(classes[:SHOWN])}), or " if classes else ""
        todo = f"name {some}an operator of the graph: {', '.join(names[:SHOWN])}."
        problem = "is a class of no module that runs"
        raise errors.UnknownSplittingOp(name=wanted.__name__, problem=problem, near="", todo=todo)
    plain, _, overload = wanted.partition(".")
    if overload and plain in names:
        problem = f"is an overload; the graph has the operator, {plain}, without one"
        raise errors.UnknownSplittingOp(name=wanted, problem=problem, near="", todo=f"write {plain!r}.")
    problem = "does not occur in the graph" if _exists(plain) else "is not a registered operator"
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    near = f" Close names in the graph: {', '.join(close)}." if close else ""
    todo = f"name an operator of the graph ({', '.join(close or names[:SHOWN])}), or the class of a module that runs."
    raise errors.UnknownSplittingOp(name=wanted, problem=problem, near=near, todo=todo)


def _classes(graph: fx.GraphModule) -> list[str]:
    """The classes of the user's modules that run, by name; not the one that stands around a plain function."""
    stacks = [node.meta.get("nn_module_stack") or {} for node in graph.graph.nodes]
    found = {entry[1] for stack in stacks for entry in stack.values()}
    names = {cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}" for cls in found}
    return sorted({name.rpartition(".")[2] for name in names if not name.startswith("sizewise.")})


def _exists(name: str) -> bool:
    namespace, _, operator = name.partition("::")
    return bool(operator) and hasattr(getattr(torch.ops, namespace), operator)


def _groups(graph: fx.GraphModule, cuts: dict[fx.Node, str]) -> list[tuple[str, list[fx.Node]]]:
    """Runs of nodes: to compile, or to call as they are. Consecutive split calls are one step."""
    groups: list[tuple[str, list[fx.Node]]] = []
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr") or is_size(node):
            continue
        kind = "split" if node in cuts else "piece"
        if groups and groups[-1][0] == kind:
            groups[-1][1].append(node)
        else:
            groups.append((kind, [node]))
    return _merge_allocations(groups)


def _merge_allocations(groups: list[tuple[str, list[fx.Node]]]) -> list[tuple[str, list[fx.Node]]]:
    """A piece that only allocates an output is joined with the piece before it, over no split call.

    It would be compiled and called for nothing else; its order among other operators is free.
    """
    merged: list[tuple[str, list[fx.Node]]] = []
    for kind, nodes in groups:
        only_allocates = kind == "piece" and all(
            getattr(node.target, "__name__", str(node.target)).startswith(("empty", "new_empty")) for node in nodes
        )
        earlier = next((group for group in reversed(merged) if group[0] == "piece"), None)
        if only_allocates and earlier is not None and not any(_reads(node, merged[-1][1]) for node in nodes):
            earlier[1].extend(nodes)
        else:
            merged.append((kind, nodes))
    # Split calls that have become neighbours are one step.
    joined: list[tuple[str, list[fx.Node]]] = []
    for kind, nodes in merged:
        if joined and joined[-1][0] == kind:
            joined[-1][1].extend(nodes)
        else:
            joined.append((kind, nodes))
    return joined


def _reads(node: fx.Node, producers: Iterable[fx.Node]) -> bool:
    return any(source in producers for source in node.all_input_nodes)


def _uses(groups: list[tuple[str, list[fx.Node]]]) -> dict[fx.Node, bool]:
    """Node -> whether something outside its own group reads it."""
    home = {node: index for index, (_, nodes) in enumerate(groups) for node in nodes}
    outside: dict[fx.Node, bool] = {}
    for node, index in home.items():
        outside[node] = any(home.get(user, -1) != index for user in node.users if not is_size(user))
        # A size taken from a tensor is computed by whoever needs it, from symbols.
    return outside


def _piece(index: int, root: fx.GraphModule, nodes: list[fx.Node], used_outside: dict[fx.Node, bool]) -> Piece:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[str] = []
    members = set(nodes)
    needed = _with_sizes(nodes)
    # In the order of first use: where a value was computed differs between the first layer and the others.
    for source in dict.fromkeys(source for node in needed for source in node.all_input_nodes):
        if source in members or (is_size(source) and source.op != "placeholder") or source.op == "get_attr":
            continue
        copies[source] = graph.placeholder(source.name)
        copies[source].meta = dict(source.meta)
        inputs.append(source.name)
    for node in needed:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in copies:
                copies[source] = graph.node_copy(source)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [node for node in nodes if used_outside[node] and is_tensor_like(node)]
    graph.output(tuple(copies[node] for node in outputs))
    module = fx.GraphModule(root, graph)
    # A piece without outputs is not dead: it may write to its inputs, and Dynamo left no dead code behind.
    return Piece(index, module, tuple(inputs), tuple(node.name for node in outputs))


def _with_sizes(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes in order, each behind the size arithmetic it is the first to read.

    Every piece does that arithmetic for itself, and at the place of its use: where the traced graph first
    did it differs between the first layer and the others.
    """
    ordered: dict[fx.Node, None] = {}

    def visit(node: fx.Node) -> None:
        for source in node.all_input_nodes:
            if is_size(source) and source.op != "placeholder" and source not in ordered:
                visit(source)
        ordered.setdefault(node)

    for node in nodes:
        visit(node)
    return list(ordered)
