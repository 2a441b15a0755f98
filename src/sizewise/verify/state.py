"""The module's own tensors around a trial run: kept, compared, put back."""

from __future__ import annotations

import torch
from torch import nn


class ModuleState:
    """Copies of a module's buffers, taken at construction.

    Parameters are not copied: a forward that writes to them under no_grad shows in their version.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = {name: b.detach().clone() for name, b in module.named_buffers() if not b.is_meta}

    def current(self) -> dict[str, torch.Tensor]:
        """The buffers as they are now, copied."""
        return {name: b.detach().clone() for name, b in self._module.named_buffers() if name in self._buffers}

    def restore(self) -> None:
        """Write the kept values back, in place, where they differ."""
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                kept = self._buffers.get(name)
                if kept is not None and not same_bits(buffer, kept):
                    buffer.copy_(kept)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors hold the same values; NaN equals NaN."""
    return first.shape == second.shape and bool(((first == second) | ((first != first) & (second != second))).all())
