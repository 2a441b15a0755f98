"""What a call of the user's module does besides computing a result from values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effects:
    """Seen in eager mode before anything is traced. Names are paths of arguments, or of parameters."""

    written: frozenset[str] = frozenset()
    """Arguments that the call writes to."""
    returned: frozenset[str] = frozenset()
    """Arguments that a result is, or shares memory with."""
    writes_module: bool = False
    """Whether the call writes to the module's own tensors."""
    written_parameters: frozenset[str] = frozenset()
    """Those of them that are parameters."""
    by_stride: bool = False
    """Whether a result depends on how arguments lie in memory, and not only on their values."""
    by_identity: bool = False
    """Whether a result depends on two arguments being the same tensor, and not only on their values."""

    def needs_contiguous(self, path: str) -> bool:
        """Whether a contiguous copy of this argument would not do in its place."""
        return self.by_stride or path in self.written or path in self.returned
