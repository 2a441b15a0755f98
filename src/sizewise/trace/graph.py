"""A traced module: the graph, where its inputs come from, what it returns, what it assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx, nn

from ..calls import Call
from ..dims import Dim, DimSpec
from ..errors import trace as errors
from ..traced import Assumption, GraphInput, Output, SizeFunction, SourcePath, Traced
from ..traced.code import TracedCode
from ..traced.files import digests_of
from ..traced.paths import MODULE, argument_path, module_path
from ..traced.state import held_objects
from . import dynamo
from .lines import node_location, whole_path
from .outputs import read_template, with_sizes
from .problems import asserted_at, data_dependent, side_effect
from .shapes import GENERAL_WAY_OUT, SymbolTable, expression, settle, way_out


@dataclass(kw_only=True)
class TracedGraph(Traced):
    """The result of one trace. ``graph`` keeps torch's own example values in ``meta``."""

    graph: fx.GraphModule
    symbols: SymbolTable
    fake_mode: Any
    context: Any
    seconds: float = 0.0
    settled: set[Any] = field(default_factory=set)
    """Conditions on sizes that were decided; a compiler may add more."""


def interpret(
    raw: dynamo.RawTrace,
    module: nn.Module,
    spec: DimSpec,
    dims: Mapping[str, Dim],
    policy: Mapping[str, str],
    owner: str,
) -> TracedGraph:
    """Everything a raw trace says, in the user's words; refuses what cannot be kept.

    Raises:
        SideEffect (SW211), OutputClass (SW212), UnboundInput (SW218), SizeSpecialized (SW209),
        SizeAssumption (SW210), RandomOperator (SW217), NotTraceable (SW207), EmptyGraph (SW219).
    """
    if raw.side_effects:
        raise side_effect(raw.side_effects, owner, raw.call)
    _refuse_random(raw.graph, owner)
    symbols, equal_dims = _symbols(raw, spec, dims)
    inputs = [_input(node, raw, module, symbols, owner) for node in _placeholders(raw.graph)]
    assumptions = equal_dims + _assumptions(raw, symbols, owner)
    _drop_assertions(raw.graph)
    _use_symbol_inputs(raw.graph)
    if not any(node.op.startswith("call") for node in raw.graph.graph.nodes):
        raise errors.EmptyGraph(owner=owner)
    raw.graph.graph.lint()
    raw.graph.recompile()
    traced = TracedGraph(
        owner=owner,
        graph=raw.graph,
        inputs=inputs,
        template=_template(raw, module, symbols, owner),
        spec=spec,
        dims=dict(dims),
        policy=dict(policy),
        symbols=symbols,
        assumptions=assumptions,
        guards=raw.guards,
        call=raw.call,
        fake_mode=raw.fake_mode,
        context=raw.context,
        scope=raw.scope,
        code=TracedCode.of(_code(raw)),
        sources=digests_of(_code(raw)),
    )
    traced.settled = set(_conditions(raw.fake_mode.shape_env))
    return traced


def _placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _user_path(source: SourcePath, call: Call) -> str | None:
    """The argument path of a source, or None when it is not an argument."""
    root = argument_path(source.root, call) if source.root_kind == "local" else None
    if root is None or any(kind != "item" for kind, _ in source.steps):
        return None
    return root + "".join(f"[{key!r}]" for _, key in source.steps)


