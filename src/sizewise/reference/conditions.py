"""Conditions around a line that raises, as they are shown."""

from __future__ import annotations

import re

_ONE_WORD = re.compile(r"(?:not\s+)?\(?\s*[A-Za-z]\w*\s*\)?")


def says_something(condition: str) -> bool:
    """Whether a condition tells more than that something was so: a bare name such as ``not ok`` does not."""
    text = condition.strip()
    found = _ONE_WORD.fullmatch(text)
    # A name of several words, `not cudagraph_capturing_enabled`, does tell.
    return bool(text) and (found is None or "_" in text)
