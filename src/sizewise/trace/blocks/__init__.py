"""Equal blocks of a model are traced once; the others are stamped from that trace.

``alike`` finds blocks that are proved alike before the trace. ``markers`` puts marks around the first of them and a
stand-in in place of each other one, and compares every call with the first one's while the trace runs. ``stamp`` puts
copies of the first one's part of the graph where the stand-ins are. Whatever is not as it should be is a `NotAlike`,
and the model is traced in full.
"""

from .alike import NotAlike, Run, find_runs
from .stamp import capture_once

__all__ = ["NotAlike", "Run", "capture_once", "find_runs"]