def _symbols(raw: dynamo.RawTrace, spec: DimSpec, dims: Mapping[str, Dim]) -> tuple[SymbolTable, list[Assumption]]:
    """Which symbol stands for which dim, and dims the trace made equal to one another.

    Raises:
        SizeSpecialized (SW209): the trace fixed a declared dim.
    """
    names: dict[sympy.Symbol, str] = {}
    equal: dict[tuple[str, str], Assumption] = {}
    for node in _placeholders(raw.graph):
        value = node.meta.get("example_value")
        source = dynamo.path_of_input(node)
        path = _user_path(source, raw.call) if source is not None else None
        if path is None or not isinstance(value, torch.Tensor):
            continue
        for axis, dim in spec.get(path, {}).items():
            expr = expression(value.shape[axis])
            if not isinstance(expr, sympy.Symbol):
                where = _fixed_at(raw.fake_mode.shape_env, expr, _code(raw))
                raise errors.SizeSpecialized(dim=dim.name, seen=expr, min=dim.min, max=dim.max, where=where)
            name = names.setdefault(expr, dim.name)
            if name != dim.name:
                text = f"{name} == {dim.name}"
                equal[name, dim.name] = Assumption(text, "checked", "at every call", relation=(name, dim.name))
    # A symbol that was merged into another one still stands in earlier conditions.
    for symbol, kept in raw.fake_mode.shape_env.replacements.items():
        if kept in names:
            names.setdefault(symbol, names[kept])
    return SymbolTable(names, dims), list(equal.values())


def _input(node: fx.Node, raw: dynamo.RawTrace, module: nn.Module, symbols: SymbolTable, owner: str) -> GraphInput:
    source = dynamo.path_of_input(node)
    value = node.meta.get("example_value")
    text = dynamo.source_in_words(node)
    if source is None or source.root_kind != "local":
        raise errors.UnboundInput(owner=owner, source=text)
    path = _user_path(source, raw.call)
    if not isinstance(value, torch.Tensor):
        if path is None or source.size_axis is None:
            raise errors.UnboundInput(owner=owner, source=text)
        return GraphInput("size", node.name, path, axis=source.size_axis)
    meta = {
        "shape": tuple(_size(item, symbols) for item in value.shape),
        "stride": tuple(_size(item, symbols) for item in value.stride()) if value.layout == torch.strided else (),
        "dtype": value.dtype,
        "device": value.device,
    }
    if path is not None:
        return GraphInput("dynamic", node.name, path, **meta)
    if source.root != MODULE:
        raise errors.UnboundInput(owner=owner, source=text)
    kind = "attribute"
    if len(source.steps) >= 2 and source.steps[-2] == ("attr", "_parameters"):
        kind = "parameter"
    elif len(source.steps) >= 2 and source.steps[-2] == ("attr", "_buffers"):
        kind = "buffer"
    return GraphInput(kind, node.name, module_path(source.steps), source.steps, **meta)


def _size(value: Any, symbols: SymbolTable) -> int | SizeFunction:
    return value if isinstance(value, int) else symbols.function(value)


def _assumptions(raw: dynamo.RawTrace, symbols: SymbolTable, owner: str) -> list[Assumption]:
    """Every condition on sizes the trace relied on, settled over the declared ranges."""
    settled: list[Assumption] = []
    for expr, where in _conditions(raw.fake_mode.shape_env, _code(raw)).items():
        unknown = symbols.unknown(expr)
        if unknown:
            _refuse_data_dependent(unknown, owner, raw.graph, where)
        assumption = settle(expr, symbols)
        if assumption.verdict == "refuted":
            point = ", ".join(f"{name}={size}" for name, size in assumption.counterexample)
            raise errors.SizeAssumption(
                owner=owner,
                assumption=assumption.text,
                counterexample=point,
                where=where or asserted_at(raw.graph, expr),
                todo=way_out(assumption, symbols),
            )
        settled.append(assumption)
    for node in raw.graph.graph.nodes:
        for symbol in _symbols_of(node.meta.get("example_value")):
            if symbol not in symbols.names:
                _refuse_data_dependent([symbol], owner, raw.graph, node_location(node))
    return settled


def _code(raw: dynamo.RawTrace) -> frozenset[Any]:
    return frozenset(getattr(raw.context, "traced_code", None) or ())


def _conditions(env: Any, code: frozenset[Any] = frozenset()) -> dict[sympy.Basic, str]:
    """Every condition a shape environment holds, and where it came from."""
    conditions: dict[sympy.Basic, str] = {}
    for guard in env.guards:
        conditions.setdefault(guard.expr, _where(getattr(guard, "sloc", None), code))
    for asserts in env.deferred_runtime_asserts.values():
        for item in asserts:
            conditions.setdefault(item.expr, _stack_where(item))
    return conditions


