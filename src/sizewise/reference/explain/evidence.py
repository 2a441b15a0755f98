"""How far a record is the one that was told: a confidence from 0 to 1 and the reasons for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..store import Site, Stored
from . import alone, origins, whence
from .candidates import FRAMES, function_of
from .reworded import changes
from .told import Frame, Told
from .wording import Fit, Said, fit, flat, gaps, letters, pieces_of

FLOOR = 0.5
"""Below this a record is not an answer."""
ENOUGH = 20
"""Letters and digits a template has to share with the message to be trusted; fewer count for less."""
FEW, LIKELY = 6, 0.55
"""Letters and digits that are enough beside the class and the place, and what they are worth."""
UNSURE = 0.45
"""The most that fewer are worth."""
ALIKE, WORDY, REWORDED = 0.3, 30, 0.75
"""Share of a template's words, its letters and digits, and what they are worth, where only some words differ."""
MOSTLY = 0.8
"""Share of a message that is no coincidence in an error of another class."""
MOST_OF, MAINLY, CLOSE = 14, 0.6, 0.62
"""Letters and digits that are enough where they are such a share of the message, and what they are worth then."""
LONG = 60
"""Letters and digits that are no coincidence, even if other words stand between them."""
GROWN = 0.85
"""Share of its words that a text keeps when it grows."""
_FORMS = {"whole": 0.95, "longer": 0.86, "shorter": 0.82}
_SAYS = {
    "whole": "pattern: the message is this template",
    "longer": "pattern: the message holds this template, with more text around it",
    "shorter": "pattern: the message is the beginning of this template",
    "words": "words: the message and this template share runs of words",
}
HANDED = "handed-on"
"""The kind of a record whose message Python makes and C++ raises."""
_NUMBER = re.compile(r"\d+")
_OF_OPERATORS = frozenset({None, "RuntimeError", "IndexError", "ValueError", "TypeError", "NotImplementedError"})
"""What torch's C++ operators raise."""
_BUILTIN = frozenset({"ValueError", "RuntimeError", "TypeError", "AssertionError", "NotImplementedError", "Exception"})
"""Classes that one release raises for another: an assert that became a check, for one."""
_TAKES_OVER = frozenset({"TorchRuntimeError", "UserError", "InternalTorchDynamoError"})
"""Classes that torch raises with the text of an error of another class."""
_ROOTS = frozenset({"BaseException", "Exception"})


@dataclass(frozen=True)
class Evidence:
    """A record with what speaks for it.

    ``place``: 3 where file, function and line agree with a frame, 2 where file and function do, 1 where one does, 0
    where no frame is known, -1 where the frames say another place.
    """

    stored: Stored
    told: Told
    confidence: float
    why: tuple[str, ...]
    site: Site
    form: str
    place: int


def weigh(stored: Stored, told: Told, said: Sequence[Said], indexed: Collection[str]) -> Evidence | None:
    """Weigh one record against one error of the text; None where the message says nothing for it.

    ``said``: the error's message as `variants` gives it.
    """
    worded = _worded(stored, said)
    if worded is None and not told.frames:
        return None
    site, place = best_site(stored, told)
    if stored.kind == HANDED:
        place = max(place, 0)  # C++ raises it, wherever it is then called from
    if worded is not None:
        worded = _placed(worded, stored, told, place)
    found = (worded, _by_source(stored, site, told, place), _by_class(stored, site, told, place))
    choices = [one for one in found if one is not None]
    if not choices:
        return None
    text, form, reason = max(choices, key=lambda one: one[0])
    factor, class_reason = _class(stored, told, form, text)
    confidence, place_reason = _place(text * factor, form, place, site)
    confidence *= _origin(stored, told, form, place, indexed) * _alone(stored, told, said, form, place)
    why = tuple(one for one in (reason, class_reason, place_reason) if one)
    return Evidence(stored, told, round(min(confidence, 0.99), 3), why, site, form, place)


Scored = tuple[float, str, str]


def variants(told: Told) -> list[Said]:
    """The whole message, its first paragraph, its first line: what follows may not be of the error itself."""
    whole = told.message.strip()
    texts = [whole, whole.split("\n\n")[0], whole.split("\n")[0]]
    if told.short_class == "KeyError" and (quoted := _unquoted(whole)):
        texts.insert(0, quoted)
    return [Said.of(text) for text in dict.fromkeys(texts) if text]


