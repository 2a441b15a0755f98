"""From a module and a call to one symbolic graph. Nothing here compiles."""

from .graph import TracedGraph
from .policy import trace_all
from .twin import twin_of

__all__ = ["TracedGraph", "trace_all", "twin_of"]
