"""torch.compile's words for a mode, as settings."""

from __future__ import annotations

from typing import Any

from ..errors import config as errors

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraph_mode": "FULL"},
    "max-autotune": {"cudagraph_mode": "FULL", "inductor_compile_config": {"max_autotune": True}},
}


def preset(mode: str) -> dict[str, Any]:
    """The fields of CompilationConfig that torch.compile's word stands for, as a fresh dict. Raises SW135."""
    if not isinstance(mode, str) or mode not in PRESETS:
        raise errors.UnknownPreset(mode=mode, legal=", ".join(PRESETS))
    return {name: dict(value) if isinstance(value, dict) else value for name, value in PRESETS[mode].items()}
