"""Other people's models at tiny sizes with random weights: how each traces, splits and computes.

``python -m benchmarks.families`` builds them all and writes docs/families.md; a test keeps its rows true.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sizewise
from sizewise import Dim, SizewiseError
from sizewise.verify.exact import ExactReference
from sizewise.verify.samples import sample
from sizewise.verify.selftest import in_range
from sizewise.verify.tolerance import compare, sum_depth

PAGE = Path(__file__).resolve().parent.parent / "docs" / "families.md"

Built = tuple[nn.Module, dict[str, Any], dict[str, Any]]
"""(model, example keyword arguments, dynamic_shapes)"""


@dataclass(frozen=True)
class Family:
    name: str
    make: Callable[[], Built]
    options: dict[str, Any]
    compiler_decides: bool = False
    """Whether the compiler, not the trace, is why a dim is traced as it is."""


FAMILIES: list[Family] = []


def family(
    name: str, compiler_decides: bool = False, **options: Any
) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    def register(make: Callable[[], Built]) -> Callable[[], Built]:
        FAMILIES.append(Family(name, make, options, compiler_decides))
        return make

    return register


BATCH, SEQ = Dim("batch", 1, 6), Dim("seq", 1, 16)


def text(model: nn.Module, vocabulary: int = 99, mask: bool = True, **more: Any) -> Built:
    ids = torch.randint(3, vocabulary, (3, 8))
    example: dict[str, Any] = {"input_ids": ids, **more}
    dims: dict[str, Any] = {"input_ids": {0: BATCH, 1: SEQ}}
    if mask:
        lengths = torch.tensor([[8], [5], [3]])
        example["attention_mask"] = (torch.arange(8)[None] < lengths).long()
        dims["attention_mask"] = {0: BATCH, 1: SEQ}
    return model.eval(), example, dims


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}


def transformers_model(config: str, model: str, **settings: Any) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    return made


@family("BERT")
def bert() -> Built:
    return text(transformers_model("BertConfig", "BertModel", **SIZES))


@family("RoBERTa")
def roberta() -> Built:
    return text(transformers_model("RobertaConfig", "RobertaModel", **{**SIZES, "max_position_embeddings": 66}))


@family("DistilBERT")
def distilbert() -> Built:
    sizes = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99, "max_position_embeddings": 64}
    return text(transformers_model("DistilBertConfig", "DistilBertModel", **sizes))


@family("ModernBERT")
def modernbert() -> Built:
    settings = {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return text(transformers_model("ModernBertConfig", "ModernBertModel", **settings))


@family("Llama, with a mask")
def llama() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2}
    return text(transformers_model("LlamaConfig", "LlamaForCausalLM", **settings), use_cache=False)


@family("Llama, without a mask")
def llama_without_mask() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2}
    return text(transformers_model("LlamaConfig", "LlamaForCausalLM", **settings), mask=False, use_cache=False)


@family("Qwen3")
def qwen3() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
    return text(transformers_model("Qwen3Config", "Qwen3ForCausalLM", **settings), use_cache=False)


@family("Gemma3")
def gemma3() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "num_hidden_layers": 7}
    return text(transformers_model("Gemma3TextConfig", "Gemma3ForCausalLM", **settings), use_cache=False)


@family("Mistral")
def mistral() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2, "sliding_window": 4}
    return text(transformers_model("MistralConfig", "MistralForCausalLM", **settings), use_cache=False)


@family("GPT-2")
def gpt2() -> Built:
    settings = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 99, "n_positions": 64}
    return text(transformers_model("GPT2Config", "GPT2LMHeadModel", **settings), use_cache=False)


@family("T5 encoder")
def t5_encoder() -> Built:
    settings = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4, "vocab_size": 99}
    return text(transformers_model("T5Config", "T5EncoderModel", **settings))


@family("Qwen3-MoE")
def qwen3_moe() -> Built:
    settings = {
        **SIZES,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    }
    return text(transformers_model("Qwen3MoeConfig", "Qwen3MoeForCausalLM", **settings), use_cache=False)


@family("Mixtral")
def mixtral() -> Built:
    settings = {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    return text(transformers_model("MixtralConfig", "MixtralForCausalLM", **settings), use_cache=False)


@family("Mamba")
def mamba() -> Built:
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4}
    return text(transformers_model("MambaConfig", "MambaForCausalLM", **settings), mask=False, use_cache=False)


def pixels(model: nn.Module, size: int) -> Built:
    return model.eval(), {"pixel_values": torch.randn(3, 3, size, size)}, {"pixel_values": {0: BATCH}}


@family("ViT")
def vit() -> Built:
    settings = {k: v for k, v in SIZES.items() if k not in ("vocab_size", "max_position_embeddings")}
    return pixels(transformers_model("ViTConfig", "ViTModel", **settings, image_size=16, patch_size=4), 16)


@family("CLIP vision")
def clip_vision() -> Built:
    settings = {k: v for k, v in SIZES.items() if k not in ("vocab_size", "max_position_embeddings")}
    return pixels(
        transformers_model("CLIPVisionConfig", "CLIPVisionModel", **settings, image_size=16, patch_size=4), 16
    )


@family("CLIP text")
def clip_text() -> Built:
    settings = {**SIZES, "eos_token_id": 98, "bos_token_id": 0, "pad_token_id": 1}
    return text(transformers_model("CLIPTextConfig", "CLIPTextModel", **settings))


@family("Whisper encoder")
def whisper_encoder() -> Built:
    settings = {
        "d_model": 32,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_layers": 1,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 64,
        "vocab_size": 99,
        "num_mel_bins": 8,
        "max_source_positions": 16,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }
    encoder = transformers_model("WhisperConfig", "WhisperModel", **settings).get_encoder()
    return encoder.eval(), {"input_features": torch.randn(3, 8, 32)}, {"input_features": {0: BATCH}}


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8))


@family("MLP")
def mlp() -> Built:
    return Mlp().eval(), {"input": torch.randn(3, 16)}, {"input": {0: BATCH}}


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).mean((-1, -2)))


@family("CNN, batch")
def cnn() -> Built:
    return Cnn().eval(), {"image": torch.randn(3, 3, 16, 16)}, {"image": {0: BATCH}}


@family("CNN, batch and image size", compiler_decides=True)
def cnn_sizes() -> Built:
    dims = {"image": {0: BATCH, 2: Dim("height", 4, 20), 3: Dim("width", 4, 20)}}
    return Cnn().eval(), {"image": torch.randn(3, 3, 16, 12)}, dims


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


@family("LSTM")
def lstm() -> Built:
    return Lstm().eval(), {"x": torch.randn(3, 8, 8)}, {"x": {0: BATCH}}


@family("TransformerEncoderLayer")
def encoder_layer() -> Built:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return layer.eval(), {"src": torch.randn(3, 8, 32)}, {"src": {0: BATCH, 1: SEQ}}


class MessagePassing(nn.Module):
    """Sums messages over edges: gather, scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        messages = self.message(torch.cat([nodes[source], nodes[target]], -1)).relu()
        summed = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.update(torch.cat([nodes, summed], -1))


