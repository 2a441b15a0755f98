"""torch.compile's words for a mode, as settings."""

from __future__ import annotations

from typing import Any

from ..errors import config as errors
from .modes import CompilationMode

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraph_mode": "FULL"},
    "max-autotune": {"cudagraph_mode": "FULL", "inductor_compile_config": {"max_autotune": True}},
}


def preset(mode: str) -> dict[str, Any]:
    """The fields of CompilationConfig that torch.compile's word stands for, as a fresh dict. Raises SW135."""
    if not isinstance(mode, str) or mode not in PRESETS:
        captures = ", ".join(name for name, fields in PRESETS.items() if "cudagraph_mode" in fields)
        raise errors.UnknownPreset(mode=mode, legal=", ".join(PRESETS), instead=_instead(mode), captures=captures)
    return {name: dict(value) if isinstance(value, dict) else value for name, value in PRESETS[mode].items()}


def _instead(mode: Any) -> str:
    """What to write for a word that is no preset."""
    name = mode.upper() if isinstance(mode, str) else getattr(mode, "name", None)
    known = CompilationMode.__members__
    if name in known or (type(mode) is int and mode in set(known.values())):
        word = name if name in known else CompilationMode(mode).name
        return f"give a mode of the config to the config, config=CompilationConfig(mode={word!r})"
    if isinstance(mode, str) and mode.startswith("max-autotune"):
        return 'set what you mean, inductor_compile_config={"max_autotune": True}'
    return "leave mode out for the defaults, or set the fields of CompilationConfig that you mean"
