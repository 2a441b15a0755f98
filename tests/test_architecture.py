"""The shape of the package: what imports what, what is exported, what is never done."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sizewise

ROOT = Path(sizewise.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    # Importable from anywhere below; each line imports only from the lines above it, or from itself.
    {"_version", "errors", "locks"},
    {"config", "events", "counters", "dims"},
    {"monitor", "calls", "ambient", "ops", "reference", "cache"},
    {"traced", "ranges", "native"},
    {"trace"},
    {"integrations", "structure", "split", "compilers", "guards"},
    {"passes", "piecewise", "weights"},
    {"effects"},
    {"program"},
    {"caller", "graphs"},
    {"dispatch", "key"},
    {"built"},
    {"verify", "wanted"},
    {"saved"},
    {"diagnose", "captures"},
    {"refuse"},
    {"plan"},
    {"build"},
    {"warm"},
    {"generation"},
    {"report"},
    {"face"},
    {"module"},
    {"persistent"},
    {"api"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """(room, line) of every import of a room of this package, late ones included."""
    package = ["sizewise", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = base + (node.module.split(".") if node.module else [])
            if parts[:1] != ["sizewise"]:
                continue
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            names = ["_version" if name == "__version__" else name for name in names]
            yield from ((name, node.lineno) for name in names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "sizewise" and len(parts) > 1:
                    yield parts[1], node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    if path == ROOT / "__init__.py":
        return  # names of the public surface, loaded on first use
    here = room(path)
    for name, line in imports_of(path):
        assert name in LEVEL, f"{path.name}:{line} imports {name}, which has no place in LAYERS"
        allowed = LEVEL[name] < LEVEL[here] or name == here
        assert allowed, f"{path.relative_to(ROOT)}:{line} imports {name}, which is not below {here}"


def test_every_room_has_a_place() -> None:
    assert {room(path) for path in FILES} - {"__init__"} <= set(LEVEL)


def test_the_export_list_is_exact() -> None:
    assert sizewise.__all__ == sorted(sizewise.__all__)
    for name in sizewise.__all__:
        assert getattr(sizewise, name) is not None
    assert set(sizewise._HOMES) == set(sizewise.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="nope"):
        sizewise.nope


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_no_torch_and_no_pydantic() -> None:
    loaded = modules_after("import sizewise")
    assert not loaded & {"torch", "pydantic", "typer", "rich", "transformers"}


def test_the_api_imports_no_compiler_stack() -> None:
    # `Dim` and the errors do not need torch at all; the API needs torch and nothing of its compilers.
    assert "torch" not in modules_after("from sizewise import Dim, SizewiseError, CompilationConfig")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_bare_raise_no_assert_no_global(path: Path) -> None:
    """A user's mistake ends in a named error: no built-in is raised, asserts are for what cannot happen."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Global), f"{where}: a global statement"
        assert not isinstance(node, ast.Assert), f"{where}: an assert"
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            allowed = ALLOWED_BUILTINS.get(str(path.relative_to(ROOT)), set())
            builtin = node.exc.func.id in {*vars(__import__("builtins"))}
            assert not builtin or node.exc.func.id in allowed, f"{where}: raises {node.exc.func.id}"


ALLOWED_BUILTINS = {
    "__init__.py": {"AttributeError"},  # the module __getattr__ protocol
    "config/__init__.py": {"AttributeError"},
    "graphs/__init__.py": {"AttributeError"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 450


def test_functions_fit_on_a_screen() -> None:
    long = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0]
                documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                start = (first.end_lineno if documented else node.lineno) or node.lineno
                if (node.end_lineno or 0) - start > 60:
                    long.append(f"{path.relative_to(ROOT)}:{node.name}")
    assert not long
