"""Which of a call's results share memory: with arguments, with the module's tensors, with one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..calls import Call
from .tolerance import tensors_of

Sharing = Mapping[str, frozenset[str]]
"""Output path -> what it shares a storage with."""


def sharing(result: Any, call: Call, module: nn.Module) -> Sharing:
    """What every tensor of ``result`` shares its storage with; earlier outputs are among what it may be."""
    names: dict[int, set[str]] = {}
    for name, tensor in _inputs(call, module):
        if tensor.layout == torch.strided and not tensor.is_meta:
            names.setdefault(_storage(tensor), set()).add(name)
    found: dict[str, frozenset[str]] = {}
    for path, tensor in tensors_of(result):
        if tensor.layout != torch.strided or not tensor.numel():
            continue
        shared = names.setdefault(_storage(tensor), set())
        found[path] = frozenset(shared)
        shared.add(path)
    return found


def excess(eagers: Sharing, ours: Sharing) -> frozenset[str]:
    """The outputs that share memory in our results with something that they do not share it with in eager's."""
    return frozenset(path for path, shared in ours.items() if shared - eagers.get(path, frozenset()))


def _inputs(call: Call, module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for leaf in call.tensors():
        yield leaf.path, leaf.value
    # Tied tensors and views of one storage are one thing to share memory with.
    for tensor in (*module.parameters(), *module.buffers()):
        yield "the module", tensor


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
