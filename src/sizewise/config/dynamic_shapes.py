"""How sizes are made symbolic while tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import field_validator

from ..errors import config as errors
from .base import Settings
from .sizes import wrong_type

DynamicShapes = Literal["auto", "unbacked", "backed"]

_OF_VLLM = "backed_size_oblivious"


class DynamicShapesConfig(Settings):
    """How sizes are made symbolic while tracing."""

    if TYPE_CHECKING:
        # Else a type checker derives one from the fields, and refuses a type that is a plain str.
        def __init__(self, **settings: Any) -> None: ...

    type: DynamicShapes = "auto"
    """"unbacked": one trace for every size, fails where code branches on a size. "backed": traced from
    size 2, size 1 on its own. "auto": unbacked first, then backed. SW126 for anything else; vLLM's
    backed_size_oblivious is SW105."""

    evaluate_guards: bool = False
    """vLLM's; True is SW105."""

    assume_32_bit_indexing: bool = False
    """vLLM's; True is SW105."""

    @field_validator("type", mode="before")
    @classmethod
    def _legal_type(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise wrong_type("dynamic_shapes_config.type", value, "a str")
        if value == _OF_VLLM:
            raise errors.NotAvailableYet(
                field="dynamic_shapes_config.type",
                value=value,
                why="Sizewise traces with unbacked or with backed sizes only",
                instead="leave it out for 'auto', or force 'unbacked' or 'backed'",
            )
        legal = get_args(DynamicShapes)
        if value not in legal:
            raise errors.InvalidDynamicShapes(value=value, legal=", ".join(legal))
        return value

    @field_validator("evaluate_guards", "assume_32_bit_indexing")
    @classmethod
    def _not_available_yet(cls, value: bool, info: Any) -> bool:
        if value:
            raise errors.NotAvailableYet(
                field=f"dynamic_shapes_config.{info.field_name}",
                value=value,
                why="Sizewise has no such option yet",
                instead=f"leave {info.field_name} out, or set it to False",
            )
        return value
