"""The answer: the record that explains a text, or none and what the text looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors.record import Record
from ..store import Site, Store
from .candidates import candidates
from .evidence import ENOUGH, FLOOR, Evidence, variants, weigh
from .origins import LooksLike, looks_like, repeats_cpp
from .paste import read
from .told import Paste, Told

ALTERNATIVES = 5
ALIKE = 0.85
"""Share of the best confidence from which another record is as good an answer."""
MOST_WEIGHED = 12
"""As many errors of a text are looked up: the last ones, and the first."""
_ELSEWHERE = re.compile(
    r"[Ss]ee (?:root cause|the (?:log|error|stack)|stack trace|above)|raised:(?:$|\n)"
    r"|exit(?:ed)? (?:with|unexpectedly)"
)


@dataclass(frozen=True)
class Match:
    """A record, how sure it is (0 to 1), why, and the line that raises. ``condition`` there: "" where it has none."""

    record: Record
    confidence: float
    why: list[str]
    site: Site
    package: str
    version: str

    def to_json(self) -> dict[str, Any]:
        return {
            "record": self.record.to_json(),
            "confidence": self.confidence,
            "why": self.why,
            "site": {
                "filePath": self.site.path,
                "lineNumber": self.site.line,
                "qualname": self.site.qualname or None,
                "guard": self.site.condition or None,
            },
            "package": {"name": self.package, "version": self.version},
        }


@dataclass(frozen=True)
class Answer:
    """``looks_like`` is None where there is a match."""

    match: Match | None
    alternatives: list[Match]
    looks_like: LooksLike | None
    indexed: bool = True
    """Whether there was an index to ask."""

    def to_json(self) -> dict[str, Any]:
        return {
            "match": self.match.to_json() if self.match else None,
            "alternatives": [one.to_json() for one in self.alternatives],
            "looksLike": self.looks_like,
        }


def explain(text: str, store: Store | None, own: bool = True) -> Answer:
    """Explain a pasted error, traceback or log. Never raises for what the text holds; bounded in time and memory.

    ``store``: the index of the installed packages, or None; ``own``: whether Sizewise's own errors are looked for.
    """
    paste = read(text)
    mine = _own(paste) if own else None
    if mine is not None:
        return Answer(mine, [], None, store is not None)
    if store is None:
        return Answer(None, [], looks_like(paste, ()), indexed=False)
    indexed = [distribution.name for distribution in store.distributions()]
    best = [found for told in _weighed(paste) if (found := _ranked(told, store, indexed))]
    chosen = _chosen(best)
    others = _others(best, chosen)
    if chosen is None:
        return Answer(None, [match_of(one) for one in others], _kind(paste, indexed, others))
    return Answer(match_of(chosen), [match_of(one) for one in others], None)


def _kind(paste: Paste, indexed: Sequence[str], others: Sequence[Evidence]) -> LooksLike:
    kind = looks_like(paste, indexed)
    if kind == "unknown" and any(one.form in ("whole", "longer") and repeats_cpp(one.stored) for one in others[:1]):
        return "cpp"
    return kind


def _own(paste: Paste) -> Match | None:
    if not paste.codes and not any((told.error_class or "").startswith("sizewise.") for told in paste.told):
        return None
    from . import own

    found = own.find(paste)
    return Match(found[0], 1.0, found[2], found[1], "sizewise", own.VERSION) if found else None


def _weighed(paste: Paste) -> Sequence[Told]:
    told = [one for one in paste.told if one.message or one.frames]
    if any(one.kind == "log" for one in told) and all(one.kind == "log" for one in told):
        told = _gravest(told)
    unique = list({(one.error_class, one.message, one.last): one for one in told}.values())
    if len(unique) <= MOST_WEIGHED:
        return unique
    half = MOST_WEIGHED // 2
    return [*unique[:half], *unique[-half:]]


def _gravest(told: Sequence[Told]) -> list[Told]:
    for levels in (("ERROR", "CRITICAL", "FATAL"), ("WARNING", "WARN"), ("INFO", "DEBUG")):
        if found := [one for one in told if one.level in levels]:
            return found
    return list(told)


def _ranked(told: Told, store: Store, indexed: Sequence[str]) -> list[Evidence]:
    said = variants(told)
    weighed = (weigh(stored, told, said, indexed) for stored in candidates(told, store) if stored.sites)
    found = [one for one in weighed if one is not None and one.confidence >= FLOOR / 2]
    found.sort(key=lambda one: (-one.confidence, -one.place, -one.stored.literals, one.stored.id))
    return _doubted(found[: ALTERNATIVES + 1])


def _doubted(found: list[Evidence]) -> list[Evidence]:
    """Several that fit alike make each of them less sure, unless they are of one function."""
    if not found or (found[0].form not in ("words", "shorter") and found[0].stored.literals >= ENOUGH):
        return found
    first = found[0]
    near = (one for one in found[1:] if one.confidence > first.confidence * ALIKE)
    places = {(one.site.path, one.site.qualname) for one in near} - {(first.site.path, first.site.qualname)}
    return [replace(one, confidence=round(one.confidence * 0.85 ** len(places), 3)) for one in found]


def _chosen(best: Sequence[Sequence[Evidence]]) -> Evidence | None:
    """Of several errors the cause rather than what it led to, if it is as sure; else the last."""
    sure = [found[0] for found in best if found[0].confidence >= FLOOR]
    plain = [one for one in sure if not _ELSEWHERE.search(one.told.message)] or sure
    chosen: Evidence | None = None
    for one in plain:
        if chosen is None or _outranks(one, chosen):
            chosen = one
    return chosen


def _outranks(later: Evidence, earlier: Evidence) -> bool:
    if earlier.told.relation == "cause" and later.told.relation != "inside":
        return later.confidence > earlier.confidence + 0.2
    return later.confidence >= earlier.confidence - 0.1


def _others(best: Sequence[Sequence[Evidence]], chosen: Evidence | None) -> list[Evidence]:
    taken = {chosen.stored.id} if chosen else set()
    found: list[Evidence] = []
    for one in sorted((one for many in best for one in many), key=lambda one: -one.confidence):
        if one.stored.id not in taken:
            taken.add(one.stored.id)
            found.append(one)
    return found[:ALTERNATIVES]


def match_of(found: Evidence) -> Match:
    """The record as its page has it, with the found site first."""
    from ..site.indexed import entry_of

    sites = (found.site, *(site for site in found.stored.sites if site != found.site))
    entry = entry_of(replace(found.stored, sites=sites))
    return Match(entry.record, found.confidence, list(found.why), found.site, entry.package, entry.version)
