"""The answer: the record that explains a text, or none and what the text looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors.record import Record
from ..advice import Advice, advice_for
from ..advice.graph_breaks import graph_break, id_in
from ..store import Site, Store
from .alone import torn
from .candidates import candidates
from .chains import finals, points_elsewhere
from .evidence import ENOUGH, FLOOR, Evidence, as_likely, variants, weigh
from .origins import LooksLike, foreign_package, looks_like, repeats_cpp
from .paste import read
from .seen import Seen, seen_of
from .told import Paste, Told

if TYPE_CHECKING:
    from .own import Own

ALTERNATIVES = 5
SITES = 20
"""As many places of a match are in its JSON."""
ALIKE = 0.85
"""Share of the best confidence from which another record is as good an answer."""
MOST_WEIGHED = 12
"""As many errors of a text are looked up: the last ones, and the first."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Match:
    """A record, how sure it is (0 to 1), why, and a line that raises. ``condition`` there: "" where it has none."""

    record: Record
    confidence: float
    why: list[str]
    site: Site
    package: str
    version: str
    others: tuple[Site, ...] = ()
    """The other lines that it may be as well, for all that the text says."""
    total: int = 1
    """How many lines raise it in all."""

    @property
    def written(self) -> bool:
        """Whether somebody wrote about this error."""
        return bool(self.record.documentation or self.record.solutions)

    def to_json(self) -> dict[str, Any]:
        return {
            "record": self.record.to_json(),
            "confidence": self.confidence,
            "why": self.why,
            "site": _site_json(self.site),
            "siteIsKnown": not self.others,
            "sites": [_site_json(site) for site in (self.site, *self.others)[:SITES]],
            "siteCount": self.total,
            "package": {"name": self.package, "version": self.version},
        }


def _site_json(site: Site) -> dict[str, Any]:
    return {
        "filePath": site.path,
        "lineNumber": site.line,
        "qualname": site.qualname or None,
        "guard": site.condition or None,
    }


@dataclass(frozen=True)
class Answer:
    """``looks_like`` is None where there is a match, and where a name was asked for."""

    match: Match | None
    alternatives: list[Match]
    looks_like: LooksLike | None
    indexed: bool = True
    """Whether there was an index to ask."""
    seen: Seen | None = None
    """What the text itself says of the error; None where a name was asked for, or no error was told."""
    advice: Advice | None = None
    """What is known of an error that has no record."""
    package: str | None = None
    """The package that the index lacks, where the text names it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "match": self.match.to_json() if self.match else None,
            "alternatives": [one.to_json() for one in self.alternatives],
            "looksLike": self.looks_like,
            "advice": self.advice.to_json() if self.advice else None,
            "seen": self.seen.to_json() if self.seen else None,
        }


def explain(text: str, store: Store | None, own: bool = True) -> Answer:
    """Explain a pasted error, traceback or log. Never raises for what the text holds; bounded in time and memory.

    ``store``: the index of the installed packages, or None; ``own``: whether Sizewise's own errors are looked for.
    """
    paste = read(text)
    mine = _own(paste) if own else None
    if mine is not None:
        match, told = mine
        return Answer(match, [], None, store is not None, seen_of(paste, told, match.record.errorMessage))
    if store is None:
        return _unmatched(paste, [], None)
    indexed = [distribution.name for distribution in store.distributions()]
    best = [found for told in _weighed(paste) if (found := _ranked(told, store, indexed))]
    chosen = _chosen(best, finals(paste.told))
    others = _others(best, chosen)
    if chosen is None:
        return _unmatched(paste, others, store)
    seen = seen_of(paste, chosen.told, chosen.stored.template)
    return Answer(match_of(chosen), [match_of(one) for one in others], None, seen=seen)


def _unmatched(paste: Paste, others: Sequence[Evidence], store: Store | None) -> Answer:
    names = [distribution.name for distribution in store.distributions()] if store is not None else []
    kind, told = looks_like(paste, names)
    if kind == "unknown" and any(one.form in ("whole", "longer") and repeats_cpp(one.stored) for one in others[:1]):
        kind, told = "cpp", others[0].told
    advice: Advice | None = None
    package: str | None = None
    if told is not None:
        if kind == "cpp" or (kind == "unknown" and told.raises is not True):
            advice = advice_for(told.error_class, told.message)
        kind = "cpp" if advice is not None else kind
        advice = advice or graph_break(id_in(told.message), store)
        package = foreign_package(told, names) if kind == "third-party" else None
    found = [match_of(one) for one in others]
    return Answer(None, found, kind, store is not None, seen_of(paste, told), advice, package)


def _own(paste: Paste) -> tuple[Match, Told | None] | None:
    if not paste.codes and not any((told.error_class or "").startswith("sizewise.") for told in paste.told):
        return None
    from . import own

    found = own.find(paste)
    return (own_match(found[0]), found[1]) if found else None


def own_match(found: Own) -> Match:
    """One of Sizewise's own errors, known for sure."""
    from . import own

    first, *others = found.sites
    return Match(found.record, 1.0, found.why, first, "sizewise", own.VERSION, tuple(others), found.total)


