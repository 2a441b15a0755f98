"""A program as JSON, but for its code, and back: calls, dims, bindings, guards, the output template, effects."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from types import ModuleType
from typing import Any

import torch

from ..calls import Call, Leaf, Passed, Shell
from ..dims import Dim, DimSpec
from ..effects import Effects
from ..guards import PlacesPlan
from ..guards.places import Places
from ..program import Padding, Program, StepName
from ..traced import Assumption, GraphInput, Output, SizeFunction, Traced, files
from ..traced.code import TracedCode
from .values import NotWritable, Unreadable, decode, encode

Json = dict[str, Any]


def write_program(program: Program) -> Json:
    """Everything about ``program`` but its variants' code.

    Raises:
        NotWritable: a value in it has no form as plain data.
    """
    traced = program.traced
    if traced.code.reads_environment:
        raise NotWritable("os.environ, which the forward reads: nothing says which variable")
    unknown = files.unknown(traced.sources)
    if unknown:
        raise NotWritable(unknown)
    return {
        "steps": [[step.key, step.is_piece] for step in program.step_names],
        "weights": _write_inputs(program.weight_inputs),
        "size_names": program.size_names,
        "arguments": program.arguments,
        "effects": _write_effects(program.effects),
        "spec": [
            [path, [[axis, dim.name, dim.min, dim.max] for axis, dim in axes.items()]]
            for path, axes in traced.spec.items()
        ],
        "dims": [[name, dim.min, dim.max] for name, dim in traced.dims.items()],
        "policy": traced.policy,
        "assumptions": [asdict(item) for item in traced.assumptions],
        "call": _write_call(traced.call),
        "template": _write_output(traced.template),
        "watched": _write_inputs(program.watched),
        "code": {
            "digests": sorted(traced.code.digests),
            "asks_requires_grad": traced.code.asks_requires_grad,
            "reads_dicts": traced.code.reads_dicts,
        },
        "sources": traced.sources,
        "notes": traced.notes,
        "blocks": traced.blocks,
        **write_found(program),
    }


def write_found(program: Program) -> Json:
    """What captures found out about a program, also after it was read."""
    return {
        "padding": {name: asdict(verdict) for name, verdict in program.padding.items()},
        "worth": [[size, least] for size, least in program.worth.items()],
    }


def read_program(data: Json, source: str, owner: str) -> Program:
    """What `write_program` wrote, without variants, for a module named ``owner``; ``source`` is its caller's.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, ImportError: ``data`` is something else.
    """
    code = data["code"]
    traced = Traced(
        owner=owner,
        inputs=[],
        template=_read_output(data["template"]),
        spec=_read_spec(data["spec"]),
        dims={name: Dim(name, low, high) for name, low, high in data["dims"]},
        policy=data["policy"],
        assumptions=[_read_assumption(item) for item in data["assumptions"]],
        guards=[],
        call=_read_call(data["call"]),
        code=TracedCode(
            frozenset((name, text) for name, text in code["digests"]),
            False,
            code["asks_requires_grad"],
            code["reads_dicts"],
        ),
        sources=data["sources"],
        notes=data["notes"],
        blocks=data["blocks"],
    )
    return Program(
        traced,
        [StepName(key, is_piece) for key, is_piece in data["steps"]],
        _read_inputs(data["weights"]),
        data["size_names"],
        data["arguments"],
        source,
        [],
        _read_effects(data["effects"]),
        _read_inputs(data["watched"]),
        padding={name: Padding(**verdict) for name, verdict in data["padding"].items()},
        worth={int(size): int(least) for size, least in data["worth"]},
    )


def write_plan(plan: PlacesPlan, scope: Mapping[str, Any]) -> Json:
    """What a snapshot keeps, and the globals that its paths begin with.

    Raises:
        NotWritable: a key or a global has no form as plain data.
    """
    return {
        "nodes": [[parent, kind, encode(key)] for parent, kind, key in plan.nodes],
        "instructions": [list(map(encode, call)) for call in plan.instructions],
        "globals": {name: _write_global(name, scope[name]) for name in plan.roots()},
    }


def read_plan(data: Json) -> tuple[PlacesPlan, dict[str, Any]]:
    """The plan and the globals that `write_plan` wrote."""
    nodes = [(parent, kind, decode(key)) for parent, kind, key in data["nodes"]]
    calls = [tuple(map(decode, call)) for call in data["instructions"]]
    if any(call[0] not in _METHODS for call in calls):
        raise Unreadable("a place is kept in a way that is not known")
    return PlacesPlan(nodes, calls), _read_globals(data["globals"])


_METHODS = {name for name in vars(Places) if not name.startswith("_")} - {"groups"}


def _write_inputs(inputs: list[GraphInput]) -> list[Any]:
    return [[item.kind, item.path, encode(item.steps)] for item in inputs]


def _read_inputs(data: list[Any]) -> list[GraphInput]:
    return [GraphInput(kind, path, path, decode(steps)) for kind, path, steps in data]


def _write_effects(effects: Effects) -> Json:
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in vars(effects).items()}


def _read_effects(data: Json) -> Effects:
    values: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return Effects(**values)


def _read_spec(data: list[Any]) -> DimSpec:
    return {path: {axis: Dim(name, low, high) for axis, name, low, high in axes} for path, axes in data}


def _read_assumption(data: Json) -> Assumption:
    relation = tuple(data["relation"]) if data["relation"] else None
    counterexample = tuple((name, size) for name, size in data["counterexample"])
    return Assumption(data["text"], data["verdict"], data["method"], counterexample, relation)


def _write_call(call: Call) -> Json:
    return {
        "passed": [[item.keyword, item.path] for item in call.passed],
        "leaves": [[leaf.path, leaf.expr, *_write_leaf(leaf.value)] for leaf in call.leaves],
        "shells": [[shell.path, shell.expr, encode(shell.kind), encode(shell.keys)] for shell in call.shells],
    }


def _write_leaf(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return ["tensor", [list(value.shape), encode(value.dtype), encode(value.device)]]
    return ["value", encode(value)]


def _read_call(data: Json) -> Call:
    """A call with its example's form; its tensors have no values, and what was passed is not there."""
    return Call(
        tuple(Passed(keyword, path, None) for keyword, path in data["passed"]),
        tuple(Leaf(path, expr, _read_leaf(kind, value)) for path, expr, kind, value in data["leaves"]),
        tuple(Shell(path, expr, decode(kind), decode(keys)) for path, expr, kind, keys in data["shells"]),
    )


