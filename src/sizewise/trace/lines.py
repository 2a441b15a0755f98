"""The user's own line behind an exception of torch, a node of a graph, or a whole piece.

Private API: ``real_stack`` of Dynamo's exceptions and ``Node.stack_trace``, whose text is a traceback's. Checked on
torch 2.13.0 and 2.14.1. Without either there is no line to show, and '' is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from traceback import FrameSummary
from types import CodeType

from torch import fx
from torch.utils import _traceback

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>[^\n]+)(?:\n +(?! |File ")(?P<code>[^\n]+))?'
)
_NODES = ("n", "node")
"""Names under which torch's interpreters of graphs keep the node that they are at."""


def user_location(problem: BaseException) -> str:
    """``\\n  at file:line in function: code`` of the innermost user frame Dynamo recorded, or ''."""
    return stack_location(getattr(problem, "real_stack", None) or ())


def stack_location(stack: Iterable[FrameSummary]) -> str:
    """``\\n  at file:line in function: code`` of the innermost user frame of a stack, or ''."""
    frames = [(item.filename, item.lineno or 0, item.name, item.line or "") for item in stack]
    return _shown(_innermost(frames))


def node_location(node: fx.Node) -> str:
    """``\\n  at file:line in function: code`` of the user's line a node came from, or ''."""
    return _shown(_frame_of(node))


def failing_node(problem: BaseException) -> fx.Node | None:
    """The node that an interpreter of torch was at when ``problem`` was raised, if one was."""
    found = None
    for each in _chain(problem):
        trace = each.__traceback__
        while trace is not None:
            values = trace.tb_frame.f_locals
            nodes = [values[name] for name in _NODES if isinstance(values.get(name), fx.Node)]
            found = next((node for node in nodes if _frame_of(node)), found)
            trace = trace.tb_next
        if found is not None:
            return found
    return None


def location_in(graph: fx.GraphModule, problem: BaseException) -> str:
    """Where in the user's code a compiler failed: the line of the node it was at, else the lines of the piece."""
    node = failing_node(problem)
    if node is not None:
        return node_location(node)
    frames = [frame for frame in map(_frame_of, graph.graph.nodes) if frame is not None]
    frames = list(dict.fromkeys(frames))
    if len(frames) < 2:
        return _shown(next(iter(frames), None))
    return f"{_shown(frames[0])}{_shown(frames[-1]).replace('  at ', '  to ', 1)}"


def whole_path(place: str, code: Iterable[CodeType]) -> str:
    """``file:line in function`` with the file's whole path, where ``place`` has it as torch shortens it.

    ``code`` is what a trace went through. The path stays short where none of it fits, or several files do.

    Private API: ``torch.utils._traceback.shorten_filename``. Checked on torch 2.13.0.
    """
    file, _, line = place.partition(":")
    names = {one.co_filename for one in code}
    found = [name for name in names if _shortened(name) == file]
    return f"{found[0]}:{line}" if len(found) == 1 else place


def _shortened(file: str) -> str:
    shorten = getattr(_traceback, "shorten_filename", None)
    return str(shorten(file)) if shorten is not None else file


_Frame = tuple[str, int, str, str]


def _chain(problem: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = problem
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        inner = getattr(each, "inner_exception", None)
        each = inner if isinstance(inner, BaseException) else each.__cause__ or each.__context__


def _frame_of(node: fx.Node) -> _Frame | None:
    frames = []
    for one in _FRAME.finditer(node.stack_trace or ""):
        frames.append((one["file"], int(one["line"]), one["name"].strip(), (one["code"] or "").strip()))
    return _innermost(frames)


def _innermost(frames: list[_Frame]) -> _Frame | None:
    frames = [frame for frame in frames if not frame[0].startswith("<sizewise")]
    # The user's line says more than the one in torch that it led to.
    frames = [frame for frame in frames if "/torch/" not in frame[0].replace("\\", "/")] or frames
    return frames[-1] if frames else None


def _shown(frame: _Frame | None) -> str:
    if frame is None:
        return ""
    file, line, name, code = frame
    return f"\n  at {file}:{line} in {name}{f': {code}' if code else ''}"