def check_compilers_conditions(traced: TracedGraph, dims: Mapping[str, Dim]) -> None:
    """Settle what a compiler assumed about sizes while it compiled for ``dims``; later calls skip what was.

    Raises:
        SizeAssumption (SW210): an assumption that is false somewhere in ``dims``.
    """
    table = SymbolTable(traced.symbols.names, dims)
    for expr in _conditions(traced.fake_mode.shape_env):
        if expr in traced.settled:
            continue
        traced.settled.add(expr)
        if table.unknown(expr):
            _refuse_data_dependent(table.unknown(expr), f"the code compiled for {traced.owner}", traced.graph, "")
        assumption = settle(expr, table)
        if assumption.verdict != "proved":
            point = ", ".join(f"{name}={size}" for name, size in assumption.counterexample)
            raise errors.SizeAssumption(
                owner=f"the code compiled for {traced.owner}",
                assumption=assumption.text,
                counterexample=point or "some sizes",
                where="",
                todo=GENERAL_WAY_OUT,
            )
        traced.assumptions.append(assumption)


def _symbols_of(value: Any) -> set[sympy.Symbol]:
    if isinstance(value, torch.Tensor):
        sizes = [size for size in value.shape if isinstance(size, torch.SymInt)]
        return set().union(*(expression(size).free_symbols for size in sizes)) if sizes else set()
    if isinstance(value, (tuple, list)):
        return set().union(*map(_symbols_of, value)) if value else set()
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return set(expression(value).free_symbols)
    return set()


def _refuse_data_dependent(unknown: list[sympy.Symbol], owner: str, graph: fx.GraphModule, where: str) -> None:
    makers = (node for node in graph.graph.nodes if _symbols_of(node.meta.get("example_value")) & {*unknown})
    raise data_dependent(owner, next(makers, None), where)


def _where(location: Any, code: frozenset[Any]) -> str:
    """The user's line of a torch location, whose text is ``code  # file:line in function``; '' where it has none.

    Private API: ``SLoc.maybe_user_loc``. Checked on torch 2.13.0.
    """
    text, mark, place = str(getattr(location, "maybe_user_loc", "") or "").rpartition("  # ")
    return f"\n  at {whole_path(place, code)}: {text}" if mark and "<sizewise" not in place else ""


def _fixed_at(env: Any, size: sympy.Basic, code: frozenset[Any]) -> str:
    """The user's line that made a symbol equal to ``size``; '' where that is not known or several were.

    Private API: ``ShapeEnv.replacements_slocs``. Checked on torch 2.13.0.
    """
    places = getattr(env, "replacements_slocs", {})
    found = [places[symbol] for symbol, kept in env.replacements.items() if kept == size and symbol in places]
    return _where(found[0], code) if len(found) == 1 else ""


def _stack_where(item: Any) -> str:
    frames = [frame for frame in item.stack.summary() if "/torch/" not in frame.filename]
    frames = [frame for frame in frames if "sizewise" not in frame.filename]
    if not frames:
        return ""
    return f"\n  at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {frames[-1].line}"


_RANDOM = {
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "randint",
    "randint_like",
    "randperm",
    "bernoulli",
    "multinomial",
}
_RANDOM |= {
    "normal",
    "poisson",
    "uniform_",
    "normal_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "random_",
}
_RANDOM |= {"log_normal_", "rrelu", "native_dropout"}
_DROPOUTS = {
    "dropout",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
}


def _refuse_random(graph: fx.GraphModule, owner: str) -> None:
    for node in graph.graph.nodes:
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        name = str(name).split(".")[0]
        drops = name in _DROPOUTS and _is_training(node)
        tags = getattr(node.target, "tags", ())
        if name in _RANDOM or drops or torch.Tag.nondeterministic_seeded in tags:
            raise errors.RandomOperator(owner=owner, operator=name, where=node_location(node))


