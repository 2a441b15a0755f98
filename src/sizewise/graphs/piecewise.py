"""Captures of a program piece by piece: compiled pieces replay, what stands between them runs as it is.

A piece's results stay where its capture leaves them, and later pieces and operators read them there. What an operator
gives is copied into memory that the next piece's capture reads. Pieces whose results are needed at one time have
sessions of their own, for the captures of one session overwrite one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..traced import Output
from ..traced.outputs import LEAVES, container_source, leaves
from ..weights import overlap
from .backend import CannotCapture, Capture, GraphBackend, Job, Session, tensors_of
from .bucket import extent
from .lifetimes import read_later, watch
from .tape.rebind import PIECE, rebound, scope_of


@dataclass
class PiecewiseCapture:
    """A capture (`backend.Capture`): ``replay()`` runs the program with its pieces replayed."""

    inputs: tuple[torch.Tensor, ...]
    result: Any
    bytes: int
    """Pieces whose results are not needed at one time share memory, which is counted once."""
    live: tuple[str, ...]
    pieces: int
    replay: Callable[[], None]

    def release(self) -> None:
        self.inputs, self.result, self.replay = (), None, _released


class PieceSessions:
    """What captures the pieces of one program, at all sizes. Give it the largest first, and let no replay run
    meanwhile: pieces replay when they are captured."""

    def __init__(self, backend: GraphBackend) -> None:
        self._backend = backend
        self._sessions: list[Session] = []
        self._memory = Memory()
        self._stack = ExitStack()

    @property
    def bytes(self) -> int:
        """Of memory that all captures hold together."""
        return self._memory.bytes + sum(session.bytes for session in self._sessions)

    def release(self) -> None:
        """Give all captures up, and their memory."""
        for session in self._sessions:
            session.release()
        self._memory = Memory()

    @contextmanager
    def window(self) -> Iterator[None]:
        """While captures are made; what was captured in earlier windows stays."""
        with ExitStack() as self._stack:
            yield

    def session(self, index: int) -> Session:
        """Raises CapturingDisabled (SW601)."""
        while index >= len(self._sessions):
            self._sessions.append(self._stack.enter_context(self._backend.session()))
        return self._sessions[index]

    def capture(self, job: Job, source: str, template: Output) -> PiecewiseCapture:
        """``job`` runs a program, whose caller has this ``source`` and whose result is like ``template``.

        Raises:
            CannotCapture.
            CapturingDisabled (SW601): the gate is closed.
        """
        with torch.no_grad():
            inputs = tuple(self._memory.take(("input", i), tensor) for i, tensor in enumerate(job.inputs))
            sessions, result = watch(job, inputs)
            _refuse_shared(result, inputs)
            for static, tensor in zip(inputs, job.inputs, strict=True):
                static.copy_(tensor)
            run = _Run(self, self._memory, job, inputs, sessions, read_later(source))
            result = run.call(run.captured)(*job.fixed, *inputs)
            return run.finish(result, template)


class Memory:
    """Blocks that tensors of several sizes lie in: those of one name share one, while it is large enough."""

    def __init__(self) -> None:
        self._blocks: dict[Any, list[torch.Tensor]] = {}

    @property
    def bytes(self) -> int:
        return sum(block.numel() for blocks in self._blocks.values() for block in blocks)

    def take(self, name: Any, like: torch.Tensor) -> torch.Tensor:
        """A tensor laid out as ``like`` and with its values. Raises CannotCapture: it is no plain one."""
        if type(like) not in (torch.Tensor, torch.nn.Parameter) or like.layout != torch.strided:
            raise CannotCapture("a tensor between pieces is no plain one")
        if any(stride == 0 and size > 1 for size, stride in zip(like.shape, like.stride(), strict=True)):
            raise CannotCapture("a tensor between pieces is expanded: several of its elements are one in memory")
        last = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
        needed = (last + 1) * like.element_size() if like.numel() else 0
        blocks = self._blocks.setdefault((name, like.device), [])
        block = next((block for block in blocks if block.numel() >= needed), None)
        if block is None:
            block = torch.empty(needed, dtype=torch.uint8, device=like.device)
            blocks.append(block)
        static = torch.empty(0, dtype=like.dtype, device=like.device)
        static.set_(block.untyped_storage(), 0, like.shape, like.stride())
        return static.copy_(like)


@dataclass
class _Piece:
    """One captured piece, and what is copied for it: (its memory, which input, whether the input is read later)."""

    capture: Capture
    copies: list[tuple[torch.Tensor, int, bool]] = field(default_factory=list)

    def function(self) -> Callable[[Sequence[Any]], Any]:
        replay, result = self.capture.replay, self.capture.result
        copies = [(static, index) for static, index, _ in self.copies]
        # A piece may write to what it is given, for others to read.
        back = [(static, index) for static, index, again in self.copies if again]

        def run(inputs: Sequence[Any]) -> Any:
            for static, index in copies:
                static.copy_(inputs[index])
            replay()
            for static, index in back:
                inputs[index].copy_(static)
            return result

        return run


class _Run:
    """The run of a program in which its pieces are captured."""

    def __init__(
        self,
        sessions: PieceSessions,
        memory: Memory,
        job: Job,
        inputs: Sequence[torch.Tensor],
        session_of: Mapping[str, int],
        later: Mapping[str, Sequence[bool]],
    ) -> None:
        self.sessions, self.memory, self.job, self.inputs = sessions, memory, job, inputs
        self.session_of, self.later = session_of, later
        self.scope = scope_of(job.call) or {}
        constants = [value for value in self.scope.values() if isinstance(value, torch.Tensor)]
        self.unchanged = {id(tensor) for tensor in (*job.weights, *constants)}
        self.static = {id(tensor): tensor for tensor in (*job.weights, *constants, *inputs)}
        self.pieces: dict[str, _Piece] = {}
        self.taken: dict[tuple[Any, int], int] = {
            ("input", index): tensor.nbytes for index, tensor in enumerate(inputs)
        }

    def _take(self, name: tuple[Any, int], like: torch.Tensor) -> torch.Tensor:
        self.taken[name] = max(like.nbytes, self.taken.get(name, 0))
        return self.memory.take(name, like)

    def bytes(self) -> int:
        largest: dict[int, int] = {}
        for name, piece in self.pieces.items():
            session = self.session_of[name]
            largest[session] = max(piece.capture.bytes, largest.get(session, 0))
        return sum(largest.values()) + sum(self.taken.values())

    def call(self, around: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
        """The program's caller with something else in the place of its pieces."""
        names = {name: around(name, value) for name, value in self.scope.items() if PIECE.fullmatch(name)}
        if not names:
            raise CannotCapture("it has no compiled piece")
        return rebound(self.job.call, names)

    def captured(self, name: str, piece: Callable[..., Any]) -> Callable[..., Any]:
        """What captures ``piece`` when it is called, and gives what its replay gives."""

        def run(inputs: Sequence[Any]) -> Any:
            found = self.pieces[name] = self._capture(name, piece, list(inputs))
            self.static |= {id(tensor): tensor for tensor in tensors_of(found.capture.result)}
            return found.function()(inputs)

        return run

    def _capture(self, name: str, piece: Callable[..., Any], inputs: list[Any]) -> _Piece:
        session = self.session_of[name]
        copies: list[tuple[torch.Tensor, int, bool]] = []
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and id(value) not in self.static:
                inputs[index] = self._take((session, index), value)
                copies.append((inputs[index], index, self.later[name][index]))
        given = [value for value in inputs if isinstance(value, torch.Tensor)]
        before = [(tensor, tensor.clone()) for tensor in given if id(tensor) not in self.unchanged]
        job = Job(
            _caller(name, piece, len(inputs)), (), tuple(inputs), tuple(given), shares=True, label=self._label(name)
        )
        try:
            capture = self.sessions.session(session).capture(job)
        except CannotCapture as problem:
            raise CannotCapture(f"{name}: {problem}") from problem
        for tensor, values in before:
            tensor.copy_(values)
        return _Piece(capture, copies)

    def _label(self, name: str) -> str:
        return f"{self.job.label} {name}"

    def finish(self, result: Any, template: Output) -> PiecewiseCapture:
        """``result`` is what the run gave."""
        call = self.call(lambda name, _: self.pieces[name].function())
        arguments = (*self.job.fixed, *self.inputs)
        copied: list[tuple[torch.Tensor, int]] = []
        values = [value for _, value in leaves(template, result)]
        for index, value in enumerate(values):
            if isinstance(value, torch.Tensor) and id(value) not in self.static:
                same = next((static for static, other in copied if value is values[other]), None)
                if same is None:
                    same = self._take(("result", index), value)
                    copied.append((same, index))
                values[index] = same

        def replay() -> None:
            found = call(*arguments)
            if copied:
                given = [value for _, value in leaves(template, found)]
                for static, index in copied:
                    static.copy_(given[index])

        return PiecewiseCapture(
            tuple(self.inputs),
            _rebuilt(template, iter(values)),
            self.bytes(),
            tuple(dict.fromkeys(live for piece in self.pieces.values() for live in piece.capture.live)),
            len(self.pieces),
            replay,
        )


