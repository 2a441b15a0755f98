"""An explanation as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..reference.advice import Advice
    from ..reference.explain import Answer, Match
    from ..reference.explain.seen import Seen
    from ..reference.store import Site

SHOWN_SOURCE = 4
"""Lines of source shown before and after the one that raises."""
SHOWN_MESSAGE, SHOWN_WIDTH = 16, 240
"""Lines of the text's own message that are shown, and characters of each."""
SHOWN_PLACES, SHOWN_NAMES = 4, 10
_MESSAGE = 90
_STYLES = {"error": "bold red", "warning": "yellow"}
_AT = {"log": "Logged at", "warning": "Warned at"}
NOBODY = "Nobody has written advice for this error: what is here was read off the source."
UNKNOWN = (
    "No match: no error has this code, id, slug or name. Of a class of torch's or vLLM's give the text as well: "
    "most are raised in many places."
)
Piece = tuple[str, str]
"""Text and its style; "" for none."""


def pieces_of(answer: Answer) -> Iterator[Piece]:
    """The answer as lines."""
    yield from _count(answer.seen)
    if answer.match is not None:
        yield from _match(answer.match, answer.seen)
        yield from _advice(answer.advice)
    elif answer.looks_like is None and answer.alternatives:
        yield from _shared(answer.alternatives)
        yield from _advice(answer.advice)
        return
    elif answer.looks_like is None:
        yield from _advice(answer.advice) if answer.advice else iter([(UNKNOWN, "bold")])
    else:
        yield from _no_match(answer)
    if answer.alternatives:
        yield "\nLess likely:" if answer.match else "\nNearest, but not sure enough to be the answer:", "bold"
    for one in answer.alternatives:
        yield f"  {one.confidence:.2f}  {_line(one)}", ""
    yield from _others(answer.seen)


def _line(match: Match) -> str:
    record = match.record
    message = " ".join(record.errorMessage.split())
    shown = message if len(message) <= _MESSAGE else f"{message[: _MESSAGE - 1]}…"
    return f"{record.errorCode or record.id}  {record.errorClass or record.errorType}: {shown}"


def _shared(found: Sequence[Match]) -> Iterator[Piece]:
    """A name of several errors: which one is meant cannot be known."""
    yield f"{len(found)} errors have this name. Ask for one by what stands in front of it:", "bold"
    for one in found[:SHOWN_NAMES]:
        yield f"  {_line(one)}", ""
        yield f"      {_place(one.site)}", "dim"
    if len(found) > SHOWN_NAMES:
        yield f"  and {len(found) - SHOWN_NAMES} more", ""


# -- what the text says


def _count(seen: Seen | None) -> Iterator[Piece]:
    """Which of several errors of a text is explained."""
    if seen is None or seen.total < 2:
        return
    which = "the last one" if seen.number == seen.total else f"number {seen.number}"
    least = "at least " if seen.cut else ""
    yield f"{least}{seen.total} errors in this text; this is about {which}. The others are listed below.", "bold"
    yield "", ""


def _others(seen: Seen | None) -> Iterator[Piece]:
    if seen is None or not seen.others:
        return
    left = seen.total - 1 - len(seen.others)
    yield f"\nOther errors in this text{f' ({left} earlier ones are left out)' if left else ''}:", "bold"
    yield from ((f"  {line}", "") for line in seen.others)


def _text(seen: Seen | None, template: str) -> Iterator[Piece]:
    """The text's own message, where it says more than the template, and the reader's line."""
    if seen is None:
        return
    if " ".join(seen.message.split()) != " ".join(template.split()):
        yield "In your text:", "bold"
        yield from ((f"  {line}", "") for line in _cut(seen.message))
    for hole, value in seen.filled:
        yield f"  {{{hole}}} is {value}", "dim"
    yield from _own_line(seen)
    yield from ((f"Link:       {link}", "") for link in seen.links)


def _own_line(seen: Seen | None) -> Iterator[Piece]:
    if seen is None or seen.frame is None:
        return
    frame = seen.frame
    yield f"Your line:  {frame.path}:{frame.line}{f', in {frame.function}' if frame.function else ''}", ""
    if frame.source:
        yield f"            {frame.source[:SHOWN_WIDTH]}", "bold"


def _cut(message: str) -> Iterator[str]:
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    for line in lines[:SHOWN_MESSAGE]:
        yield line if len(line) <= SHOWN_WIDTH else f"{line[: SHOWN_WIDTH - 1]}…"
    if len(lines) > SHOWN_MESSAGE:
        yield f"… ({len(lines) - SHOWN_MESSAGE} more lines)"


