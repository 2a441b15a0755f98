"""A program as JSON, but for its code, and back: calls, dims, bindings, guards, the output template, effects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import ModuleType
from typing import Any

import torch

from ..calls import Call, Leaf, Passed, Shell
from ..dims import Dim, DimSpec
from ..effects import Effects
from ..integrations import transformers as transformers_integration
from ..ops import REGISTRY, attention_overload
from ..program import Program, StepName
from ..traced import Assumption, GraphInput, GuardRecord, Output, SourcePath, Traced
from ..traced.code import TracedCode
from .values import NotWritable, decode, encode

Json = dict[str, Any]


def write_program(program: Program) -> Json:
    """Everything about ``program`` but its variants' code.

    Raises:
        NotWritable: a value in it has no form as plain data.
    """
    traced = program.traced
    if traced.code.reads_environment:
        raise NotWritable("os.environ, which the forward reads: nothing says which variable")
    return {
        "owner": traced.owner,
        "steps": [[step.key, step.is_piece] for step in program.step_names],
        "weights": [[item.kind, item.path, encode(item.steps)] for item in program.weight_inputs],
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
        "guards": [_write_guard(guard) for guard in traced.guards],
        "globals": _write_globals(traced),
        "code": {
            "digests": sorted(traced.code.digests),
            "asks_requires_grad": traced.code.asks_requires_grad,
            "reads_dicts": traced.code.reads_dicts,
        },
        "sources": traced.sources,
        "notes": traced.notes,
        "blocks": traced.blocks,
    }


def read_program(data: Json, source: str) -> Program:
    """The program that `write_program` wrote, without variants; ``source`` is its caller's.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, ImportError: ``data`` is something else.
    """
    code = data["code"]
    guards = [_read_guard(item) for item in data["guards"]]
    _define_own(guards)
    traced = Traced(
        owner=data["owner"],
        inputs=[],
        template=_read_output(data["template"]),
        spec=_read_spec(data["spec"]),
        dims={name: Dim(name, low, high) for name, low, high in data["dims"]},
        policy=data["policy"],
        assumptions=[_read_assumption(item) for item in data["assumptions"]],
        guards=guards,
        call=_read_call(data["call"]),
        scope=_read_globals(data["globals"]),
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
        [GraphInput(kind, path, path, decode(steps)) for kind, path, steps in data["weights"]],
        data["size_names"],
        data["arguments"],
        source,
        [],
        _read_effects(data["effects"]),
    )


def _define_own(guards: Sequence[GuardRecord]) -> None:
    """What a trace defines of Sizewise's own, on first use, where the guards are about it."""
    steps = {step for path in _paths(guards) for step in path.steps}
    if ("attr", REGISTRY.namespace) in steps:
        attention_overload()
    if ("item", transformers_integration.NAME) in steps:
        transformers_integration._register()


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
    if output.kind == "constant":
        written["value"] = encode(output.value)
    if output.cls:
        written["class"] = output.cls
    if output.keys:
        written["keys"] = encode(output.keys)
    if output.children:
        written["children"] = [_write_output(child) for child in output.children]
    return written


def _read_output(data: Json) -> Output:
    return Output(
        data["kind"],
        data.get("index", -1),
        data.get("path", ""),
        decode(data.get("value")),
        data.get("class", ""),
        decode(data["keys"]) if "keys" in data else (),
        tuple(_read_output(child) for child in data.get("children", ())),
    )


def _write_guard(guard: GuardRecord) -> list[Any]:
    return [
        guard.kind,
        guard.name if guard.path is None else "",
        _write_path(guard.path),
        guard.source,
        guard.attribute,
        _write_path(guard.other),
    ]


def _read_guard(data: list[Any]) -> GuardRecord:
    kind, name, path, source, attribute, other = data
    where = _read_path(path)
    return GuardRecord(kind, name or str(where), where, source, attribute, _read_path(other))


def _write_path(path: SourcePath | None) -> Any:
    if path is None:
        return None
    return [path.root_kind, path.root, [[kind, encode(key)] for kind, key in path.steps], path.size_axis]


def _read_path(data: Any) -> SourcePath | None:
    if data is None:
        return None
    root_kind, root, steps, axis = data
    return SourcePath(root_kind, root, tuple((kind, decode(key)) for kind, key in steps), axis)


def _write_globals(traced: Traced) -> Json:
    """What the paths of guards start from: modules by name; other globals of the traced function are its own."""
    found: Json = {}
    for path in _paths(traced.guards):
        if path.root_kind == "global":
            found[path.root] = _write_global(path.root, traced.scope[path.root])
    return found


def _paths(guards: Iterable[GuardRecord]) -> Iterator[SourcePath]:
    return (path for guard in guards for path in (guard.path, guard.other) if path is not None)


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
