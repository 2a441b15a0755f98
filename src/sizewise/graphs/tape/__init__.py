"""The CPU's counterpart of a CUDA graph: the kernel calls of one run at one exact size, replayed in a straight line.

recorder  one run of a program, with every kernel, operator and allocation noted
memory    where each intermediate lies: those that do not live at one time share memory
tape      the notes bound to memory, as one generated function
backend   all of it as a graph backend
"""

from .backend import TapeBackend, TapeSession
from .recorder import Recording, record
from .tape import Arena, Tape, bind

__all__ = ["Arena", "Recording", "Tape", "TapeBackend", "TapeSession", "bind", "record"]
