"""Writes a program's caller: the one straight-line function that joins compiled pieces and split calls.

The function has no branches and looks nothing up by name: module tensors, sizes and arguments come in,
pieces and operators are called in the order of the graph, a value is dropped after its last use, and
the output is built as the forward built it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .piecewise import PiecewiseBackend
from .program import Program, size_variable
from .split import Piece, SplitCall, Step, is_size
from .trace import TracedGraph
from .traced import GraphInput, Output
from .traced.outputs import container_source
from .traced.state import HELD, held_objects
from .weights import named_tensor


@dataclass
class BuiltProgram(Program):
    """A program with what it was built from."""

    traced: TracedGraph
    steps: list[Step] = field(default_factory=list)
    backends: list[PiecewiseBackend] = field(default_factory=list)
    """Per piece; twins share one."""
    scope: dict[str, Any] = field(default_factory=dict)
    """What the caller's source names."""

    @property
    def pieces(self) -> list[Piece]:
        return [step for step in self.steps if isinstance(step, Piece)]


def build_caller(
    traced: TracedGraph,
    steps: Sequence[Step],
    module: Any,
    size_names: Sequence[str],
    copied: Mapping[str, str] | None = None,
) -> tuple[str, dict[str, Any], list[GraphInput], list[str]]:
    """The caller's source, the names it needs, the module tensors it takes, the arguments it takes.

    ``copied`` are the paths of results that are not handed out as they come, with the method that makes the copy.
    """
    return _CallerWriter(traced, steps, module, size_names, copied or {}).write()