def _is_training(node: fx.Node) -> bool:
    """Whether a dropout call really drops: (input, p, training, ...)."""
    p = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
    training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
    return bool(training) and p != 0


_QUESTIONS = {"size", "dim", "stride", "numel", "is_contiguous", "storage_offset"}
"""Methods of tensors that compute nothing."""


def _drop_assertions(graph: fx.GraphModule) -> None:
    """Remove run-time asserts on sizes, each settled before for every size in range, and what nobody reads."""
    for node in reversed(list(graph.graph.nodes)):
        is_assert = node.op == "call_function" and node.target in (
            torch.ops.aten._assert_scalar.default,
            torch._check,
        )
        is_unused_size = not node.users and isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymBool))
        constant_check = not node.users and isinstance(node.meta.get("example_value"), bool)
        is_question = not node.users and node.op == "call_method" and node.target in _QUESTIONS
        is_statistics = getattr(node.target, "__name__", "") == "_log_api_usage_once"
        unused_value = node.op == "call_function" and (is_unused_size or constant_check)
        if is_assert or unused_value or is_question or is_statistics:
            graph.graph.erase_node(node)


def _use_symbol_inputs(graph: fx.GraphModule) -> None:
    """Read each size from the one placeholder that holds it, not from whichever tensor was near."""
    holders: dict[sympy.Symbol, fx.Node] = {}
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if not isinstance(value, torch.SymInt):
            continue
        expr = expression(value)
        if node.op == "placeholder":
            holders.setdefault(expr, node)
        elif expr in holders and node is not holders[expr]:
            node.replace_all_uses_with(holders[expr])
    for node in reversed(list(graph.graph.nodes)):
        if node.op == "call_function" and not node.users and isinstance(node.meta.get("example_value"), torch.SymInt):
            graph.graph.erase_node(node)


def _template(raw: dynamo.RawTrace, module: nn.Module, symbols: SymbolTable, owner: str) -> Output:
    known: dict[int, tuple[str, str]] = {}
    for name, tensor in [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]:
        known[id(tensor)] = ("tensor", name)
    for leaf in raw.call.tensors():
        known[id(leaf.value)] = ("input", leaf.path)

    def view_of_input(value: torch.Tensor) -> int | None:
        return _promote_view(value, raw)

    markers = (dynamo.is_int_marker, dynamo.holds_marker)
    held = {id(value): name for name, value in held_objects(module).items()}
    template = read_template(raw.result, raw.markers, markers, known, view_of_input, owner, held)
    outputs = next(reversed(raw.graph.graph.nodes)).args[0]
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else node for node in outputs]
    return with_sizes(template, values, lambda value: _size(value, symbols))


def _promote_view(value: torch.Tensor, raw: dynamo.RawTrace) -> int | None:
    """Make a view of an argument that the forward returns (``x.T``) an output of the graph.

    Dynamo takes such a view outside the graph; the graph still holds its node, without users. It is
    known by the storage it shares with the argument and by its shape, and has to be the only one.
    """
    bases = [leaf for leaf in raw.call.tensors() if _storage(leaf.value) == _storage(value)]
    placeholders = {
        _user_path(source, raw.call): node
        for node in _placeholders(raw.graph)
        if (source := dynamo.path_of_input(node)) is not None
    }
    found = []
    for node in raw.graph.graph.nodes:
        fake = node.meta.get("example_value")
        if node.users or node.op == "placeholder" or not isinstance(fake, torch.Tensor) or fake.ndim != value.ndim:
            continue
        for leaf in bases:
            base = placeholders.get(leaf.path)
            if base is not None and _storage(fake) == _storage(base.meta["example_value"]):
                found.append(node)
    if len(found) != 1:
        return None
    output = next(reversed(raw.graph.graph.nodes))
    output.args = ((*output.args[0], found[0]),)
    return len(output.args[0]) - 1


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