def _read_leaf(kind: str, value: Any) -> Any:
    if kind != "tensor":
        return decode(value)
    shape, dtype, device = value
    # One element stands for all.
    return torch.empty((), dtype=decode(dtype), device=decode(device)).expand(shape)


def _write_output(output: Output) -> Json:
    written: Json = {"kind": output.kind}
    if output.kind == "graph":
        written["index"] = output.index
    if output.path:
        written["path"] = output.path
    if output.value is not None:
        written["value"] = _write_size(output.value) if output.kind == "graph" else encode(output.value)
    if output.shape is not None:
        written["shape"] = [_write_size(size) for size in output.shape]
    if output.cls:
        written["class"] = output.cls
    if output.keys:
        written["keys"] = encode(output.keys)
    if output.children:
        written["children"] = [_write_output(child) for child in output.children]
    return written


def _write_size(size: Any) -> Any:
    return [size.source, list(size.dims)] if isinstance(size, SizeFunction) else encode(size)


def _read_size(data: Any) -> Any:
    return SizeFunction(data[0], tuple(data[1])) if isinstance(data, list) else decode(data)


def _read_output(data: Json) -> Output:
    value = data.get("value")
    return Output(
        data["kind"],
        data.get("index", -1),
        data.get("path", ""),
        _read_size(value) if data["kind"] == "graph" else decode(value),
        data.get("class", ""),
        decode(data["keys"]) if "keys" in data else (),
        tuple(_read_output(child) for child in data.get("children", ())),
        tuple(map(_read_size, data["shape"])) if "shape" in data else None,
    )


def _write_global(name: str, value: Any) -> list[Any]:
    if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
        return ["import", value.__name__]
    if value is vars(sys.modules["builtins"]):
        return ["builtins"]
    try:
        return ["value", encode(value)]
    except NotWritable as problem:
        raise NotWritable(f"the global {name}, {problem}") from None


def _read_globals(data: Mapping[str, list[Any]]) -> dict[str, Any]:
    import importlib

    found: dict[str, Any] = {}
    for name, (kind, *rest) in data.items():
        if kind == "import":
            found[name] = importlib.import_module(rest[0])
        elif kind == "builtins":
            found[name] = vars(sys.modules["builtins"])
        else:
            found[name] = decode(rest[0])
    return found
