"""Captures: a program bound to one exact size, replayed without what a call of the program decides again each time.

backend  the interface of what captures: `cuda` (CUDA graphs), `tape` (the CPU's), `fake` (for tests)
wrapper  a runnable with a graph per `BatchDescriptor`; `context` says which one a call is for
window   nothing is captured within a capture; `illegal` names what no capture can hold

Each name loads its module on first use; importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import CannotCapture, Capture, GraphBackend, Job, Session
    from .backends import backend_for
    from .context import BatchDescriptor, ForwardContext, current_context, forward_context
    from .cuda import CUDABackend
    from .fake import FakeBackend
    from .marks import check_current, is_current
    from .window import inside_capture
    from .wrapper import CUDAGraphWrapper

__all__ = [
    "BatchDescriptor",
    "CUDABackend",
    "CUDAGraphWrapper",
    "CannotCapture",
    "Capture",
    "FakeBackend",
    "ForwardContext",
    "GraphBackend",
    "Job",
    "Session",
    "backend_for",
    "check_current",
    "current_context",
    "forward_context",
    "inside_capture",
    "is_current",
]

_HOMES = {
    "BatchDescriptor": ".context",
    "CUDABackend": ".cuda",
    "CUDAGraphWrapper": ".wrapper",
    "CannotCapture": ".backend",
    "Capture": ".backend",
    "FakeBackend": ".fake",
    "ForwardContext": ".context",
    "GraphBackend": ".backend",
    "Job": ".backend",
    "Session": ".backend",
    "backend_for": ".backends",
    "check_current": ".marks",
    "current_context": ".context",
    "forward_context": ".context",
    "inside_capture": ".window",
    "is_current": ".marks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
