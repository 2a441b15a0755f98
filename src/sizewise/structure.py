"""A piece's structural key: equal keys mean that one compiled artifact serves both.

In the key: operators in order, constants, shapes, strides, dtypes, devices, and which inputs are the
same. Not in it: names, layer numbers, which parameter an input is. Symbols are renamed by first
appearance together with the range of the dim they stand for. Constants held by the graph are hashed
by content.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import sympy
import torch
from torch import fx

from .trace.shapes import SymbolTable, expression


def structural_key(graph: fx.GraphModule, symbols: SymbolTable | None = None) -> str:
    """SHA-256 (hex) over the structure of ``graph``."""
    return hashlib.sha256("\n".join(_Writer(graph, symbols).lines()).encode()).hexdigest()


class _Writer:
    def __init__(self, graph: fx.GraphModule, symbols: SymbolTable | None) -> None:
        self.graph = graph
        self.symbols = symbols
        self.renamed: dict[sympy.Symbol, sympy.Symbol] = {}
        self.numbers: dict[fx.Node, int] = {}
        self.storages: dict[int, int] = {}

    def lines(self) -> list[str]:
        text = []
        for number, node in enumerate(self.graph.graph.nodes):
            text.append(f"{number} {self.node(node)}")
            self.numbers[node] = number
        for symbol, canonical in self.renamed.items():
            dim = self.symbols.dims.get(self.symbols.names.get(symbol, "")) if self.symbols else None
            text.append(f"{canonical} in {(dim.min, dim.max) if dim else 'any'}")
        return text

    def node(self, node: fx.Node) -> str:
        if node.op == "placeholder":
            value = node.meta.get("example_value")
            return f"input {self.value(value)} {self.memory(value)}"
        if node.op == "get_attr":
            return f"constant {self.attribute(str(node.target))}"
        arguments = ", ".join(self.argument(a) for a in node.args)
        keywords = ", ".join(f"{k}={self.argument(v)}" for k, v in sorted(node.kwargs.items()))
        return f"{node.op} {self.target(node.target)}({arguments}; {keywords})"

    def memory(self, value: Any) -> str:
        """Which input before this one shares its memory, if one does: the order of writes then matters."""
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return ""
        storage = value.untyped_storage()._cdata
        return (
            f"memory {self.storages.setdefault(storage, len(self.storages))} from {self.size(value.storage_offset())}"
        )

    def target(self, target: Any) -> str:
        if isinstance(target, (str, torch._ops.OpOverload)):
            return str(target)
        module = getattr(target, "__module__", "") or ""
        if not module.startswith(("torch", "_operator", "builtins", "math")) and inspect.isfunction(target):
            # A name does not say which of two closures it is.
            return f"{module}.{target.__qualname__} {id(target)}"
        return f"{module}.{getattr(target, '__qualname__', None) or getattr(target, '__name__', None) or target}"

    def argument(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return f"%{self.numbers[value]}"
        if isinstance(value, (tuple, list)):
            return f"{type(value).__name__}({', '.join(map(self.argument, value))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.argument(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.argument(value.start)}, {self.argument(value.stop)}, {self.argument(value.step)})"
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.size(value)
        if callable(value) and hasattr(value, "__qualname__"):
            return self.target(value)
        return f"{type(value).__name__}:{value!r}"

    def value(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            shape = [self.size(size) for size in value.shape]
            stride = (
                [self.size(step) for step in value.stride()] if value.layout == torch.strided else [str(value.layout)]
            )
            return f"{value.dtype} {value.device} {shape} {stride}"
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return f"size {self.size(value)}"
        return repr(value)

    def size(self, value: Any) -> str:
        expr = expression(value)
        for symbol in sorted(expr.free_symbols, key=str):
            self.renamed.setdefault(symbol, sympy.Symbol(f"n{len(self.renamed)}", integer=True))
        return str(expr.xreplace(self.renamed))

    def attribute(self, name: str) -> str:
        owner: Any = self.graph
        for part in name.split("."):
            owner = getattr(owner, part)
        if isinstance(owner, torch.Tensor):
            content = hashlib.sha256(owner.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
            return f"{self.value(owner)} {content.hexdigest()}"
        if isinstance(owner, fx.GraphModule):
            return structural_key(owner, self.symbols)
        return repr(owner)
