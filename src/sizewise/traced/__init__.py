"""What a trace found, as plain data. Importing this room imports nothing of torch's compilers."""

from .guards import GuardRecord
from .outputs import Output
from .paths import SourcePath
from .sizes import Assumption, SizeFunction
from .trace import GraphInput, Traced

__all__ = ["Assumption", "GraphInput", "GuardRecord", "Output", "SizeFunction", "SourcePath", "Traced"]
