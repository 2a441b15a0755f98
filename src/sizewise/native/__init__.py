"""What is asked and done at every call, in C++: a small extension that is built on the machine, with no part of torch.

`current` gives it, or None: then the same is done in Python, more slowly. `ensure` builds it, which takes half a second
of CPU time once per machine; a program that is built anyway waits for that, one that is loaded does not.
"""

from .copies import copied_in
from .layout import address
from .layout import found as found_layout
from .library import content, current, ensure, key, use
from .watch import MISSING, Places, watch

__all__ = [
    "MISSING",
    "Places",
    "address",
    "content",
    "copied_in",
    "current",
    "ensure",
    "found_layout",
    "key",
    "use",
    "watch",
]
