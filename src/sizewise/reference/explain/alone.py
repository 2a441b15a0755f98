"""What a message has to say of its own where no frame says whose it is: much, for many packages say the little."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..store import Stored
from .told import Told
from .twins import twin
from .wording import flat, letters, pieces_of

if TYPE_CHECKING:
    from .evidence import Evidence

ENOUGH, WITHOUT_START, WITHOUT_CLASS = 22, 34, 10
"""Letters and digits of a template that are enough, that are where it starts with a hole, and as many more where no
class was told."""
MORE = {"whole": 0, "longer": 8}
PARTLY = 10
"""As many more where the message says more than the template, or not all of it."""
OF_ITS_CLASS = 10
"""Letters and digits that are enough beside a class of the package's own, named with its module."""
NAMED = 8
"""Letters and digits that a name (of an argument, a class, a function) in a template is worth more than other words."""
CLOSE, TORN, PART = 0.03, 0.5, 2
"""How near another record's confidence is that fits alike, what is left of it where they are of other parts of the
packages, and how many folders name a part."""
COPIES = (
    "torch/_numpy/",
    "torch/_vendor/",
    "torch/_dynamo/polyfills/",
    "torch/fx/experimental/unification/",
    "torch/package/_importlib.py",
    "torch/package/importer.py",
    "torch/utils/_sympy/",
    "vllm/third_party/",
)
"""Where torch and vLLM have what other packages have, texts and all."""
_NAME = re.compile(r"[A-Za-z]\w*_\w+|\w+[a-z][A-Z]\w*|\w+\.\w+")


def says_enough(stored: Stored, told: Told, form: str, matched: int) -> bool:
    """Whether a message without a frame says that it is this record's.

    ``matched``: letters and digits of the template that the message has.
    """
    if told.unread or all(site.path.startswith(COPIES) for site in stored.sites):
        return False
    if "." in (stored.error_class or "") and stored.error_class == told.error_class:
        return matched >= OF_ITS_CLASS
    pieces = pieces_of(stored.template)
    wanted = ENOUGH if letters(pieces[0]) else WITHOUT_START
    if told.error_class is None:
        wanted += WITHOUT_CLASS
    wanted += MORE.get(form, PARTLY)
    names = {name for piece in pieces for name in _NAME.findall(piece)}
    return matched + NAMED * len(names) >= wanted and of_others(told, matched) is None


def torn(found: Sequence[Evidence]) -> list[Evidence]:
    """Records of several parts of the packages that fit a message without a frame alike: none is the answer."""
    first = found[0] if found else None
    if first is None or first.place >= 2 or first.told.kind in ("log", "warning"):
        return list(found)
    near = (one for one in found[1:] if one.confidence >= first.confidence - CLOSE and one.place == first.place)
    if all(one.site.path.split("/")[:PART] == first.site.path.split("/")[:PART] for one in near):
        return list(found)
    return [replace(one, confidence=round(one.confidence * TORN, 3)) for one in found]


def of_others(told: Told, matched: int = 0) -> str | None:
    """Whose message, too, this is: "python", "numpy" or neither's. ``matched``: letters of the record's template."""
    return twin(flat(plain(told).split("\n")[0]), matched)


def plain(told: Told) -> str:
    """The message; that of a KeyError without its quotes."""
    text = told.message.strip()
    if told.short_class == "KeyError" and len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