@family("graph, gather and scatter")
def graph() -> Built:
    nodes, edges = Dim("nodes", 6, 20), Dim("edges", 1, 30)
    example = {
        "nodes": torch.randn(8, 8),
        "source": torch.randint(0, 6, (12,)),
        "target": torch.randint(0, 6, (12,)),
    }
    return MessagePassing().eval(), example, {"nodes": {0: nodes}, "source": {0: edges}, "target": {0: edges}}


@torch.library.custom_op("sizewise_bench::with_fake", mutates_args=())
def with_fake(x: Tensor) -> Tensor:
    return x.sin() + 1


@with_fake.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("sizewise_bench::without_fake", mutates_args=())
def without_fake(x: Tensor) -> Tensor:
    return x.sin() + 1


class CallsOperator(nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.lin, self.operator = nn.Linear(8, 8), operator

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(self.operator(self.lin(x)))


@family("custom operator with a fake", splitting_ops=["sizewise_bench::with_fake"])
def operator_with_fake() -> Built:
    return CallsOperator(with_fake).eval(), {"x": torch.randn(3, 8)}, {"x": {0: BATCH}}


@family("custom operator without a fake")
def operator_without_fake() -> Built:
    return CallsOperator(without_fake).eval(), {"x": torch.randn(3, 8)}, {"x": {0: BATCH}}


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    name: str
    policy: str
    pieces: str
    right: str

    def __str__(self) -> str:
        return f"| {self.name} | {self.policy} | {self.pieces} | {self.right} |"


def measure(item: Family, backend: str, calls: int) -> Row:
    """Build one family and compare it with eager at ``calls`` random sizes beside those of the self-test."""
    torch.manual_seed(0)
    model, example, dims = item.make()
    fast = sizewise.compile(model, dynamic_shapes=dims, backend=backend, name=item.name, **item.options)
    try:
        fast.warmup(**example)
    except SizewiseError as refusal:
        return Row(item.name, "refused", "", f"{refusal.code} {type(refusal).__name__}")
    report = fast.report()
    tried = _compare(model, fast, calls)
    policy = ", ".join(f"{name} {dim['policy']}" for name, dim in report.dims.items())
    checked = sum(size["verdict"] == "equal" for size in report.sizes)
    programs = len(fast.built.entries)
    pieces = f"{report.pieces.total}, {report.pieces.distinct} distinct" + (
        f", {programs} programs" if programs > 1 else ""
    )
    return Row(item.name, policy, pieces, f"{checked + tried} of {len(report.sizes) + calls}")


@torch.no_grad()
def _compare(model: nn.Module, fast: Any, calls: int) -> int:
    """How many of ``calls`` random calls gave eager's result."""
    generator = torch.Generator().manual_seed(1)
    traced = [entry.program.traced for entry in fast.built.entries]
    exact, depth, right = ExactReference(model), sum_depth(model), 0
    declared = {d.name: d for axes in fast.built.spec.values() for d in axes.values()}
    for _ in range(calls):
        sizes = {
            name: int(torch.randint(dim.min, dim.max + 1, (), generator=generator)) for name, dim in declared.items()
        }
        part = next(t for t in traced if in_range(t, sizes))
        call = sample(part.call, part.spec, sizes, generator)
        reference, seen = model(*call.args, **call.kwargs), fast(*call.args, **call.kwargs)
        if compare(reference, seen, depth) is None or compare(reference, seen, depth, exact=exact(call)) is None:
            right += 1
    return right


def page(rows: list[Row]) -> str:
    lines = [
        "# Models and modules",
        "",
        "Written by `python -m benchmarks.families`: other people's models, untouched, at tiny sizes with random",
        "weights. *Traces*: how each dim is traced. *Right*: sizes at which results equal eager's, of those tried",
        "(the self-test's and random ones). A refusal names its code.",
        "",
        "| model | traces | pieces | right |",
        "|---|---|---|---|",
        *map(str, rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)
    backend = "eager" if "--eager" in sys.argv else "inductor"
    chosen = [item for item in FAMILIES if not sys.argv[1:] or item.name in sys.argv[1:] or "--eager" in sys.argv]
    rows = []
    for item in chosen:
        rows.append(measure(item, backend, calls=30))
        print(rows[-1], flush=True)
    if len(rows) == len(FAMILIES) and backend == "inductor":
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
