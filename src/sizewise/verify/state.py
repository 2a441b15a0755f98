"""The module's own tensors around a trial run: kept, compared, put back."""

from __future__ import annotations

import torch
from torch import nn


class ModuleState:
    """Copies of a module's buffers and plain tensors, taken at construction.

    Parameters are not copied: a forward that writes to them under no_grad shows in their version.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = {name: tensor.detach().clone() for name, tensor in _tensors(module).items()}

    def current(self) -> dict[str, torch.Tensor]:
        """The buffers as they are now, copied."""
        return {name: tensor.detach().clone() for name, tensor in _tensors(self._module).items()}

    def changed(self) -> bool:
        """Whether a buffer or plain tensor differs from what was kept."""
        return any(not same_bits(tensor, self._buffers[name]) for name, tensor in _tensors(self._module).items())

    def restore(self) -> None:
        """Write the kept values back, in place, where they differ."""
        with torch.no_grad():
            for name, tensor in _tensors(self._module).items():
                kept = self._buffers.get(name)
                if kept is not None and not same_bits(tensor, kept):
                    tensor.copy_(kept)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The module's buffers, and the plain tensors in attributes of its parts and in lists and dicts there."""
    found = {name: buffer for name, buffer in module.named_buffers() if not buffer.is_meta}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            entries = value if isinstance(value, (list, tuple)) else [value]
            entries = list(value.values()) if isinstance(value, dict) else entries
            for index, entry in enumerate(entries):
                if type(entry) is torch.Tensor and not entry.is_meta and entry.layout == torch.strided:
                    found[f"{path}.{name}.{index}"] = entry
    return found


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors hold the same values; NaN equals NaN."""
    return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())