def _caller(name: str, piece: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A program of one piece, as generated code is: what it is given stays where it is."""
    names = ", ".join(f"v{index}" for index in range(count))
    scope: dict[str, Any] = {name: piece}
    exec(f"def call({names}):\n    return {name}([{names}])\n", scope)
    call: Callable[..., Any] = scope["call"]
    return call


def _refuse_shared(result: Any, inputs: Sequence[torch.Tensor]) -> None:
    """Results of the program are handed out as copies, which share nothing."""
    given = {id(tensor) for tensor in inputs}
    own = {id(tensor): tensor for tensor in tensors_of(result) if id(tensor) not in given and tensor.numel()}
    memory = [extent(tensor) for tensor in own.values()]
    if any(overlap(one, extent(tensor)) for one in memory for tensor in inputs if tensor.numel()):
        raise CannotCapture("a result shares memory with an argument")
    if any(overlap(one, other) for index, one in enumerate(memory) for other in memory[:index]):
        raise CannotCapture("results share memory with one another")


def _rebuilt(template: Output, values: Iterator[Any]) -> Any:
    """The result that has these ``values`` at its leaves."""
    if template.kind in LEAVES:
        return next(values)
    scope: dict[str, Any] = {}

    def bind(value: Any) -> str:
        name = f"v{len(scope)}"
        scope[name] = value
        return name

    parts = [bind(_rebuilt(child, values)) for child in template.children]
    return eval(container_source(template, parts, bind), scope)


def _released() -> None:
    raise CannotCapture("the capture was released")
