"""The output template: what the forward returned, with graph outputs in place of its tensors.

Containers are known by import path, so a template can be written down and read back without pickle.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Output:
    """A node of the template.

    ``kind``: ``graph`` (graph output ``index``), ``input`` (argument ``path``), ``tensor`` (parameter or
    buffer at ``path``), ``constant`` (``value``), or a container: ``tuple``, ``list``, ``dict`` (any dict
    class), ``namedtuple``, ``structseq``, ``fields`` (a dataclass, transformers' ModelOutput included).
    """

    kind: str
    index: int = -1
    path: str = ""
    value: Any = None
    cls: str = ""
    keys: tuple[Any, ...] = ()
    children: tuple[Output, ...] = ()


def find_class(name: str) -> type:
    """The class at ``module:qualname``."""
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found
