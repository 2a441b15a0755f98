"""Which backend captures for a kind of device."""

from __future__ import annotations

from .backend import GraphBackend


def backend_for(device_type: str, warmups: int | None = None) -> GraphBackend:
    """CUDA graphs for "cuda", tapes for everything else.

    ``warmups``: runs of each call before its capture; None is the backend's own number, and tapes need none.
    """
    if device_type == "cuda":
        from .cuda import CUDABackend

        return CUDABackend() if warmups is None else CUDABackend(cudagraph_num_of_warmups=warmups)
    from .tape import TapeBackend

    return TapeBackend()