def _unquoted(message: str) -> str:
    """The text that `str` of a KeyError shows quoted; "" where it is none."""
    if len(message) < 2 or message[0] not in "'\"" or message[-1] != message[0]:
        return ""
    try:
        return str(ast.literal_eval(message))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ""


def _worded(stored: Stored, said: Sequence[Said]) -> Scored | None:
    best: Scored | None = None
    for one in said:
        fitted = fit(stored.template, one)
        if fitted is not None and (best is None or _text(fitted) > best[0]):
            best = (_text(fitted), fitted.form, _SAYS[fitted.form])
        if fitted is not None and fitted.form == "whole":
            break
        if fitted is not None and fitted.form == "words" and fitted.template_share >= ALIKE and best is not None:
            best = max(best, _reworded(stored, one), key=lambda scored: scored[0])
    return best if best is None or best[1] != "words" else _renumbered(stored, said, best)


def _reworded(stored: Stored, said: Said) -> Scored:
    changed = changes(stored.template, said.words)
    enough = changed <= 1 and _literal(stored) >= WORDY
    return (REWORDED - 0.1 * changed if enough else 0.0), "words", "words: this template with a word or two changed"


def _renumbered(stored: Stored, said: Sequence[Said], best: Scored) -> Scored:
    """The fit where numbers do not count: versions and limits that a text names change from release to release."""
    template = _NUMBER.sub("0", stored.template)
    if template == stored.template or not said or not _NUMBER.search(said[0].text):
        return best
    fitted = fit(template, Said.of(_NUMBER.sub("0", said[0].text)))
    if fitted is None or fitted.form not in ("whole", "longer") or 0.9 * _text(fitted) < best[0]:
        return best
    return 0.9 * _text(fitted), fitted.form, f"{_SAYS[fitted.form]}, but for numbers in it"


def _text(fitted: Fit) -> float:
    if fitted.form == "words":
        shares = sorted((fitted.message_share, fitted.template_share))
        much = 0.1 * min(1.0, fitted.literal / 100)
        score = 0.9 * min(1.0, fitted.literal / LONG) * min(1.0, 0.6 * shares[1] + 0.4 * shares[0] + much)
        if fitted.sentence or (fitted.kept and shares[1] >= GROWN):
            return score
        # No sentence is the same, and neither has grown out of the other: they are alike, as many errors are that
        # stand side by side and say different things.
        return score * (0.6 if shares[1] >= GROWN else 0.5)
    enough = ENOUGH if fitted.holes else ENOUGH * 0.7
    cover = min(1.0, max(fitted.message_share / 0.4, fitted.literal / LONG))
    # The less is around a template, the nearer to the whole message it is.
    grown = 0.08 * fitted.message_share if fitted.form == "longer" else 0.0
    text = (_FORMS[fitted.form] + grown) * (0.5 + 0.5 * cover)
    return text if fitted.literal >= enough else min(text, UNSURE) * fitted.literal / enough


def _placed(worded: Scored, stored: Stored, told: Told, place: int) -> Scored:
    """Few letters are enough where the whole message, the class and the place agree."""
    score, form, reason = worded
    few = place == 3 or (place == 2 and _literal(stored) >= FEW)
    logged = told.kind == stored.kind == "log"
    if few and form == "whole" and (logged or _same_class(stored, told)):
        score = max(score, LIKELY)
    if form == "whole" and told.kind == "exception" and _literal(stored) >= MOST_OF and _related(stored, told):
        # Short messages in which little was filled in.
        score = max(score, CLOSE if _share(stored, told) >= MAINLY else 0.0)
    return score, form, reason


def _by_source(stored: Stored, site: Site, told: Told, place: int) -> Scored | None:
    """An assert without a message is known by its source."""
    last = told.last
    if last is None or not told.adjacent or stored.kind != "assert" or not last.source.startswith("assert"):
        return None
    if told.message and _literal(stored):
        return None  # known by its message
    said, held = _code(last.source.removeprefix("assert")), _code(site.condition)
    if not held or said != held:
        return None
    # Where the record has a message of its own the text would have shown it, unless it is of another version.
    bare = stored.template.startswith("assert ")
    score = 0.9 if place >= 2 or (bare and len(held) >= ENOUGH) else 0.3
    return score, "whole", "source: the assert that failed is this one"


