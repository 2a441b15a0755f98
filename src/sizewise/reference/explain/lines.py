"""Lines of a log without what loggers, launchers and terminals put around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .bounded import LINE
from .escapes import unescaped
from .margins import without_margins

MOST_LINES = 6000
MARGIN = 200
"""Characters of a line in which the margin of an exception group starts."""
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_FILE = r"(?P<file>[\w./\\-]+\.(?:py|cpp|cc|cu|h)):(?P<line>\d+)"
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_SHORT_LEVELS = {"D": "DEBUG", "V": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\-_])"
    # what is left of a colour where the escape itself was not copied
    r"|\ufffd?\[(?:\d{1,2};){0,4}\d{1,2}m(?![a-z])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x7f]")
_WHO = (
    # (EngineCore_DP0 pid=1), (RayWorkerWrapper pid=12, ip=10.0.0.1), (VllmWorker rank=0 pid=7)
    re.compile(r"\((?P<who>[A-Za-z_][\w.:@-]{0,80}(?: \w+)?(?:,? ?(?:pid|ip|rank)=[\w.:-]+){1,3})\) ?"),
    # [rank0]: and what torchrun and mpirun write
    re.compile(r"\[(?P<who>(?:rank|default)?\d{1,5}(?:,\d{1,5})?)\](?:<std(?:err|out)>)?: ?"),
    # docker compose and kubectl
    re.compile(r"(?P<who>[\w.-]{1,80}) {0,40}\|(?: |$)(?![\d.]+ \|)"),
    re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<who>[\w.-]{1,80} [\w.@/-]{1,80}\[\d+\]): "),
)
_LOGGED = (
    # vLLM, with its file in front or behind
    re.compile(rf"{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?{_FILE}\] ?"),
    # torch and glog
    re.compile(
        rf"\[?(?P<short>[DVIWEF])\d{{4}} \d\d:\d\d:\d\d\.\d+ +\d+ +{_FILE}\] ?"
        r"(?:\[(?:\d+/\d+(?:_\d+)?|__\w+|\w+/\d+)\] ?){0,4}"
    ),
    re.compile(rf"\[?(?P<short>[DVIWEF])\d{{3,4}} \d\d:\d\d:\d\d\.\d+ (?:\d+ )?{_FILE}\] ?"),
    re.compile(rf"\[{_TIME}\](?: \[\d+/\d+(?:_\d+)?\])? (?P<file>[\w.]+): \[{_LEVEL}\] ?"),
    # what `logging` is often told to write
    re.compile(
        rf"\[?{_TIME}\]?[ ,-]{{0,8}}(?:\[?[\w.:-]{{1,80}}\]? ?[-|:] ?)?[\[|]? ?{_LEVEL} ?[\]|]?(?: ?[:|-]{{1,2}})?"
        rf"(?:[ :|-]{{0,8}}\[?{_FILE}\]?(?: ?[:-]{{1,2}})?)? ?"
    ),
    re.compile(rf"(?:\[{_LEVEL}\]|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):(?=[\w.]+:))[ :]*(?P<file>[\w.]+:(?=\S))?"),
    re.compile(rf"{_LEVEL}: +(?=\S)"),
    re.compile(rf"\[?{_TIME}\]?(?: std(?:out|err) [FP])?(?: |$)"),
)
_MONTH = re.compile(r"[A-Z][a-z]{2} ")
_LOG_START = re.compile(r"\[|\d{4}-|[DVIWEF]\d|DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL")
"""How the lines above start: most lines do not."""
_MARGIN = re.compile(r" {0,200}\| ?|\+ (?=Exception Group)")
_RULE = re.compile(r"\+-[+-]*(?:-|-- (?:\d+|\.\.\.) -+)$")
_QUOTE = re.compile(r"(?:> ?){1,3}")
_PYTEST = re.compile(r"E {3,}(?=\S)")


@dataclass(frozen=True)
class Line:
    """A line: what it says, which process said it, and the logger's level and file ("" for a plain line)."""

    text: str
    who: str = ""
    level: str = ""
    file: str = ""
    number: int = 0

    @property
    def logged(self) -> bool:
        return bool(self.level)


def read_lines(text: str) -> list[Line]:
    """The lines of a text, at most 6000 of them: the first third and the rest from the end."""
    raw = unescaped(_CONTROL.sub("", _ANSI.sub("", text))).splitlines()
    if len(raw) > MOST_LINES:
        third = MOST_LINES // 3
        raw = raw[:third] + raw[-2 * third :]
    lines = [read_line(line[:LINE]) for line in raw if not line.startswith("```")]
    rest = without_margins([line.text for line in lines])
    told = zip(lines, rest, strict=True)
    return [line if line.text == text else _again(line, who, text) for line, (who, text) in told]


def _again(line: Line, who: str, text: str) -> Line:
    """The line behind a margin that was known by the lines around it."""
    inner = read_line(text)
    named = " ".join(one for one in (line.who, who, inner.who) if one)
    logger = inner if inner.logged else line
    return Line(inner.text, named, logger.level, logger.file, logger.number)


def read_line(raw: str) -> Line:
    """Take off one prefix after the other, in any order."""
    text, who = _QUOTE.sub("", raw, count=1) if raw.startswith(">") else raw, ""
    text = _PYTEST.sub("", text, count=1) if text.startswith("E ") else text
    line = Line(text)
    for _ in range(6):
        rest, named = _without_who(line.text)
        who = f"{who} {named}".strip() if named else who
        taken = _without_log(Line(rest, who, line.level, line.file, line.number))
        if taken.text == line.text:
            break
        line = taken
    return Line(_without_margin(line.text), *_tail(line))


def _without_margin(text: str) -> str:
    """Without what is drawn left of the errors of an exception group; its rules are empty lines."""
    if "|" not in text[:MARGIN] and "+" not in text[:MARGIN]:
        return text
    position = 0
    while found := _MARGIN.match(text, position):
        position = found.end()
    rest = text[position:]
    start = rest.lstrip()
    if start.startswith("+ Exception Group"):
        return start[2:]
    return "" if _RULE.fullmatch(start) else rest


def _tail(line: Line) -> tuple[str, str, str, int]:
    return line.who, line.level, line.file, line.number


def _without_who(text: str) -> tuple[str, str]:
    # Most lines have no prefix at all, and none starts with a space.
    if not text or text[0] == " " or not (text[0] in "([" or "|" in text or _MONTH.match(text)):
        return text, ""
    for pattern in _WHO:
        if found := pattern.match(text):
            return text[found.end() :], found["who"]
    return text, ""


def _without_log(line: Line) -> Line:
    if not _LOG_START.match(line.text):
        return line
    for pattern in _LOGGED:
        found = pattern.match(line.text)
        if not found or not found.end():
            continue
        got = found.groupdict()
        level = got.get("level") or _SHORT_LEVELS.get(got.get("short") or "", "")
        file = (got.get("file") or line.file).rstrip(":")
        number = int(got.get("line") or line.number)
        return Line(line.text[found.end() :], line.who, level or line.level, file, number)
    return line


def by_process(lines: list[Line]) -> Iterator[list[Line]]:
    """Lines of one process each, in the order in which the processes first speak."""
    streams: dict[str, list[Line]] = {}
    for line in lines:
        streams.setdefault(line.who, []).append(line)
    yield from streams.values()
