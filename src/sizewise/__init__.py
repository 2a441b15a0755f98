"""torch.compile for serving: build once, run every batch size, never compile under load.

    import sizewise
    from sizewise import Dim

    batch = Dim("batch", min=1, max=64)
    fast = sizewise.compile(model, dynamic_shapes={"x": {0: batch}})
    fast.warmup(x)
    y = fast(x)

Importing this package imports neither torch nor pydantic; each name loads its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import compile, load
    from .config.compilation import CompilationConfig
    from .config.dynamic_shapes import DynamicShapesConfig
    from .config.modes import CompilationMode, CUDAGraphMode
    from .config.passes import PassConfig
    from .dims import Dim
    from .errors.base import SizewiseError
    from .module import CompiledModule
    from .piecewise import PiecewiseBackend, RangeEntry
    from .ranges import Range

__all__ = [
    "CUDAGraphMode",
    "CompilationConfig",
    "CompilationMode",
    "CompiledModule",
    "Dim",
    "DynamicShapesConfig",
    "PassConfig",
    "PiecewiseBackend",
    "Range",
    "RangeEntry",
    "SizewiseError",
    "__version__",
    "compile",
    "load",
]

_HOMES = {
    "CUDAGraphMode": ".config.modes",
    "CompilationConfig": ".config.compilation",
    "CompilationMode": ".config.modes",
    "CompiledModule": ".module",
    "Dim": ".dims",
    "DynamicShapesConfig": ".config.dynamic_shapes",
    "PassConfig": ".config.passes",
    "PiecewiseBackend": ".piecewise",
    "Range": ".ranges",
    "RangeEntry": ".piecewise",
    "SizewiseError": ".errors.base",
    "compile": ".api",
    "load": ".api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
