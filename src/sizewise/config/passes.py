"""Switches of graph passes, under vLLM's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from ..errors import config as errors
from .base import Settings


class PassConfig(Settings):
    """Switches of graph passes. None and False mean that a pass does not run.

    Sizewise has no passes yet, so that turning one on raises SW105 (a NotImplementedError).
    """

    if TYPE_CHECKING:
        # Else a type checker derives one from the fields, and refuses values that are checked at run time.
        def __init__(self, **settings: Any) -> None: ...

    fuse_norm_quant: bool | None = None
    fuse_act_quant: bool | None = None
    fuse_attn_quant: bool | None = None
    eliminate_noops: bool | None = None
    fuse_allreduce_rms: bool | None = None
    enable_qk_norm_rope_fusion: bool | None = None
    fuse_rope_kvcache_cat_mla: bool | None = None
    fuse_act_padding: bool | None = None
    fuse_mla_dual_rms_norm: bool | None = None
    fuse_rope_kvcache: bool | None = None
    fuse_qk_norm_rope_kvcache: bool | None = None
    rope_kvcache_fusion_max_token_num: int | None = None
    fi_allreduce_fusion_max_size_mb: float | None = None

    @field_validator("*")
    @classmethod
    def _not_available_yet(cls, value: Any, info: Any) -> Any:
        if value is None or value is False:
            return value
        raise errors.NotAvailableYet(
            field=f"pass_config.{info.field_name}",
            value=value,
            why="Sizewise has no graph passes yet",
            instead=f"leave {info.field_name} out, or set it to None",
        )