class _CallerWriter:
    def __init__(
        self,
        traced: TracedGraph,
        steps: Sequence[Step],
        module: Any,
        size_names: Sequence[str],
        copied: Mapping[str, str],
    ) -> None:
        self.copied = copied
        self.traced = traced
        self.steps = steps
        self.module = module
        self.size_names = list(size_names)
        self.scope: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.arguments: list[str] = []
        self.argument_names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.weights = [item for item in traced.inputs if item.kind in ("parameter", "buffer", "attribute")]
        known = {item.path for item in self.weights}
        for path in sorted(_tensor_paths(traced.template) - known):
            self.weights.append(named_tensor(module, path))
        self.weight_names = {item.path: f"w{index}" for index, item in enumerate(self.weights)}
        for item in traced.inputs:
            self._name_input(item)
        for path in sorted(_input_paths(traced.template)):
            self._argument(path)

    def _name_input(self, item: GraphInput) -> None:
        if item.kind == "size":
            self.names[item.name] = size_variable(self.traced.spec[item.path][item.axis or 0].name)
        elif item.kind == "dynamic":
            self.names[item.name] = self._argument(item.path)
        else:
            self.names[item.name] = self.weight_names[item.path]

    def _argument(self, path: str) -> str:
        if path not in self.argument_names:
            name = "arg_" + re.sub(r"\W+", "_", path).strip("_")
            self.argument_names[path] = self._fresh(name)
            self.arguments.append(path)
        return self.argument_names[path]

    def _fresh(self, name: str) -> str:
        if re.fullmatch(r"(piece|op|const)_\d+|held_\w+|w\d+|size_\w+|weights|call|math|torch", name):
            name = f"value_{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def write(self) -> tuple[str, dict[str, Any], list[GraphInput], list[str]]:
        body: list[str] = []
        if self.weights:
            names = ", ".join(self.weight_names.values())
            body.append(f"{names}{',' if len(self.weights) == 1 else ''} = weights")
        chunks = [self._step(step) for step in self.steps]
        result = f"return {self._output(self.traced.template, 'result')}"
        body += self._with_drops([line for chunk in chunks for line in chunk], result)
        body.append(result)
        sizes = [size_variable(name) for name in self.size_names]
        header = ", ".join(["weights", *sizes, *(self.argument_names[path] for path in self.arguments)])
        source = f"def call({header}):\n" + "".join(f"    {line}\n" for line in body)
        return source, self.scope, self.weights, self.arguments

    def _step(self, step: Step) -> list[str]:
        if isinstance(step, SplitCall):
            return [self._split_line(node) for node in step.nodes]
        inputs = ", ".join(self._value(name) for name in step.inputs)
        outputs = [self._define(name) for name in step.outputs]
        targets = f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = " if outputs else ""
        return [f"{targets}piece_{step.index}([{inputs}])"]

    def _define(self, name: str) -> str:
        self.names[name] = self._fresh(name)
        return self.names[name]

    def _value(self, name: str) -> str:
        if name in self.names:
            return self.names[name]
        node = next(node for node in self.traced.graph.graph.nodes if node.name == name)
        return self._argument_text(node)

    def _split_line(self, node: fx.Node) -> str:
        args = [self._argument_text(value) for value in node.args]
        keywords = [f"{key}={self._argument_text(value)}" for key, value in node.kwargs.items()]
        if node.op == "call_method":
            text = f"{args[0]}.{node.target}({', '.join(args[1:] + keywords)})"
        elif getattr(node.target, "__name__", "") == "getitem":
            text = f"{args[0]}[{args[1]}]"
        else:
            text = f"{self._bind('op', _overload(node.target))}({', '.join(args + keywords)})"
        return f"{self._define(node.name)} = {text}" if node.users else text

    def _argument_text(self, value: Any) -> str:
        """An argument of a split call as source text."""
        if isinstance(value, fx.Node):
            if is_size(value) and value.op != "placeholder":
                return self._size_text(value.meta["example_value"])
            if value.op == "get_attr":
                return self._bind("const", _attribute(self.traced.graph, str(value.target)))
            return self.names[value.name]
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self._size_text(value)
        if isinstance(value, (tuple, list)):
            items = ", ".join(map(self._argument_text, value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._argument_text, (value.start, value.stop, value.step)))})"
        finite = not isinstance(value, float) or value - value == 0
        # Of these exactly: the text of an IntEnum is no source.
        if type(value) in (type(None), bool, int, float, str) and finite:
            return repr(value)
        return self._bind("const", value)

    def _size_text(self, value: Any) -> str:
        function = self.traced.symbols.function(value)
        text = function.source
        for name in function.dims:
            text = re.sub(rf"\b{name}\b", size_variable(name), text)
        return f"({text})"

    def _bind(self, kind: str, value: Any) -> str:
        for name, bound in self.scope.items():
            if bound is value and name.startswith(kind):
                return name
        name = f"{kind}_{sum(key.startswith(kind) for key in self.scope)}"
        self.scope[name] = value
        return name

    def _with_drops(self, lines: list[str], result: str) -> list[str]:
        """The lines with ``del`` behind the last use of every value that is computed here."""
        local = {name for name in self.taken if name not in self.argument_names.values()}
        seen: set[str] = set(re.findall(r"\w+", result)) & local
        dropped: list[str] = []
        for line in reversed(lines):
            used = set(re.findall(r"\w+", line)) & local
            last = sorted(used - seen)
            if last:
                dropped.append(f"del {', '.join(last)}")
            dropped.append(line)
            seen |= used
        return dropped[::-1]

    def _output(self, template: Output, path: str) -> str:
        text = self._output_text(template, path)
        return f"{text}.{self.copied[path]}()" if path in self.copied else text

    def _output_text(self, template: Output, path: str) -> str:
        kind = template.kind
        if kind == "graph":
            value = next(reversed(self.traced.graph.graph.nodes)).args[0][template.index]
            return self._argument_text(value)
        if kind == "input":
            return self.argument_names[template.path]
        if kind == "tensor":
            return self.weight_names[template.path]
        if kind == "held":
            self.scope[f"{HELD}{template.path}"] = held_objects(self.module)[template.path]
            return f"{HELD}{template.path}"
        if kind == "constant":
            return self._argument_text(template.value)
        paths = _parts(template, path)
        children = [self._output(child, part) for child, part in zip(template.children, paths, strict=True)]
        return container_source(template, children, lambda cls: self._bind("const", cls))


def _overload(target: Any) -> Any:
    """An operator's only overload, which is quicker to call than the packet around it."""
    if isinstance(target, torch._ops.OpOverloadPacket) and target.overloads() == ["default"]:
        return target.default
    return target


def _attribute(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _parts(template: Output, path: str) -> list[str]:
    """The paths of a container's parts, as `verify.tolerance.tensors_of` names them in a result."""
    if template.kind == "fields":
        return [f"{path}.{key}" for key in template.keys]
    keys = template.keys if template.kind == "dict" else range(len(template.children))
    return [f"{path}[{key!r}]" for key in keys]


def _leaves(template: Output) -> list[Output]:
    return [leaf for child in template.children for leaf in _leaves(child)] or ([] if template.children else [template])


def _tensor_paths(template: Output) -> set[str]:
    return {leaf.path for leaf in _leaves(template) if leaf.kind == "tensor"}


def _input_paths(template: Output) -> set[str]:
    return {leaf.path for leaf in _leaves(template) if leaf.kind == "input"}
