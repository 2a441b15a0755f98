"""How much of a message a template says: its literal pieces in order, or at least runs of its words.

No regular expression of a template is run over a message: pieces are looked for from left to right, which finds what
the expression would and takes time linear in the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

MESSAGE = 6000
"""Characters of a message that are compared."""
PIECE = 12
"""Letters of a cut piece that have to be there."""
SOME, VALUE = 40, 12
"""Letters of a template before a hole that holds at most so many words, where the message ends right behind it."""
FAR = 60
"""Letters of a template before a hole in which a message may end after any text."""
_HOLE = re.compile(r"\{[^{}]*\}")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_]*|\d+")
_SENTENCE = re.compile(r"(?<=[.!?;:]) ")
SENTENCE = 6
"""Words of a sentence that says something of its own."""
_LETTERS = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Said:
    """A message, prepared to be compared with many templates."""

    text: str
    """On one line, with single spaces."""
    words: tuple[str, ...]
    grams: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Run of three words -> where it starts."""
    counted: int = 0
    """Words that are no numbers."""
    sentences: tuple[range, ...] = ()
    """The words of each sentence of at least six."""

    @classmethod
    def of(cls, message: str) -> Said:
        text = flat(message)
        words: tuple[str, ...] = ()
        sentences: list[range] = []
        for sentence in _SENTENCE.split(text):
            start = len(words)
            words += tuple(words_of(sentence))
            if len(words) - start >= SENTENCE:
                sentences.append(range(start, len(words)))
        grams: dict[tuple[str, ...], int] = {}
        for start in range(len(words) - 2):
            grams.setdefault(words[start : start + 3], start)
        return cls(text, words, grams, sum(not _is_value(word) for word in words), tuple(sentences))


@dataclass(frozen=True)
class Fit:
    """How a template fits a message.

    ``form``: whole (the template's pieces in order, from the first to the last character), longer (in order, with
    more text around), shorter (the message is the beginning of the template), words (runs of the same words).
    """

    form: str
    literal: int
    """Letters and digits of the template found in the message."""
    message_share: float
    """Share of the message's words that the template says."""
    template_share: float
    """Share of the template's literal words that the message has."""
    holes: bool
    """Whether the template has any."""
    sentence: bool = True
    """Whether a whole sentence of the message is in the template."""
    kept: bool = True
    """Whether all of the template's runs of three words are in the message."""


def flat(text: str) -> str:
    """On one line, with single spaces."""
    return " ".join(text[:MESSAGE].split())


def pieces_of(template: str) -> list[str]:
    """The literal text between the holes, with single spaces; "" at an end where a hole stands."""
    if "\x1b" in template:
        template = _STYLE.sub("", template)  # terminals take it, and `lines` takes it from a message
    if "{{" not in template and "}}" not in template:
        parts = _HOLE.split(template)
    else:
        masked = template.replace("{{", "\0").replace("}}", "\1")
        parts = [part.replace("\0", "{").replace("\1", "}") for part in _HOLE.split(masked)]
    pieces = [re.sub(r"\s+", " ", part) for part in parts]
    # A flattened message neither starts nor ends with a space.
    pieces[0] = pieces[0].lstrip()
    pieces[-1] = pieces[-1].rstrip()
    return pieces


def words_of(text: str) -> list[str]:
    """Words in lower case. Underscores hold names together, digits stand alone."""
    return _WORD.findall(text.lower())


def letters(text: str) -> int:
    """Letters and digits of a text."""
    return sum(map(len, _LETTERS.findall(text)))


def _is_value(word: str) -> bool:
    return word.isdigit()


def fit(template: str, said: Said) -> Fit | None:
    """How the template fits, or None where it shares no run of words with the message."""
    pieces = pieces_of(template)
    literal = sum(map(letters, pieces))
    if not literal or not said.text:
        return None
    holes = len(pieces) > 1
    size = max(1, letters(said.text))
    found = _in_order(pieces, said.text)
    if found is not None:
        return Fit("whole" if found else "longer", literal, min(1.0, literal / size), 1.0, holes)
    begun = _begins(pieces, said.text)
    if begun > 0:
        return Fit("shorter", begun, min(1.0, begun / size), min(1.0, begun / literal), holes)
    return _words(pieces, said, holes)


def _in_order(pieces: Sequence[str], message: str) -> bool | None:
    """Whether all pieces stand in the message in order (None if not), and fill it from end to end."""
    position = 0
    for piece in pieces:
        if piece[:1] == " " and message[position - 1 : position] == " " and message.startswith(piece[1:], position):
            position -= 1  # nothing was filled in, and of two spaces one is left
        found = message.find(piece, position)
        if found < 0:
            return None
        position = found + len(piece)
    return message.startswith(pieces[0]) and message.endswith(pieces[-1])


def _begins(pieces: Sequence[str], message: str) -> int:
    """Letters of the template up to where the message ends: it was cut, or the template has grown since. 0 if not."""
    if not message.startswith(pieces[0][:PIECE]):
        return 0
    position, found = 0, 0
    for index, piece in enumerate(pieces):
        at = message.find(piece, position)
        if at < 0 or (index == 0 and at > 0):
            return found + _cut(piece, message[position:], index == 0, found)
        position = at + len(piece)
        found += letters(piece)
    return 0


def _cut(piece: str, rest: str, first: bool, before: int) -> int:
    """Letters of the piece in which the message ends; it may have ended in the hole before.

    ``before``: letters of the pieces that the message has before it.
    """
    start = piece[:PIECE]
    at = 0 if first else rest.find(start)
    if at >= 0 and len(start) == PIECE:
        tail = rest[at:].rstrip(".! ")
        return letters(tail) if piece.startswith(tail) else -MESSAGE
    if not first and before >= SOME and len(rest.split()) <= VALUE and (ended := _ending(piece, rest)):
        return ended
    # One word or quoted value is what a hole may hold; more would be other text, unless much was the same before it.
    return 0 if not first and (len(rest.split()) == 1 or before >= FAR) else -MESSAGE


def _ending(piece: str, rest: str) -> int:
    """Letters of the start of a piece with which a message ends, 1 for signs alone; 0 where it does not."""
    starts = (piece[:length].rstrip() for length in range(min(len(piece), PIECE), 0, -1))
    found = next((start for start in starts if start and rest.endswith(start)), "")
    return max(1, letters(found)) if len(found) > 1 else 0


def gaps(template: str, text: str) -> list[range]:
    """Where a message whose template fits in order holds what was filled in, or what stands around it."""
    found: list[range] = []
    position = 0
    for piece in pieces_of(template):
        at = max(position, text.find(piece, position))
        found.append(range(position, at))
        position = at + len(piece)
    return [*found, range(position, len(text))]


def _words(pieces: Sequence[str], said: Said, holes: bool) -> Fit | None:
    """The fit by runs of three words."""
    covered: set[int] = set()
    total, matched, shared, kept = 0, 0, 0, True
    for piece in pieces:
        words = tuple(words_of(piece))
        total += len(words)
        hit: set[int] = set()
        for start in range(len(words) - 2):
            at = said.grams.get(words[start : start + 3])
            if at is not None:
                hit.update((start, start + 1, start + 2))
                covered.update((at, at + 1, at + 2))
        matched += len(hit)
        kept = kept and (len(words) < 3 or len(hit) == len(words))
        shared += sum(len(words[index]) for index in hit)
    if not shared:
        return None
    inside = sum(not _is_value(said.words[index]) for index in covered)
    sentence = any(covered.issuperset(words) for words in said.sentences)
    return Fit("words", shared, inside / max(1, said.counted), matched / max(1, total), holes, sentence, kept)
