"""What a trace assumed about Python values: where each guard goes, and what is rechecked at every call."""

from .snapshot import Snapshot
from .table import TREATMENT

__all__ = ["TREATMENT", "Snapshot"]
