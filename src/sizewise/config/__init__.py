"""Settings: what to compile, for which sizes, and what to capture.

Importing this package imports neither torch nor pydantic; pydantic comes with the first config class.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .modes import CompilationMode, CUDAGraphMode

if TYPE_CHECKING:
    from .compilation import CompilationConfig
    from .dynamic_shapes import DynamicShapesConfig
    from .passes import PassConfig

__all__ = ["CUDAGraphMode", "CompilationConfig", "CompilationMode", "DynamicShapesConfig", "PassConfig"]

_LAZY = {
    "CompilationConfig": "compilation",
    "DynamicShapesConfig": "dynamic_shapes",
    "PassConfig": "passes",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
