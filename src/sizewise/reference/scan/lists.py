"""Lists of texts that are joined in the end: ``lines.append("...")`` and ``"\\n".join(lines)``.

A list is kept among the variables as templates in which `ITEM` stands before every item, under the variable's name
with `LIST` before it. A list that is built in branches has several, as a text has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from .templates import ANY, LIMIT, LISTED, Texts, literal_length, shortened

ITEM = "\0"
LIST = "["
"""Before the name of a variable that holds a list; no variable's name starts with it."""
CALLED = "="
"""Before the name of a variable that holds what a call returned: the hole of that call."""
WORDS = 8
"""Letters of an item that says something."""


def is_special(name: str) -> bool:
    """Whether a name among the variables is of a list, or of what a call returned."""
    return name.startswith((LIST, CALLED))


def added(before: Texts, after: Texts) -> Texts:
    """Two lists, one behind the other."""
    return pooled([shortened(first + second) for first, second in product(before, after)])


def pooled(texts: Sequence[str]) -> Texts:
    """At most `LIMIT` different lists; of more of them one per item, with what all begin with and holes around."""
    different = tuple(dict.fromkeys(texts))
    if len(different) <= LIMIT:
        return different
    lists = [text.split(ITEM)[1:] for text in different]
    first, last = min(lists), max(lists)
    length = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    start = "".join(ITEM + item for item in first[:length])
    items = dict.fromkeys(item for one in lists for item in one[length:] if literal_length(item) >= WORDS)
    around = f"{ITEM}{ANY}"
    return tuple(f"{start}{around}{ITEM}{item}{around}" for item in list(items)[:LISTED]) or (start + around,)


def merged(values: Iterable[Texts | None]) -> Texts:
    """A list behind branches of which each may have run; None where a branch says nothing of it."""
    return pooled([text for texts in values for text in (texts if texts is not None else (ITEM + ANY,))])


def repeated(before: Texts, after: Texts) -> Texts:
    """A list behind a loop that appends to it."""
    around = f"{ITEM}{ANY}"
    some = [text if text.endswith(around) else text + around for text in after]
    return pooled([*some, *(text for text in before if text not in after)])


def joined_items(lists: Texts, between: str) -> Texts:
    """What ``between.join(list)`` says; without the lists that are empty, if there are others."""
    texts = [_joined(text, between) for text in lists]
    return tuple(dict.fromkeys(text for text in texts if literal_length(text))) or tuple(
        dict.fromkeys(text for text in texts if text)
    )


def _joined(text: str, between: str) -> str:
    text = text.removeprefix(ITEM)
    # A hole for any number of items holds what stands between them, too.
    for odd in (f"{ANY}{ITEM}", f"{ITEM}{ANY}"):
        text = text.replace(odd, ANY)
    text = text.replace(ITEM, between)
    while ANY + ANY in text:
        text = text.replace(ANY + ANY, ANY)
    return text
