"""What a name in a module stands for, as far as its imports and definitions say."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping

_MOST_STARS = 100
_BUILTINS = frozenset(dir(builtins))


class Names:
    """The names of one module. ``module`` is its dotted name, ``is_package`` whether it is an ``__init__``."""

    def __init__(self, module: str, is_package: bool) -> None:
        self.module = module
        self._package = module if is_package else module.rpartition(".")[0]
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.defined: set[str] = set()

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """Take in an import; of two that bind one name the first counts (``try: import x / except: x = None``)."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                self.imports.setdefault(name, alias.name if alias.asname else name)
            return
        base = self._base(node)
        for alias in node.names:
            if alias.name == "*":
                if len(self.stars) < _MOST_STARS:
                    self.stars.append(base)
            else:
                self.imports.setdefault(alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self._package.split(".")
        kept = ".".join(parts[: len(parts) - node.level + 1])
        return f"{kept}.{node.module}" if node.module else kept

    def dotted(self, node: ast.expr, owner: str = "", inner: Mapping[str, str] | None = None) -> str | None:
        """The full name of a class or function; None for what only a run could tell.

        ``owner`` is the qualified name of the class around it, which ``self`` stands for; ``inner`` has the
        qualified names of what the functions around it define.
        """
        if isinstance(node, ast.Name):
            if inner and node.id in inner:
                return f"{self.module}.{inner[node.id]}"
            return self._of(node.id, owner)
        if isinstance(node, ast.Attribute):
            value = self.dotted(node.value, owner, inner)
            return f"{value}.{node.attr}" if value else None
        if isinstance(node, ast.Subscript):  # Generic[T]
            return self.dotted(node.value, owner, inner)
        return None

    def _of(self, name: str, owner: str) -> str:
        if name in ("self", "cls") and owner:
            return f"{self.module}.{owner}"
        if name in self.imports:
            return self.imports[name]
        if name not in self.defined and name in _BUILTINS:
            return name
        return f"{self.module}.{name}"