def _weighed(paste: Paste) -> Sequence[Told]:
    told = [one for one in paste.told if one.message or one.frames]
    # What was carried from another process stands behind what carried it.
    told = [one for one in told if one.relation != "wrapper"] or told
    if any(one.kind == "log" for one in told) and all(one.kind == "log" for one in told):
        told = _gravest(told)
    unique = list({_kind(one): one for one in told}.values())
    if len(unique) <= MOST_WEIGHED:
        return unique
    half = MOST_WEIGHED // 2
    return [*unique[:half], *unique[-half:]]


def _kind(told: Told) -> tuple[object, ...]:
    """Errors that differ in numbers only are the same one."""
    return told.error_class, _NUMBER.sub("0", told.message), told.last, told.relation


def _gravest(told: Sequence[Told]) -> list[Told]:
    for levels in (("ERROR", "CRITICAL", "FATAL"), ("WARNING", "WARN"), ("INFO", "DEBUG")):
        if found := [one for one in told if one.level in levels]:
            return found
    return list(told)


def _ranked(told: Told, store: Store, indexed: Sequence[str]) -> list[Evidence]:
    said = variants(told)
    weighed = (weigh(stored, told, said, indexed) for stored in candidates(told, store) if stored.sites)
    # Of a few words that were typed what is near is shown as well: there is no more to go by.
    least = FLOOR / 2 if told.error_class or told.frames or told.kind != "text" else FLOOR / 4
    found = [one for one in weighed if one is not None and one.confidence >= least]
    found.sort(key=lambda one: (-one.confidence, -one.place, -one.stored.literals, one.stored.id))
    return _doubted(torn(found[: ALTERNATIVES + 1]))


def _doubted(found: list[Evidence]) -> list[Evidence]:
    """Several that fit alike make each of them less sure, unless they are of one function."""
    if not found or (found[0].form not in ("words", "shorter") and found[0].stored.literals >= ENOUGH):
        return found
    first = found[0]
    near = (one for one in found[1:] if one.confidence > first.confidence * ALIKE)
    places = {(one.site.path, one.site.qualname) for one in near} - {(first.site.path, first.site.qualname)}
    return [replace(one, confidence=round(one.confidence * 0.85 ** len(places), 3)) for one in found]


def _chosen(best: Sequence[Sequence[Evidence]], last: Sequence[Told]) -> Evidence | None:
    """Of several errors the cause rather than what it led to, if it is as sure; else the last."""
    sure = [found[0] for found in best if found[0].confidence >= FLOOR and found[0].told in last]
    plain = [one for one in sure if not points_elsewhere(one.told)] or sure
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
    """The record as its page has it, with the found site first, and the sites that are as likely as that."""
    from ..site.indexed import entry_of

    others = tuple(site for site in found.stored.sites if site != found.site)
    entry = entry_of(replace(found.stored, sites=(found.site, *others)))
    return Match(
        entry.record,
        found.confidence,
        list(found.why),
        found.site,
        entry.package,
        entry.version,
        tuple(site for site in others if as_likely(site, found)),
        len(found.stored.sites),
    )
