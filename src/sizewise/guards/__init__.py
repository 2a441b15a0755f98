"""What a trace assumed about Python values: where each guard goes, and what is rechecked at every call."""

from .plan import PlacesPlan
from .planner import plan_places
from .snapshot import Snapshot
from .table import TREATMENT, in_words

__all__ = ["TREATMENT", "PlacesPlan", "Snapshot", "in_words", "plan_places"]
