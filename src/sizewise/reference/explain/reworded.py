"""Messages of which a few words were changed since, or before, the template was written."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from .wording import pieces_of, words_of

MOST = 80
"""Words of a message or a template that are compared."""
PER_CHANGE = 9
"""Words of a template for each that may have changed."""
SUBJECT = 2
"""Words at the start that have to be the same."""
_HOLE = "{}"
_TURNS = frozenset({"not", "no", "never", "cannot", "without", "t", "unsupported", "invalid"})
"""Words that make a sentence say the opposite."""


def changes(template: str, words: Sequence[str]) -> float:
    """Changed words of a message, as a share of as many as may have changed; above 1 where they are too many.

    What stands where the template has a hole does not count.
    """
    tokens: list[str] = []
    for number, piece in enumerate(pieces_of(template)):
        tokens += [_HOLE] * (number > 0) + words_of(piece)
    literal = len(tokens) - tokens.count(_HOLE)
    allowed = literal // PER_CHANGE
    if not allowed or max(len(tokens), len(words)) > MOST:
        return 2.0
    changed = 0
    for _, first, last, start, end in SequenceMatcher(None, tokens, words, autojunk=False).get_opcodes():
        held, said = tokens[first:last], words[start:end]
        if held == list(said):
            continue
        missing = [word for word in held if word != _HOLE]
        extra = [] if _HOLE in held else said
        # Errors that stand side by side differ in their subject, or in a name.
        if first < SUBJECT or any(word in _TURNS or "_" in word for word in (*missing, *extra)):
            return 2.0
        changed += max(len(missing), len(extra))
    return changed / allowed