# -- a match


def _match(match: Match, seen: Seen | None) -> Iterator[Piece]:
    record = match.record
    names = [record.errorCode or "", f"{match.package} {match.version}", record.severity]
    header = " · ".join(name for name in [*names, record.errorClass or record.errorType] if name)
    yield header, _STYLES.get(record.severity, "cyan")
    yield "", ""
    yield from ((f"  {line}", "bold") for line in record.errorMessage.strip("\n").splitlines() or [""])
    yield "", ""
    yield from _text(seen, record.errorMessage)
    yield from _places(match)
    yield f"Confidence: {match.confidence:.2f} ({'; '.join(match.why)})", ""
    if not match.others:
        yield from _source(match)
    if not match.written:
        yield f"\n{NOBODY}", ""
    for title, text in (
        ("What it means", record.documentation),
        ("When it happens", record.triggerScenarios),
        ("Common situations", record.commonSituations),
    ):
        yield from _part(title, [text] if text else [])
    yield from _part("Solutions", [f"{number}. {text}" for number, text in enumerate(record.solutions, 1)])
    yield from _part("Example fix", (record.exampleFix or "").splitlines())
    yield f"\nId: {record.id}", "dim"


def _places(match: Match) -> Iterator[Piece]:
    from ..reference.conditions import says_something

    record = match.record
    at = f"{_AT.get(record.errorType, 'Raised at' if record.errorClass else 'Made at')}:".ljust(12)
    if not match.others:
        which = f" (of {match.total} places the one that your text names)" if match.total > 1 else ""
        yield f"{at}{_place(match.site)}{which}", ""
        if says_something(match.site.condition):
            yield f"When:       {match.site.condition}", ""
        return
    places = (match.site, *match.others)
    count = match.total if len(places) >= SHOWN_PLACES else len(places)
    yield f"{at}one of {count} places:", ""
    for site in places[:SHOWN_PLACES]:
        when = f", when {site.condition}" if says_something(site.condition) else ""
        yield f"  {_place(site)}{when}", ""
    if count > SHOWN_PLACES:
        yield f"  and {count - SHOWN_PLACES} more", ""


def _place(site: Site) -> str:
    return f"{site.path}:{site.line}" + (f", in {site.qualname}" if site.qualname else "")


def _source(match: Match) -> Iterator[Piece]:
    record = match.record
    lines = record.sourceCode.splitlines()
    at = match.site.line - record.sourceCodeStart
    if match.site.path != record.filePath or not 0 <= at < len(lines):
        return
    yield "", ""
    for index in range(max(0, at - SHOWN_SOURCE), min(len(lines), at + SHOWN_SOURCE + 1)):
        mark = ">" if index == at else " "
        yield f"{mark} {record.sourceCodeStart + index:>5}  {lines[index]}", "bold" if index == at else "dim"


def _part(title: str, lines: Sequence[str]) -> Iterator[Piece]:
    if lines:
        yield f"\n{title}", "bold"
    yield from ((f"  {line}", "") for line in lines)


# -- no match


def _no_match(answer: Answer) -> Iterator[Piece]:
    from ..reference.explain import WORDS
    from .explain_next import next_steps

    kind = answer.looks_like or "unknown"
    if kind == "no-error" and answer.alternatives:
        yield "No match: these words alone do not tell which error it is.", "bold"
    else:
        yield f"No match: it looks like {WORDS[kind]}.", "bold"
    if answer.seen is not None and answer.seen.cause:
        yield f"That is said of {answer.seen.cause}, and not of the error that came after it.", ""
    yield "", ""
    if answer.seen is not None and answer.looks_like != "no-error":
        yield from _text(answer.seen, "")
    yield from _advice(answer.advice)
    yield from _part("Next", list(next_steps(answer)))


def _advice(advice: Advice | None) -> Iterator[Piece]:
    if advice is None:
        return
    version = f" {advice.read_in}" if advice.read_in else ""
    yield f"\n{advice.package}{version}: {advice.title}", "bold"
    yield f"Origin:     {advice.origin}", ""
    yield f"Known by:   {advice.why}", ""
    if advice.link:
        yield f"Link:       {advice.link}", ""
    yield from _part("What it means", [advice.documentation] if advice.documentation else [])
    yield from _part("Solutions", [f"{number}. {text}" for number, text in enumerate(advice.solutions, 1)])
    yield from _part("Example fix", (advice.example_fix or "").splitlines())
