"""The two mode enums, under vLLM's names, and how a user's word becomes one."""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum, IntEnum

from ..errors import config as errors
from .sizes import wrong_type


class CompilationMode(IntEnum):
    """How a module is compiled. VLLM_COMPILE is vLLM's name for PIECEWISE."""

    NONE = 0
    STOCK_TORCH_COMPILE = 1
    DYNAMO_TRACE_ONCE = 2
    PIECEWISE = 3
    VLLM_COMPILE = 3


class CUDAGraphMode(Enum):
    """What is captured. The pairs are (decode batches, all other batches)."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def decode_mode(self) -> CUDAGraphMode:
        """The mode of a decode batch: NONE, PIECEWISE or FULL."""
        return CUDAGraphMode(self.value[0]) if isinstance(self.value, tuple) else self

    def mixed_mode(self) -> CUDAGraphMode:
        """The mode of every other batch: NONE, PIECEWISE or FULL."""
        return CUDAGraphMode(self.value[1]) if isinstance(self.value, tuple) else self


def compilation_mode(value: object) -> CompilationMode:
    """A mode from itself, its number or its name in any case. Raises SW104, SW108."""
    if isinstance(value, CompilationMode):
        return value
    if type(value) is int and value in {mode.value for mode in CompilationMode}:
        return CompilationMode(value)
    if isinstance(value, str) and value.upper() in CompilationMode.__members__:
        return CompilationMode[value.upper()]
    if type(value) is not int and not isinstance(value, str):
        raise wrong_type("mode", value, "a CompilationMode, its name or its number")
    legal = ", ".join(f"{name} ({mode.value})" for name, mode in CompilationMode.__members__.items())
    raise errors.InvalidCompilationMode(value=value, legal=legal)


def cudagraph_mode(value: object) -> CUDAGraphMode | None:
    """A mode from itself or its name in any case; None stays open. Raises SW104, SW117."""
    if value is None or isinstance(value, CUDAGraphMode):
        return value
    if not isinstance(value, str):
        raise wrong_type("cudagraph_mode", value, "a CUDAGraphMode, its name or None")
    if value.upper() in CUDAGraphMode.__members__:
        return CUDAGraphMode[value.upper()]
    legal = list(CUDAGraphMode.__members__)
    raise errors.InvalidCudagraphMode(value=value, legal=", ".join(legal), suggestion=_suggestion(value, legal))


def _suggestion(value: str, legal: list[str]) -> str:
    if not value.strip():
        return "write cudagraph_mode='NONE' to turn captures off, or leave it out."
    near = get_close_matches(value.upper(), legal, n=1)
    return f"write cudagraph_mode={near[0]!r}." if near else "write one of these names."
