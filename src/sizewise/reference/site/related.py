"""Five related errors of each error, and why each was chosen.

In this order, each step deciding only between errors that agree in the steps before it:

1. errors that a person named in the error's page;
2. the same template: the message without what its holes say, where that has a word;
3. the same names in the conditions at their sites, the more of them the better; a name that stands in the conditions
   of more than three errors, and of more than three in a thousand, says little and is not counted;
4. the same function;
5. the words of the messages: the weight of the shared ones in that of all, where a rare word weighs more;
6. the same file, then the same folder; for Sizewise's own errors the same branch of their tree, then the package;
7. the place in the list of all errors, the nearer the better: codes, and lines of a file, stand beside their likes.

Of several errors with one template, another than the error's own, only the best is listed. An error that has nothing
of 1 to 6 in common is never listed: there are fewer than five where no more are related.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .face import Face

COUNT = 5
CANDIDATES = 200
"""Of each kind: what shares the rarest template, name, place or word, and of those the nearest in the list."""
LEAST_LIKE = 0.12
"""Part of the words' weight that two messages share at least, to be related by their words alone."""


@dataclass(frozen=True)
class Relative:
    """A related error; ``why`` is the first reason, in words."""

    face: Face
    why: str


class Kinship:
    """Which errors are related, over a fixed set of errors."""

    def __init__(self, faces: Sequence[Face]) -> None:
        self._faces = faces
        often = max(3, 3 * len(faces) // 1000)
        counted = Counter(name for face in faces for name in face.names)
        self._templates = [face.template for face in faces]
        self._names = [frozenset(name for name in face.names if counted[name] <= often) for face in faces]
        self._weight = _weights(faces)
        self._whole = [sum(self._weight[word] for word in face.words) for face in faces]
        self._number = {face.id: number for number, face in enumerate(faces)}
        self._by: dict[str, dict[Hashable, list[int]]] = {
            kind: defaultdict(list) for kind in ("template", "name", "place", "word", "group")
        }
        for number, face in enumerate(faces):
            for kind, keys in self._keys(number, face):
                for key in keys:
                    self._by[kind][key].append(number)

    def _keys(self, number: int, face: Face) -> Iterable[tuple[str, Iterable[Hashable]]]:
        return (
            ("template", (self._templates[number],) if self._templates[number] else ()),
            ("name", self._names[number]),
            ("place", face.places),
            ("word", face.words),
            ("group", face.groups),
        )

    def knows(self, error: str) -> bool:
        """Whether an error has this id."""
        return error in self._number

    def related(self, error: str, named: Sequence[str] = ()) -> list[Relative]:
        """At most five relatives of the error with this id, those with the ids in ``named`` first."""
        number = self._number[error]
        by_hand = [self._number[name] for name in dict.fromkeys(named) if name in self._number and name != error]
        chosen = [Relative(self._faces[other], "named by its page") for other in by_hand[:COUNT]]
        taken = {number, *by_hand}
        others = self._candidates(number) - taken
        scored = [(self._score(number, other), -abs(number - other), -other) for other in others]
        mine = {self._templates[number], ""}
        said = {one.face.template for one in chosen} - mine
        for score, _, other in sorted(scored, reverse=True):
            face = self._faces[-other]
            if len(chosen) == COUNT or not any(score):
                break
            if self._templates[-other] not in said:
                chosen.append(Relative(face, self._why(number, -other, score)))
                said |= {self._templates[-other]} - mine
        return chosen

    def _candidates(self, number: int) -> set[int]:
        found: set[int] = set()
        for kind, keys in self._keys(number, self._faces[number]):
            of_kind: set[int] = set()
            for posting in sorted((self._by[kind][key] for key in keys), key=len):
                room = CANDIDATES - len(of_kind)
                if room <= 0:
                    break
                of_kind.update(_around(posting, number, room))
            found |= of_kind
        return found

    def _score(self, number: int, other: int) -> tuple[Any, ...]:
        one, two = self._faces[number], self._faces[other]
        alike = self._alike(number, other)
        return (
            bool(self._templates[number]) and self._templates[number] == self._templates[other],
            len(self._names[number] & self._names[other]),
            not one.places.isdisjoint(two.places),
            alike if alike >= LEAST_LIKE else 0.0,
            sum(group in two.groups for group in one.groups),
        )

    def _alike(self, number: int, other: int) -> float:
        weight = self._weight
        shared = sum([weight[word] for word in self._faces[number].words & self._faces[other].words])
        return shared / (self._whole[number] + self._whole[other] - shared) if shared else 0.0

    def _why(self, number: int, other: int, score: tuple[Any, ...]) -> str:
        one, two = self._faces[number], self._faces[other]
        if score[0]:
            return "same message"
        if score[1]:
            return f"same condition: {', '.join(sorted(self._names[number] & self._names[other])[:3])}"
        if score[2]:
            return f"same function: {min(one.places & two.places)[1]}"
        if score[3]:
            heaviest = sorted(one.words & two.words, key=lambda word: (-self._weight[word], word))
            return f"words: {', '.join(heaviest[:3])}"
        return f"same group: {next(group for group in one.groups if group in two.groups)}"


def _around(numbers: list[int], number: int, count: int) -> list[int]:
    """At most ``count`` of ascending ``numbers``, those around ``number``."""
    first = max(0, min(bisect_left(numbers, number) - count // 2, len(numbers) - count))
    return numbers[first : first + count]


def _weights(faces: Sequence[Face]) -> dict[str, float]:
    counted = Counter(word for face in faces for word in face.words)
    return {word: math.log(1 + len(faces) / count) for word, count in counted.items()}
