"""What makes a single setting, or two beside each other, wrong at construction."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..errors import config as errors
from .modes import CompilationMode
from .sizes import positive_int, wrong_type

if TYPE_CHECKING:
    from .base import Settings
    from .compilation import CompilationConfig

PIECEWISE_BACKENDS = ("", "eager", "inductor")

_OPERATOR = re.compile(r"\w+::\w+(\.\w+)?")


def check_custom_ops(custom_ops: list[str]) -> None:
    """Raises SW110, SW111, SW112, in vLLM's order of messages."""
    for op in custom_ops:
        if op not in ("all", "none") and (op[:1] not in ("+", "-") or len(op) < 2):
            raise errors.CustomOpSyntax(op=op, custom_ops=custom_ops, instead=_switch_for(op))
    if custom_ops.count("all") + custom_ops.count("none") > 1:
        raise errors.CustomOpBaseModes(custom_ops=custom_ops)
    enabled, disabled = ({op[1:] for op in custom_ops if op[0] == sign} for sign in "+-")
    if both := sorted(enabled & disabled):
        raise errors.CustomOpConflict(ops=", ".join(both), custom_ops=custom_ops)


def _switch_for(op: str) -> str:
    """What to write in the place of an entry of custom_ops that is no switch."""
    word = op.strip()
    name = re.sub(r"^\W+", "", word)
    if name.lower() in ("all", "none") and name == word:
        return f"write {name.lower()!r}"
    if not name:
        return "write an operator's name behind the sign, or remove the entry"
    if word[0] in "+-":
        return f"write {word[0] + name!r}"
    return f"write {'+' + name!r} to enable the operator or {'-' + name!r} to disable it"


def check_splitting_op(op: Any) -> None:
    """An operator's name or a module class. Raises SW113."""
    if isinstance(op, type):
        # By name, so that checking a config does not import torch.
        bases = {f"{base.__module__}.{base.__qualname__}" for base in op.__mro__}
        legal = "torch.nn.modules.module.Module" in bases
    else:
        legal = isinstance(op, str) and _OPERATOR.fullmatch(op) is not None
    if not legal:
        raise errors.InvalidSplittingOp(op=op)


def check_backend(config: CompilationConfig) -> None:
    """Raises SW109."""
    if config.mode is CompilationMode.PIECEWISE and config.backend not in PIECEWISE_BACKENDS:
        raise errors.InvalidPiecewiseBackend(backend=config.backend)


def check_max_capture_size(config: CompilationConfig) -> None:
    """The maximum beside the list. Raises SW121, SW122."""
    maximum, sizes = config.max_cudagraph_capture_size, config.cudagraph_capture_sizes
    if maximum is None or sizes is None:
        return
    if isinstance(sizes, dict) or isinstance(sizes[0], tuple):
        raise errors.MaxCaptureSizeOfSeveralDims(maximum=maximum, sizes=sizes)
    if maximum != sizes[-1]:
        raise errors.MaxCaptureSizeDisagrees(maximum=maximum, largest=sizes[-1], sizes=sizes)


def check_encoder(config: CompilationConfig) -> None:
    """vLLM's checks, then the refusal of what does not exist yet. Raises SW105, SW123, SW124, SW125."""
    budgets = config.encoder_cudagraph_token_budgets
    items = config.encoder_cudagraph_max_vision_items_per_batch
    frames = config.encoder_cudagraph_max_frames_per_batch
    if any(budget <= 0 for budget in budgets):
        raise errors.EncoderBudgetsNotPositive(budgets=budgets)
    if not config.cudagraph_mm_encoder:
        return
    if items < 0:
        raise errors.EncoderVisionItemsNegative(value=items)
    if frames is not None and frames < 0:
        raise errors.EncoderFramesNegative(value=frames)
    raise errors.NotAvailableYet(
        field="cudagraph_mm_encoder",
        value=True,
        why="Sizewise has no encoder graphs yet",
        instead="leave it out, and compile the encoder as a module of its own",
    )


def check_inductor_passes(passes: dict[str, Any]) -> None:
    """Raises SW105."""
    if passes:
        raise errors.NotAvailableYet(
            field="inductor_passes",
            value=passes,
            why="Sizewise cannot run passes inside Inductor yet",
            instead="leave it out",
        )


def check_inductor_options(options: Mapping[str, Any]) -> None:
    """Raises SW138 for the first name that the installed torch's Inductor does not know; imports torch if there is one.

    Private API: ``torch._inductor.config``. Checked on torch 2.13.0.
    """
    if not options:
        return
    import torch
    from torch._inductor import config as inductor

    listed = torch._inductor.list_options()
    # The list leaves out a few options that exist.
    known = {*listed, *getattr(inductor, "_config", ())}
    for name in (name for name in options if name not in known):
        near = get_close_matches(name, listed, n=1)
        raise errors.UnknownInductorOption(
            name=name, version=torch.__version__, suggestion=f"write {near[0]!r}; " if near else ""
        )


def checked_max_capture_size(value: Any) -> int | None:
    """Raises SW104, SW120."""
    if type(value) is int and value < 1:
        raise errors.MaxCaptureSizeTooSmall(value=value)
    return None if value is None else positive_int("max_cudagraph_capture_size", value)


def checked_warmups(value: Any) -> int | None:
    """Raises SW104."""
    if value is not None and (type(value) is not int or value < 0):
        raise wrong_type("cudagraph_num_of_warmups", value, "an int of at least 0, or None")
    return value


def checked_folder(value: Any) -> str:
    """The path of a folder, as text. Raises SW104."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise wrong_type("cache_dir", value, "a path")
    return path


def plain_data(field: str, value: Any) -> Any:
    """A copy of plain JSON data. Raises SW127."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain_data(f"{field}[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_data(f"{field}[{index}]", item) for index, item in enumerate(value)]
    finite = isinstance(value, float) and math.isfinite(value)
    if value is None or isinstance(value, bool | int | str) or finite:
        return value
    raise errors.NotPlainData(field=field, value=value, kind=type(value).__name__)


def checked_group(kind: type[Settings], field: str, value: Any) -> Any:
    """A nested group of settings from itself or a dict of its fields. Raises SW104."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise wrong_type(field, value, f"a {kind.__name__} or a dict of its fields")
    return kind.model_validate(value)