def _code(text: str) -> str:
    return re.sub(r"[\s()]+", "", text).replace("'", '"')


def _by_class(stored: Stored, site: Site, told: Told, place: int) -> Scored | None:
    """A message that is all filled in is known by its line, or by a class of its own that is raised by name."""
    last, name = told.last, told.short_class
    if last is None or name is None or _literal(stored) or _same_class(stored, told) is not True:
        return None
    if place == 3:
        return LIKELY, "class", "source: this line raises this class"
    same_function = site.qualname.rpartition(".")[2] == function_of(last)
    if place >= 1 and same_function and "." in (told.error_class or "") and f"raise {name}" in last.source:
        return LIKELY, "class", "source: a function of this name raises this class by name"
    return None


def _same_class(stored: Stored, told: Told) -> bool | None:
    """None where one of them is not known, or says nothing."""
    if told.short_class is None or stored.error_class is None:
        return None
    held = stored.error_class.rpartition(".")[2]
    return held == told.short_class


def _is_kind_of(stored: Stored, told: Told) -> bool:
    """Whether the record's class is the one that was told, or derived from that built-in one."""
    return _same_class(stored, told) is True or stored.sites[0].extra.get("base") == told.short_class is not None


def _share(stored: Stored, told: Told) -> float:
    """Share of the message that is the template's own text; 0 for a template that says nothing of its own first."""
    pieces = pieces_of(stored.template)
    return sum(map(letters, pieces)) / max(1, letters(flat(told.message))) if letters(pieces[0]) else 0.0


def _became(stored: Stored, told: Told) -> bool:
    """Whether a built-in class was told, and the record has one of the package's own: that may be the newer one."""
    return "." in (stored.error_class or "") and told.error_class in _BUILTIN


def _related(stored: Stored, told: Told) -> bool:
    return _is_kind_of(stored, told) or _became(stored, told)


def _class(stored: Stored, told: Told, form: str, text: float) -> tuple[float, str]:
    told_kind, held_kind = told.kind, stored.kind
    if told_kind == "text":
        return 0.92, ""
    if (told_kind == "log") != (held_kind == "log"):
        # A logger may print an error that was raised, and what is raised in one version may be logged in the next.
        long = form == "whole" and _literal(stored) >= ENOUGH * (1 if told_kind == "log" else 3)
        return (0.75 if long else 0.4), ""
    if told_kind == "log":
        return 1.0, "class: both are lines of a logger"
    same = _same_class(stored, told)
    if same is None or (stored.error_class or "") in _ROOTS or (not same and told.short_class in _TAKES_OVER):
        return 0.92, ""
    if same:
        return 1.0, f"class: {told.short_class}"
    if _is_kind_of(stored, told):
        held = (stored.error_class or "").rpartition(".")[2]
        return 0.95, f"class: {held}, which is a kind of {told.short_class}"
    if form in ("whole", "longer") and _became(stored, told):
        return 0.85, ""
    builtin = {stored.error_class, told.error_class} <= _BUILTIN
    if form == "whole" and builtin and _literal(stored) >= ENOUGH and _share(stored, told) >= MOSTLY:
        return 0.75, ""
    if form == "shorter" and builtin and letters(flat(told.message)) >= LONG:
        return 0.75, ""
    return (0.78 if form in ("whole", "longer") and text > 0.8 and _literal(stored) >= 30 else 0.4), ""


def _literal(stored: Stored) -> int:
    return sum(map(letters, pieces_of(stored.template)))


def best_site(stored: Stored, told: Told) -> tuple[Site, int]:
    """The site that the frames (or the logger's file) name, and how well it agrees."""
    best, most = stored.sites[0], (-2, 0, 0)
    for site in stored.sites:
        # Of sites that nothing tells apart the least nested file is shown.
        rank = (*_agreement(stored, site, told), -site.path.count("/"))
        if rank > most:
            best, most = site, rank
    return best, most[0]


def as_likely(site: Site, found: Evidence) -> bool:
    """Whether another site of the record is as likely the one as the found one."""
    return _agreement(found.stored, site, found.told)[0] >= found.place < 3


