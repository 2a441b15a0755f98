"""A directory with a transformers model, as a factory would return it.

Public API of transformers: ``AutoModel``, ``AutoTokenizer``, ``main_input_name``. Checked on 5.24.0.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch

from ..dims import Dim
from ..errors import command as errors

LARGEST_BATCH = 32
LARGEST_SEQUENCE = 128
INPUTS = ("input_ids", "pixel_values", "input_values", "input_features")
"""The names transformers gives to what a model is about: text, images, audio, audio."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_SENTENCES = ("A short one.", "Another sentence, which has a few more words than the first.")

Made = tuple[Any, dict[str, Any], dict[str, dict[int, Dim]]]
"""Model, example_kwargs, dynamic_shapes."""


def load_model_directory(path: Path) -> Made:
    """The model in evaluation mode with example inputs of two rows; local files only.

    Raises:
        MissingExtra (SW702): transformers is not installed.
        UnsupportedModelDirectory (SW706): the model takes neither text alone nor images alone.
        Whatever transformers raises for files it cannot read.
    """
    try:
        import transformers
    except ImportError:
        command = 'pip install "sizewise[demo]"'
        raise errors.MissingExtra(what=f"{path}", package="transformers", command=command) from None
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    model.eval()
    kind = _input_kind(path, model)
    if kind == "pixel_values":
        return model, _images(model.config), {"pixel_values": {0: Dim("batch", 1, LARGEST_BATCH)}}
    if hasattr(model.config, "use_cache"):
        # One pass over whole sequences has no use for what decoding would keep.
        model.config.use_cache = False
    return _with_text(path, model)


def _input_kind(path: Path, model: Any) -> str:
    taken = [name for name in INPUTS if name in inspect.signature(model.forward).parameters]
    seen = f"it takes {' and '.join(taken) or 'none of ' + ', '.join(INPUTS)}"
    if model.config.is_encoder_decoder:
        seen += " and is an encoder with a decoder"
    elif taken in (["input_ids"], ["pixel_values"]):
        return taken[0]
    raise errors.UnsupportedModelDirectory(model=type(model).__name__, path=path, seen=seen)


def _images(config: Any) -> dict[str, Any]:
    size = config.image_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return {"pixel_values": torch.randn(2, config.num_channels, height, width, generator=_generator())}


def _with_text(path: Path, model: Any) -> Made:
    longest = min(LARGEST_SEQUENCE, getattr(model.config, "max_position_embeddings", LARGEST_SEQUENCE))
    example = _tokenized(path, longest) or _random_ids(model.config, longest)
    taken = inspect.signature(model.forward).parameters
    kwargs = {name: tensor for name, tensor in example.items() if name in taken}
    axes = {0: Dim("batch", 1, LARGEST_BATCH), 1: Dim("seq", 1, longest)}
    return model, kwargs, {name: dict(axes) for name in kwargs}


def _tokenized(path: Path, longest: int) -> dict[str, Any] | None:
    """Two sentences of different length, so that the mask holds both zeros and ones."""
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        return None
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            return None
        tokenizer.pad_token = tokenizer.eos_token
    made = tokenizer(list(_SENTENCES), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return {name: made[name] for name in ("input_ids", "attention_mask")}


def _random_ids(config: Any, longest: int) -> dict[str, Any]:
    length = min(8, longest)
    ids = torch.randint(config.vocab_size, (2, length), generator=_generator())
    mask = torch.ones_like(ids)
    mask[0, length - length // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
