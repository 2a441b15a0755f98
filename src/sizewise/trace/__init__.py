"""From a module and a call to one symbolic graph. Nothing here compiles."""

from .graph import GraphInput, TracedGraph
from .outputs import Output
from .policy import trace_all
from .shapes import Assumption, SizeFunction
from .twin import twin_of

__all__ = ["Assumption", "GraphInput", "Output", "SizeFunction", "TracedGraph", "trace_all", "twin_of"]
