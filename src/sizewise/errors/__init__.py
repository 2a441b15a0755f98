"""Sizewise's errors: the tree (`base`), one file of concrete classes per branch, the registry.

Raise sites name the branch and the class: ``errors.call.SizeOutOfRange(...)``.
"""

from . import build, bundle, cache, call, capture, command, config, state, trace
from .base import (
    BuildError,
    CacheError,
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
    "CacheError",
    "CallError",
    "CaptureError",
    "CommandError",
    "ConfigError",
    "SizewiseError",
    "StateError",
    "TraceError",
    "build",
    "bundle",
    "cache",
    "call",
    "capture",
    "command",
    "config",
    "state",
    "trace",
]
