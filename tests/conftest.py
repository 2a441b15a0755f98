"""What every test shares: one Inductor cache, one thread, no network."""

from __future__ import annotations

import os
from pathlib import Path

# Before torch is imported: Inductor reads its cache directory once. One cache for the whole session
# keeps the half-minute of a machine's first compile, and equal pieces, to one time.
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "inductor"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(CACHE))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Tests count traces and compilations; those that are about the cache turn it on, in a folder of their own.
os.environ["SIZEWISE_DISABLE_COMPILE_CACHE"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread_and_a_seed() -> None:
    """Results that repeat: one thread, one seed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