def _agreement(stored: Stored, site: Site, told: Told) -> tuple[int, int]:
    parts = tuple(site.path.split("/"))
    if told.kind in ("log", "warning"):
        last = told.last
        path, line = (last.path, last.line) if last is not None else (told.file, told.line)
        if last is not None and last.package is not None and not whence.belongs(last, stored):
            return 0, 0
        if re.split(r"[/\\]", path)[-1] != parts[-1]:
            return 0, 0
        return (2 if line == site.line else 1), 0
    best = (-1, 0) if told.adjacent and told.last is not None else (0, 0)
    for frame in told.frames[-FRAMES:]:
        best = max(best, _frame_agreement(site, stored.distribution.root, frame))
    return best


def _frame_agreement(site: Site, root: str, frame: Frame) -> tuple[int, int]:
    if not whence.tail_in(frame, whence.top_of(site), root):
        return -1, 0
    same_file = whence.same_file(frame, site, root)
    same_function = function_of(frame) == site.qualname.rpartition(".")[2] and bool(frame.function)
    near = whence.alike(frame, site) if same_file else 0
    if same_file and not frame.function and frame.line == site.line:
        return 2, near
    if same_file and same_function:
        return (3 if frame.line == site.line else 2), near
    return (1 if same_file or same_function else -1), near


def _place(confidence: float, form: str, place: int, site: Site) -> tuple[float, str]:
    if place >= 2:
        # A frame makes a likely record sure, and no unlikely one likely.
        likely = min(1.0, max(0.0, confidence - 0.2) / 0.3)
        return confidence + (1 - confidence) * 0.5 * likely, f"frame: {site.path}, {site.qualname}"
    if place == 1:
        return confidence + (1 - confidence) * 0.1, f"frame: like {site.path}, {site.qualname}"
    if place < 0:
        return confidence * (0.85 if form == "whole" else 0.65), ""
    return confidence, ""


def _origin(stored: Stored, told: Told, form: str, place: int, indexed: Collection[str]) -> float:
    """What speaks against any record of the Python sources."""
    if stored.kind == HANDED and told.short_class in (None, "RuntimeError"):
        return 1.0
    if told.kind == "exception" and told.raises is False:
        # The line that failed raises nothing: the error came from below it.
        return 0.35
    if whence.elsewhere(told, stored):
        return 0.3
    known = place >= 2 or (stored.error_class == told.error_class and "." in (told.error_class or ""))
    if not known and origins.foreign(told, indexed):
        return 0.3
    traced = (
        told.relation == "inside" or "FakeTensor" in told.message or "TorchRuntimeError" in (told.error_class or "")
    )
    if place < 1 and not traced and told.short_class in _OF_OPERATORS and origins.repeats_cpp(stored):
        return 0.45
    if place < 2 and origins.says_below(told):
        # Python sources repeat texts of C++ and of the interpreter; only the place tells them apart. A text of theirs
        # that stands in a hole was passed on.
        passed = form in ("whole", "longer") and _passed_on(stored, told)
        return 1.0 if passed or (form == "whole" and _says_so_itself(stored, told)) else 0.4
    return 1.0


def _alone(stored: Stored, told: Told, said: Sequence[Said], form: str, place: int) -> float:
    """What speaks against a record where no frame, and no file of a logger, says whose message it is."""
    placed = place >= (1 if told.kind in ("log", "warning") else 2)
    if placed or stored.kind == HANDED or whence.raised_in(told, stored) is not None:
        return 1.0
    matched = _literal(stored)
    if form in ("shorter", "words"):
        found = (fitted.literal for one in said if (fitted := fit(stored.template, one)) is not None)
        matched = min(matched, max(found, default=0))
    return 1.0 if alone.says_enough(stored, told, form, matched) else 0.45


def _says_so_itself(stored: Stored, told: Told) -> bool:
    """Whether the record's own long text has words that C++ and the interpreter use, outside torch's copies of it."""
    return _literal(stored) >= LONG and _same_class(stored, told) is True and not origins.repeats_cpp(stored)


def _passed_on(stored: Stored, told: Told) -> bool:
    text = flat(told.message)
    spans = origins.spans_from_below(text)
    holes = gaps(stored.template, text)
    enough = _literal(stored) >= ENOUGH
    return enough and bool(spans) and all(any(set(span) <= set(hole) for hole in holes) for span in spans)
