"""transformers' attention and mask interfaces: sdpa attention becomes Sizewise's opaque operator.

Only a model set to ``sdpa`` is adapted, and only in a twin: same results, one operator per layer
instead of branches on sizes. A model set to any other attention is traced as it is.

Public API: ``AttentionInterface.register``, ``AttentionMaskInterface.register``. Private:
``config._attn_implementation``, ``sdpa_mask``'s keyword arguments. Checked on transformers 5.24.0.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import nn

from ..errors import trace as errors
from ..ops import attention_overload

NAME = "sizewise"


def is_transformers_model(module: nn.Module) -> bool:
    """Whether ``module`` holds a transformers model; does not import transformers."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return False
    return any(isinstance(part, library.PreTrainedModel) for part in module.modules())


def adapt(module: nn.Module, memo: dict[int, Any]) -> None:
    """Give a twin copies of the configs of ``module`` that ask for the opaque attention.

    ``memo`` is the twin's: id of an original -> its copy.
    """
    if not is_transformers_model(module):
        return
    configs = {id(config): config for part in module.modules() if (config := getattr(part, "config", None)) is not None}
    adaptable = [c for c in configs.values() if getattr(c, "_attn_implementation", None) == "sdpa"]
    if not adaptable:
        return
    _register()
    # One deepcopy of all of them keeps a sub-config shared where it was shared.
    copies = copy.deepcopy(adaptable, _kept_modules(module))
    for original, duplicate in zip(adaptable, copies, strict=True):
        duplicate._attn_implementation = NAME
        memo[id(original)] = duplicate


def prepare(module: nn.Module) -> None:
    """Make known what a program of ``module`` that was built elsewhere looks up: the opaque attention, by its name."""
    if is_transformers_model(module):
        _register()


def _kept_modules(module: nn.Module) -> dict[int, Any]:
    """A deepcopy memo that keeps modules as they are, should a config refer to one."""
    return {id(part): part for part in module.modules()}


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    attention_overload()
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, additive_mask)


def attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface: (batch, heads, queries, size) in, (batch, queries, heads, size) out.

    Raises:
        NotTraceable (SW207): a setting that sdpa attention does not have either.
    """
    unsupported = [name for name in ("softcap", "s_aux") if kwargs.get(name) is not None]
    if unsupported or dropout:
        what = ", ".join(unsupported) or f"dropout {dropout}"
        hint = 'set the model\'s attention to "eager": model.set_attn_implementation("eager").'
        name = type(module).__name__
        raise errors.NotTraceable(owner=name, reason=f"attention with {what}", where="", graph_break="", hint=hint)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = _additive(attention_mask, query.dtype)
    if position_bias is not None:
        attention_mask = _with_position_bias(position_bias, attention_mask)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    batch, heads, queries, _ = query.shape
    out = query.new_empty((batch, queries, heads, value.shape[-1]))
    torch.ops.sizewise.attention(
        query,
        key,
        value,
        attention_mask,
        scaling,
        bool(causal) and attention_mask is None,
        # Static in every model: the number of heads is not a size that changes.
        key.shape[1] != heads,
        out,
    )
    return out, None


def _with_position_bias(bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Bias and mask as one additive mask, as transformers' own sdpa attention joins them.

    With a bias it fills masked places with the smallest number instead of -inf, which matters in rows
    that are masked altogether.
    """
    if mask is None:
        return bias
    return torch.where(mask == float("-inf"), torch.finfo(bias.dtype).min, bias + mask)


def additive_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *args: Any,
    dtype: torch.dtype = torch.float32,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    local_size: int | None = None,
    **kwargs: Any,
) -> torch.Tensor | None:
    """transformers' mask interface: the sdpa mask as a computed float tensor, made once for all layers.

    0 where a key is attended to and -inf where it is not, which is what sdpa makes of a boolean mask in
    every layer. No mask is made for bidirectional attention without padding.
    """
    from transformers.masking_utils import sdpa_mask

    if allow_is_bidirectional_skip and attention_mask is None and local_size is None:
        return None
    mask = sdpa_mask(
        batch_size,
        q_length,
        kv_length,
        *args,
        attention_mask=attention_mask,
        # A skipped causal mask would need `q_length == kv_length` decided while tracing.
        allow_is_causal_skip=False,
        allow_is_bidirectional_skip=False,
        local_size=local_size,
        **kwargs,
    )
    return _additive(mask, dtype)


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    zero = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, zero, float("-inf"))
