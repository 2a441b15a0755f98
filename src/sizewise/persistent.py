"""Arguments that live on: KV caches, state, position counters, bound once and written in place.

A persistent argument becomes part of the module: what is compiled is the module with its cache in it. So the cache's
tensors are found and checked as the module's own are, at their own addresses, with no copies and nothing filled up; a
trial run puts them back; and Python state of a cache that a forward changes is refused as any other side effect is.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from .built import Built
from .errors import call as call_errors
from .errors import state as errors
from .events import Event
from .locks import ForkLock
from .module import CLOSED, NEW, READY, STALE, CompiledModule, Options
from .traced.state import WithState

_numbers = itertools.count()


@dataclass(frozen=True)
class _Bound:
    """What serves the calls with one set of persistent arguments, one at a time: they write to the same memory."""

    compiled: CompiledModule
    lock: Any
    values: tuple[Any, ...]
    """Held, so that no other object gets their ids."""


class PersistentModule(CompiledModule):
    """A compiled module some of whose arguments are persistent. Made by ``sizewise.compile(persistent=...)``.

    Each warm-up binds the objects that its calls bring; calls have to bring one of these sets again, the same objects.
    """

    def __init__(self, module: nn.Module, options: Options, names: Sequence[str], method: str = "__call__") -> None:
        """Raises BadOption (SW510): the method has no such argument."""
        super().__init__(module, options, method)
        own = self.__dict__
        own["_sw_names"] = tuple(names)
        own["_sw_bound"] = {}
        known, takes_any = self._sw_signature().names(), self._sw_signature().var_keyword
        for name in names:
            if name not in known and not takes_any:
                legal = f"names of arguments: {', '.join(known) or 'it has none'}"
                todo = "name arguments of the forward that hold state"
                raise errors.BadOption(option="persistent", seen=list(names), legal=legal, todo=todo)

    # -- serving

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The forward's result, from the program for these persistent arguments, which it writes to.

        Raises:
            OtherState (SW413): they are not the objects of a warm-up; and as `CompiledModule`.
        """
        if torch.compiler.is_compiling():
            return self._sw_original()(*args, **kwargs)
        names = self._sw_names
        # What is not given by keyword may be by position: itself, which nobody binds, stands for that.
        bound = self._sw_bound.get(tuple([id(kwargs.get(name, self)) for name in names]))
        if bound is None:
            return self._sw_other(args, kwargs)
        for name in names:
            kwargs.pop(name, None)
        with bound.lock:
            return bound.compiled(*args, **kwargs)

    def _sw_other(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Persistent arguments that are positional, or none that is known."""
        values, rest_args, rest = self._sw_parted(args, kwargs)
        bound = self._sw_bound.get(tuple(map(id, values)))
        if bound is not None:
            with bound.lock:
                return bound.compiled(*rest_args, **rest)
        if not self._sw_bound:
            return self._first_call(args, kwargs)
        seen = ", ".join(
            f"{name}={'None' if value is None else f'another {type(value).__name__}'}"
            for name, value in zip(self._sw_names, values, strict=True)
        )
        raise call_errors.OtherState(owner=self._sw_owner, seen=seen, known=len(self._sw_bound))

    def _sw_parted(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """The persistent arguments, and the others as the forward without those takes them. Raises BadCall (SW408)."""
        own = self._sw_signature()
        try:
            given = own.signature.bind(*args, **kwargs)
        except TypeError:
            own.bind(args, dict(kwargs))  # says it better
            raise
        keywords = given.arguments.get(own.var_keyword or "", {})
        values = tuple(
            given.arguments.pop(name, None) if name in own.signature.parameters else keywords.pop(name, None)
            for name in self._sw_names
        )
        signature = own.signature.replace(
            parameters=[each for name, each in own.signature.parameters.items() if name not in self._sw_names]
        )
        others = inspect.BoundArguments(signature, given.arguments)
        return values, others.args, others.kwargs

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.__dict__["_sw_generation"] = None
        return super()._first_call(args, kwargs)

    # -- warming up

    def warmup_many(
        self,
        calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        progress: Callable[[Event], None] | None = None,
    ) -> CompiledModule:
        """Build for several calls; those with the same persistent arguments share programs. What was bound before is
        given up.

        Raises:
            NotCalls (SW515), and as `CompiledModule.warmup_many`.
        """
        from .plan import checked_calls

        calls = checked_calls(calls, self._sw_owner)
        with self._sw_lock:
            if self._sw_state == CLOSED:
                raise errors.Closed(owner=self._sw_owner)
            groups: dict[tuple[int, ...], tuple[tuple[Any, ...], list[Any]]] = {}
            for args, kwargs in calls:
                values, rest_args, rest = self._sw_parted(tuple(args), kwargs)
                groups.setdefault(tuple(map(id, values)), (values, []))[1].append((rest_args, rest))
            made: dict[tuple[int, ...], _Bound] = {}
            try:
                for key, (values, own) in groups.items():
                    made[key] = self._sw_bind(values)
                    made[key].compiled.warmup_many(own, progress=progress)
            except BaseException:
                _close(made)
                raise
            before = self._sw_bound
            self.__dict__["_sw_bound"] = made
            self.__dict__["_sw_state"] = READY
            # A call of this kind looks for its program there.
            self.__dict__["_sw_generation"] = next(iter(made.values())).compiled.__dict__["_sw_generation"]
            _close(before)
        return self

    def _sw_bind(self, values: tuple[Any, ...]) -> _Bound:
        persistent = dict(zip(self._sw_names, values, strict=True))
        module = self.__dict__["__wrapped__"]
        whole = with_state(module, self._sw_method, self._sw_signature().signature, persistent)
        options = replace(self._sw_options, name=self._sw_owner)
        compiled = CompiledModule(whole, options)
        compiled.__dict__["_sw_counters"] = self._sw_counters
        compiled.__dict__["_sw_timeline"] = self._sw_timeline
        return _Bound(compiled, ForkLock(), values)

    def refresh(self) -> CompiledModule:
        """Build again for the module as it is now, with the same persistent arguments.

        Raises Closed (SW501), NotWarm (SW502).
        """
        if self._sw_state == CLOSED:
            raise errors.Closed(owner=self._sw_owner)
        if not self._sw_bound:
            raise errors.NotWarm(owner=self._sw_owner, seen="refresh() has no warm-up to repeat", otherwise="")
        with self._sw_lock:
            for bound in self._sw_bound.values():
                with bound.lock:
                    bound.compiled.refresh()
        return self

    def save(self, path: Any, *, threads: Any = None, proved: bool = True) -> Any:
        """Refused: addresses of a cache are a process's own. Raises NotAvailable (SW508)."""
        hint = "build in each process: with the program cache a warm-up takes what an earlier process built."
        raise errors.NotAvailable(what="save() with persistent arguments", hint=hint)

    def reset(self) -> None:
        """Forget everything that was built, and the persistent arguments."""
        self._sw_end(NEW)

    def close(self) -> None:
        """The same, for good."""
        self._sw_end(CLOSED)

    def _sw_end(self, state: str) -> None:
        with self._sw_lock:
            if self._sw_state == CLOSED and state == NEW:
                raise errors.Closed(owner=self._sw_owner)
            before = self._sw_bound
            self.__dict__.update(_sw_bound={}, _sw_generation=None, _sw_state=state)
            _close(before)

    # -- looking inside

    @property
    def state(self) -> str:
        """As of `CompiledModule`; stale where one of what is bound is."""
        if self._sw_state == READY and any(bound.compiled.state == STALE for bound in self._sw_bound.values()):
            return STALE
        return str(self._sw_state)

    @property
    def built(self) -> Built | None:
        """The programs of the first persistent arguments that were bound, or None before warm-up."""
        return next((bound.compiled.built for bound in self._sw_bound.values()), None)


def _close(bound: Mapping[tuple[int, ...], _Bound]) -> None:
    for each in bound.values():
        each.compiled.close()


def with_state(
    module: nn.Module, method: str, signature: inspect.Signature, persistent: Mapping[str, Any]
) -> WithState:
    """``module`` with ``persistent`` arguments in it: a module whose forward has the others' signature."""
    parts: list[str] = []
    by_position: list[str] = []
    lines: list[str] = []
    defaults: dict[str, Any] = {}
    kinds = inspect.Parameter
    keyword_only = False
    for name, parameter in signature.parameters.items():
        kind, first = parameter.kind, parameter.kind in (kinds.POSITIONAL_ONLY, kinds.VAR_POSITIONAL)
        star = "*" if kind is kinds.VAR_POSITIONAL else "**" if kind is kinds.VAR_KEYWORD else ""
        if name in persistent:
            if first:
                by_position.append(f"self.persistent[{name!r}]")
            continue
        if kind is kinds.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
        keyword_only = keyword_only or star == "*" or kind is kinds.KEYWORD_ONLY
        text = f"{star}{name}"
        if parameter.default is not kinds.empty:
            defaults[name] = parameter.default
            text += f"=default_{name}"
        parts.append(text)
        if first:
            by_position.append(f"{star}{name}")
        elif star:
            lines.append(f"given.update({name})")
        elif parameter.default is kinds.empty:
            lines.append(f"given[{name!r}] = {name}")
        else:
            # A default is left out: that it was given may mean something.
            lines += [f"if {name} is not self.defaults[{name!r}]:", f"    given[{name!r}] = {name}"]
    named = [name for name in persistent if f"self.persistent[{name!r}]" not in by_position]
    call = "self.module" if method == "__call__" else f"self.module.{method}"
    body = [f"given = {{name: self.persistent[name] for name in {named!r}}}", *lines]
    body.append(f"return {call}({', '.join([*by_position, '**given'])})")
    source = f"def forward(self, {', '.join(parts)}):\n" + "".join(f"    {line}\n" for line in body)
    filename = f"<sizewise persistent {type(module).__name__} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"__name__": __name__, **{f"default_{name}": value for name, value in defaults.items()}}
    exec(compile(source, filename, "exec"), scope)
    members = {"forward": scope["forward"], "__module__": __name__}
    made: WithState = type("WithState", (WithState,), members)(module, persistent, defaults)
    return made
