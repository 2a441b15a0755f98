"""A piece's generated source made self-contained: what its `call` needs, and nothing of Inductor.

Private API: the form of what Inductor generates (a module with ``call``, kernels made by
``async_compile.cpp_pybinding``, ``extern_kernels``). Checked on torch 2.13.0. A source of another form is refused, and
the program is not saved for the quick way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .values import NotWritable

_IMPORTS = ("torch", "math", "cmath", "ctypes", "random", "os")
_ENTRY = "call"
_EXTERN = "extern_kernels"


@dataclass(frozen=True)
class KernelFile:
    """Where a kernel is: a library, and the name of the kernel in it."""

    library: str
    name: str


@dataclass(frozen=True)
class Extracted:
    """``source`` defines `call`, once the names of ``kernels`` and ``constants`` are put beside it."""

    source: str
    kernels: dict[str, KernelFile]
    constants: dict[str, torch.Tensor]


def extract(source: str, scope: Mapping[str, Any]) -> Extracted:
    """What ``call`` in ``source`` needs; ``scope`` are the globals of the generated module as it was loaded.

    Raises:
        NotWritable: it needs something that is not known here; the message says what.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as problem:
        raise NotWritable(f"generated code that is no Python: {problem}") from None
    defined = {name: node for node in tree.body for name in _names_defined(node)}
    needed: dict[ast.stmt, None] = {}
    kernels: dict[str, KernelFile] = {}
    constants: dict[str, torch.Tensor] = {}
    waiting, seen = [_ENTRY], set()
    while waiting:
        name = waiting.pop()
        if name in seen or (name not in defined and _is_builtin(name)):
            continue
        seen.add(name)
        value = scope.get(name)
        node = defined.get(name)
        if isinstance(value, torch.Tensor):
            constants[name] = value
        elif node is not None and is_kernel(node):
            kernels[name] = kernel_file(name, value)
        elif name == _EXTERN:
            continue
        elif node is None:
            raise NotWritable(f"generated code that needs {name}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _refuse_import(node, name)
            needed[node] = None
        else:
            needed[node] = None
            waiting += _names_used(node)
    body = [node for node in tree.body if node in needed]
    externs = sorted({name for item in body for node in ast.walk(item) if (name := _extern(node))})
    head = [_extern_line(name, scope.get(_EXTERN)) for name in externs]
    if head:
        head = ["import types", "import torch", f"{_EXTERN} = types.SimpleNamespace()", *head]
    return Extracted("\n".join([*head, *map(ast.unparse, body)]) + "\n", kernels, constants)


def _names_defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _names_used(node: ast.stmt) -> list[str]:
    """The names a statement reads that it does not make itself."""
    names = [item for item in ast.walk(node) if isinstance(item, ast.Name)]
    made = {item.id for item in names if isinstance(item.ctx, ast.Store)}
    made |= {item.arg for item in ast.walk(node) if isinstance(item, ast.arg)}
    return sorted({item.id for item in names if isinstance(item.ctx, ast.Load)} - made)


def _is_builtin(name: str) -> bool:
    return name in __builtins__ if isinstance(__builtins__, dict) else hasattr(__builtins__, name)


def is_kernel(node: ast.stmt) -> bool:
    """Whether a statement of generated code makes a kernel of C++ source."""
    call = node.value if isinstance(node, ast.Assign) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) == "async_compile.cpp_pybinding"


def kernel_file(name: str, value: Any) -> KernelFile:
    """Where a loaded kernel is. Raises NotWritable."""
    library = getattr(getattr(value, "__self__", None), "__file__", "")
    if not library:
        raise NotWritable(f"the kernel {name}, whose library is not known")
    return KernelFile(library, value.__name__)


def _refuse_import(node: ast.Import | ast.ImportFrom, name: str) -> None:
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    if any(module.startswith("torch._") or module.partition(".")[0] not in _IMPORTS for module in modules):
        raise NotWritable(f"generated code that needs {name} of {', '.join(modules)}")


def _extern(node: ast.AST) -> str:
    """The operator's name in ``extern_kernels.NAME``; '' for anything else."""
    is_one = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == _EXTERN
    return node.attr if is_one and isinstance(node, ast.Attribute) else ""


def _extern_line(name: str, externs: Any) -> str:
    """The assignment that gives ``extern_kernels`` an operator under torch's own name."""
    value = getattr(externs, name, None)
    for home, text in ((torch, "torch"), (torch.ops.aten, "torch.ops.aten")):
        if value is not None and getattr(home, name, None) is value:
            return f"{_EXTERN}.{name} = {text}.{name}"
    if isinstance(value, torch._ops.OpOverload):
        packet, _, overload = str(value).removeprefix("aten.").partition(".")
        return f"{_EXTERN}.{name} = torch.ops.{value.namespace}.{packet}.{overload or 'default'}"
    raise NotWritable(f"the operator extern_kernels.{name}, which is Inductor's own")
