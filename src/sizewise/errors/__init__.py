"""Sizewise's errors: the tree (`base`), one file of concrete classes per branch, the registry.

Raise sites name the branch and the class: ``errors.call.SizeOutOfRange(...)``.
"""

from . import build, call, capture, command, config, state, trace
from .base import (
    BuildError,
    CallError,
    CaptureError,
    CommandError,
    ConfigError,
    SizewiseError,
    StateError,
    TraceError,
)

__all__ = [
    "BuildError",
    "CallError",
    "CaptureError",
    "CommandError",
    "ConfigError",
    "SizewiseError",
    "StateError",
    "TraceError",
    "build",
    "call",
    "capture",
    "command",
    "config",
    "state",
    "trace",
]
