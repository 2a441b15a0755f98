"""A pasted traceback or log as errors: chains, groups, several processes, warnings, lines of loggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .bounded import cut
from .lines import Line, by_process, read_lines
from .told import Frame, Paste, Told, is_error_name

MOST_TOLD = 60
MESSAGE_LINES = 40
_FRAME = re.compile(r"\s*File \"(?P<path>[^\"]{1,500})\", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,200}))?$")
_START = re.compile(r"\s*(?:Exception Group |Original )?Traceback \(most recent call last\)")
_NOTEBOOK = (
    # File ~/x/utils.py:12, in f(args), and as older ones write it: /x/utils.py in f(args)
    re.compile(r"File (?P<path>\S{1,500}\.py):(?P<line>\d{1,9})(?:, in (?P<function>[\w.<>]{1,200})\(.*)?$"),
    re.compile(r"(?P<path>[/~]\S{1,500}\.py) in (?P<function>[\w.<>]{1,200})\(.*\)$"),
)
_PYTEST = re.compile(
    r"(?P<path>\S{1,500}\.py):(?P<line>\d{1,9}): (?:in (?P<function>\S{1,200})|(?P<name>[A-Z]\w{0,80}))$"
)
"""A frame of a short report, and the place below an error that raised it."""
_SIGNS = re.compile(r"Traceback|File |\.py\b|above exception|from user code:")
"""What stands in every line that is neither an error's own nor a logger's: most lines are none of the others."""
_ARROW = re.compile(r"-+> ?(?P<line>\d{1,9}) (?P<source>.*)")
_NUMBERED = re.compile(r"\s*\d{1,9}(?: |$)|\s+\(\.\.\.\)$|\s*$")
_NOTEBOOK_START = re.compile(r"\w{1,80}\s{2,}Traceback \(most recent call last\)$")
_CARETS = re.compile(r"\s*[~^|]+[\s~^]*$")
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]$")
_ERROR = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Za-z_]\w{0,80})"
    r"(?:\((?P<inner>[A-Z]\w{0,80})\))?(?::(?: (?P<said>.*))?)?$"
)
_NESTED = re.compile(r"(?P<name>(?:[a-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}): (?P<said>\S[\s\S]*)")
_WRAPPERS = frozenset({"InductorError", "LoweringException", "BackendCompilerFailed", "RayTaskError"})
_WARNING = re.compile(
    r"\s*(?P<path>[^\s:](?:[^:]|:(?=[\\/])){0,300}\.py):(?P<line>\d{1,9}): (?P<name>[\w.]{0,100}Warning): (?P<said>.*)$"
)
_VALIDATION = re.compile(r"\s+(?P<kind>Value error|Assertion failed), (?P<said>.*?)(?: \[type=\w+, input_value=.*)?$")
_CPP = re.compile(
    r"^[ \t]{0,40}(?:what\(\): |terminate called after|Exception raised from .{1,300}\.(?:cpp|h|cu|cuh):\d+)", re.M
)
_FATAL = re.compile(r"^(?:Fatal Python error: |Segmentation fault|.{0,40}core dumped|Killed$)", re.M)
_UNREAD = re.compile(r"(?!.{0,60}(?:race|Error): ).{0,60}File\W{1,3}[^\"'\n]{1,300}\W{1,3}line \d")
"""A frame, with what nobody knows in front of it."""
_CODE = re.compile(r"\[(SW\d{3})\]")
_WRAPPING = re.compile(r"(?:^Caught \w+ (?:in|on) .{1,200}\.|terminated with the following error:)$")
"""What a message ends with that only carries an error of another process or thread: its traceback follows."""
_USER_CODE = "from user code:"
_BETWEEN = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
_ENDS = (
    "from user code:",
    "Set TORCH_LOGS=",
    "Set TORCHDYNAMO_VERBOSE=",
    "You can suppress this exception",
    "Exception raised from ",
    "For debugging consider passing",
    "The above exception was",
    "During handling of the above",
    "Target: FlattenedTargetDesc",
)
"""What torch and Python append to a message that is not its own."""


def read(text: str) -> Paste:
    """Read a text of any kind; never raises. A text without errors gives its lines as told by nobody."""
    text = cut(text)
    lines = read_lines(text)
    told: list[Told] = []
    for stream in by_process(lines):
        told += _Reader(stream).read()
    plain = "\n".join(line.text for line in lines)
    marks = {name for name, pattern in (("c++", _CPP), ("fatal", _FATAL)) if pattern.search(plain)}
    if not told:
        told = list(_plain(lines))
    if any(_UNREAD.match(line.text) and not _FRAME.match(line.text) for line in lines):
        told = [one if one.frames else replace(one, unread=True) for one in told]
    codes = list(dict.fromkeys(reversed(_CODE.findall(text))))
    # The last errors are the ones that ended the program; the first one may have started it.
    kept = told if len(told) <= MOST_TOLD else told[: MOST_TOLD // 3] + told[-2 * MOST_TOLD // 3 :]
    return Paste(tuple(kept), tuple(codes), frozenset(marks))


def _plain(lines: Sequence[Line]) -> Iterator[Told]:
    said = [line.text.strip() for line in lines if re.search(r"[A-Za-z]{3}|\[SW\d{3}\]", line.text)]
    if 1 < len(said) <= 12:
        yield Told("text", None, "\n".join(said))
    yield from (Told("text", None, line) for line in said[:10] + said[10:][-10:])


class _Reader:
    """Reads the lines of one process from top to bottom."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._at = 0
        self._told: list[Told] = []
        self._frames: list[Frame] = []
        self._in_block = False

    def read(self) -> list[Told]:
        while self._at < len(self._lines):
            self._step(self._lines[self._at])
        exceptions = [one for one in self._told if one.kind != "log"]
        # Lines of loggers are what happened on the way, unless there is nothing else.
        return exceptions or self._told

    def _step(self, line: Line) -> None:
        text = line.text
        if not _SIGNS.search(text):
            self._said(line)
        elif _START.match(text) or _NOTEBOOK_START.match(text):
            if self._told and _WRAPPING.search(self._told[-1].message.strip()):
                self._told[-1] = replace(self._told[-1], relation="wrapper")
            self._frames, self._in_block = [], True
            self._at += 1
        elif found := _FRAME.match(text):
            self._frame(found)
        elif found := next((one for pattern in _NOTEBOOK if (one := pattern.match(text))), None):
            self._notebook_frame(found)
        elif found := _PYTEST.match(text):
            self._pytest(found)
        elif text.strip() in _BETWEEN:
            self._related(_BETWEEN[text.strip()])
        elif text.strip() == _USER_CODE and self._told:
            self._user_code()
        elif found := _WARNING.match(text):
            self._warning(found)
        else:
            self._said(line)

    def _said(self, line: Line) -> None:
        if found := self._error_line(line.text):
            self._error(found)
        elif line.logged and not self._in_block and line.text.strip():
            self._logged(line)
        else:
            self._at += 1

    def _frame(self, found: re.Match[str]) -> None:
        self._in_block = True
        self._at += 1
        source: list[str] = []
        while self._at < len(self._lines) and len(source) < 12:
            text = self._lines[self._at].text
            if not text.startswith(" ") or _FRAME.match(text) or _START.match(text):
                break
            if not _CARETS.match(text) and not _REPEATED.match(text):
                source.append(text.strip())
            self._at += 1
        function = (found["function"] or "").strip()
        self._frames.append(Frame(found["path"], int(found["line"]), function, " ".join(source)))
        del self._frames[:-64]

    def _notebook_frame(self, found: re.Match[str]) -> None:
        """A frame as IPython shows it: numbered lines, an arrow at the one that failed."""
        self._in_block = True
        self._at += 1
        said = found.groupdict()
        line, source = int(said.get("line") or 0), ""
        while self._at < len(self._lines):
            text = self._lines[self._at].text
            if arrow := _ARROW.match(text):
                line, source = int(arrow["line"]), arrow["source"].strip()
            elif not _NUMBERED.match(text):
                break
            self._at += 1
        self._frames.append(Frame(said["path"], line, said.get("function") or "", source))
        del self._frames[:-64]

    def _pytest(self, found: re.Match[str]) -> None:
        self._at += 1
        frame = Frame(found["path"], int(found["line"]), found["function"] or "")
        last = self._told[-1] if self._told else None
        if found["function"]:
            self._in_block = True
            self._frames.append(frame)
        elif last is not None and last.short_class == found["name"]:
            self._told[-1] = replace(last, frames=(*last.frames, frame), adjacent=True)

    def _related(self, relation: str) -> None:
        # What is named inside of a message stands behind it, and belongs to it.
        at = next((at for at, one in reversed(list(enumerate(self._told))) if one.relation != "inside"), None)
        if at is not None:
            self._told[at] = replace(self._told[at], relation=relation)
        self._at += 1

    def _user_code(self) -> None:
        """The frames of the user's code, which torch's compiler writes behind its message."""
        self._at += 1
        self._frames = []
        while self._at < len(self._lines) and (found := _FRAME.match(self._lines[self._at].text)):
            self._frame(found)
        for number in range(len(self._told) - 1, -1, -1):
            self._told[number] = replace(self._told[number], user=tuple(self._frames))
            if self._told[number].relation != "inside":
                break
        self._frames, self._in_block = [], False

    def _warning(self, found: re.Match[str]) -> None:
        self._at += 1
        message = "\n".join([found["said"], *self._continued(1)]).strip()
        source = re.search(r"\n\s+(?:\w+\.)*warn(?:ing|ings)?\(.*$", "\n" + message)
        message = message[: max(0, source.start() - 1)].strip() if source else message
        frame = Frame(found["path"], int(found["line"]), "", "warnings.warn(")
        self._add(Told("warning", found["name"], message, (frame,)))

    def _error_line(self, text: str) -> re.Match[str] | None:
        if not text or text[0] == " " or not (found := _ERROR.match(text)):
            return None
        # Right behind a frame any name is an exception's; elsewhere it has to look like one.
        behind_frame = self._in_block and bool(self._frames) and found["name"][:1].isalpha()
        known = is_error_name(found["name"])
        if not known and not (behind_frame and re.search(r"[A-Z]", found["name"])):
            return None
        return found if found["said"] is not None or text.rstrip().endswith((found["name"], ":", ")")) else None

    def _error(self, found: re.Match[str]) -> None:
        process = self._lines[self._at].who
        self._at += 1
        said = [found["said"] or "", *self._continued(MESSAGE_LINES)]
        message = "\n".join(said).strip()
        name = found["inner"] or found["name"]
        nested = _NESTED.match(message)
        inside = list(_validation(said))
        before = self._told[-1] if self._told else None
        raised = before is not None and before.message.rstrip().endswith("raised:")
        relation = "inside" if raised and not self._frames else "alone"
        frames = self._frames or (list(before.frames) if before is not None and relation == "inside" else [])
        told = Told("exception", name, message, tuple(frames), bool(self._frames) and self._in_block, relation)
        self._add(replace(told, process=process))
        if nested and (is_error_name(nested["name"]) or name.rpartition(".")[2] in _WRAPPERS):
            inside.append((nested["name"], nested["said"]))
        for inner, text in inside:
            self._add(Told("exception", inner, text, tuple(self._frames), False, "inside", process=process))
        self._frames, self._in_block = [], False

    def _continued(self, most: int) -> list[str]:
        """The lines of a message after its first."""
        first = self._lines[self._at - 1]
        lines: list[str] = []
        while self._at < len(self._lines) and len(lines) < most:
            line = self._lines[self._at]
            text = line.text
            other = line.logged and (line.file, line.number) != (first.file, first.number)
            if other or _START.match(text) or _FRAME.match(text) or _WARNING.match(text) or self._error_line(text):
                break
            empty = not text.strip() and lines and not lines[-1].strip()
            if empty or text == '"""' or text.strip().startswith(_ENDS) or _PYTEST.match(text):
                break
            lines.append(text)
            self._at += 1
        return lines

    def _logged(self, line: Line) -> None:
        self._at += 1
        message = "\n".join([line.text, *self._unlogged()]).strip()
        self._add(Told("log", None, message, level=line.level, file=line.file, line=line.number, process=line.who))

    def _unlogged(self) -> list[str]:
        """The lines of a logger's message after its first: they have no prefix of their own."""
        first, lines = self._lines[self._at - 1], list[str]()
        while self._at < len(self._lines) and len(lines) < MESSAGE_LINES:
            line = self._lines[self._at]
            again = line.logged and (line.file, line.number) != (first.file, first.number)
            if again or not line.text.strip() or _START.match(line.text) or self._error_line(line.text):
                break
            if line.logged and not line.text.startswith(" "):
                break
            lines.append(line.text)
            self._at += 1
        return lines

    def _add(self, told: Told) -> None:
        self._told.append(told)


def _validation(said: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The errors that pydantic's lists: ``Value error, ...`` was a ValueError."""
    if not said[0].endswith(tuple("0123456789")) and "validation error" not in said[0]:
        return
    for line in said[1:]:
        if found := _VALIDATION.match(line):
            yield ("ValueError" if found["kind"] == "Value error" else "AssertionError"), found["said"]
