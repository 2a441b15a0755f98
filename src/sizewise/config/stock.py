"""torch.compile's own arguments, for whoever brings them to `sizewise.compile`: what they are called here."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import config as errors
from .compilation import CompilationConfig

_EXAMPLE = 'dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}}'
_INSTEAD = {
    "fullgraph": "leave it out: a module is always traced as one graph here",
    "recompile_limit": "leave it out: nothing is compiled again at a call; the setting for programs is max_programs",
    "isolate_recompiles": "leave it out: nothing is compiled again at a call",
    "shapes_spec": f"write dynamic_shapes in its place: {_EXAMPLE}",
}


def unknown_option(name: str, value: Any, own: Sequence[str]) -> errors.UnknownSetting:
    """SW102 for a keyword of `sizewise.compile`, whose arguments are ``own`` and the fields of the config."""
    known = [*own, *sorted(CompilationConfig.model_fields.keys() - set(own))]
    near = get_close_matches(name, known, n=1)
    suggestion = _of_torch(name, value) or (f"write {near[0]!r}" if near else "")
    return errors.UnknownSetting(
        owner="sizewise.compile",
        name=name,
        value=value,
        suggestion=f"{suggestion}; " if suggestion else "",
        known=", ".join(known),
    )


def _of_torch(name: str, value: Any) -> str:
    """What to write for an argument of torch.compile, '' for other names."""
    if name == "dynamic":
        if value is False:
            return "write dynamic_shapes={} for torch.compile's dynamic=False: no size changes"
        return f"say which sizes change, for torch.compile's dynamic: {_EXAMPLE}"
    if name == "options":
        given = repr(value) if isinstance(value, dict) and value else "{...}"
        return f"write inductor_compile_config={given} for torch.compile's options"
    return _INSTEAD.get(name, "")
