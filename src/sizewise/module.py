"""The compiled module: the original's face, with a program behind every call."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import ambient
from .built import Built, Target
from .calls import Signature
from .config import env
from .counters import Counters
from .diagnose import diagnose
from .dispatch import MISS
from .errors import ConfigError, SizewiseError
from .errors import state as errors
from .errors.bundle import NotABundle
from .events import Event, Timeline, logger
from .face import Face
from .generation import Generation, make_generation, ready_line
from .locks import ForkLock
from .traced.registries import REGISTRIES

if TYPE_CHECKING:
    from .captures import Captures
    from .config.compilation import CompilationConfig
    from .plan import Plan
    from .report import Report

NEW, WARMING, READY, STALE, CLOSED = "new", "warming", "ready", "stale", "closed"
_SHARED = (
    *REGISTRIES,
    "_is_full_backward_hook",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_COMPILES_NOW = (
    "sizewise: %s was not warmed up: it is compiled now, in the middle of a call; call warmup(...) before serving"
)


@dataclass(frozen=True)
class Options:
    """How one compiled module treats calls and changes; the legal values are checked in `api`."""

    dynamic_shapes: Mapping[str, Any] | None = None
    config: CompilationConfig | None = None
    on_outside: str = "error"
    on_stale: str = "error"
    name: str | None = None
    on_miss: str = "program"
    pads: Mapping[str, float | int | bool] = field(default_factory=dict)
    decode: Mapping[str, int] | None = None
    outputs: str = "copy"
    backend_for: Callable[[str, int | None], Any] | None = None
    """In the place of `graphs.backend_for`, for tests."""


class CompiledModule(Face):
    """A module whose calls run a compiled program. Made by `sizewise.compile`.

    It shares the parameter, buffer and submodule dicts of the original (``__wrapped__``): same
    ``state_dict`` keys, loading into either loads into both. Attributes it does not have itself are the
    original's, to read and to write.

    States: ``new``, ``warming``, ``ready``, ``stale``, ``closed``. A failed warm-up returns to new.
    """

    def __init__(
        self,
        module: nn.Module,
        options: Options,
        method: str = "__call__",
        original: Callable[..., Any] | None = None,
        prepare_twin: Callable[[nn.Module], None] | None = None,
    ) -> None:
        # nn.Module.__init__ would make registries of its own; these are the original's.
        own = self.__dict__
        for name in _SHARED:
            if name in module.__dict__:
                own[name] = module.__dict__[name]
        own["__wrapped__"] = module
        own["_sw_options"] = options
        own["_sw_method"] = method
        own["_sw_replaced"] = original
        own["_sw_prepare_twin"] = prepare_twin
        own["_sw_owner"] = options.name or type(module).__name__
        own["_sw_lock"] = ForkLock()
        own["_sw_state"] = NEW
        own["_sw_generation"] = None
        own["_sw_counters"] = Counters()
        own["_sw_timeline"] = Timeline()

    # -- serving

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The forward's result for these arguments, from the program that was built for them.

        Raises:
            CallError: the call is outside what was built and ``on_outside`` is ``"error"``.
            Stale (SW503): the module's tensors have changed their layout.
        """
        if torch.compiler.is_compiling():
            # Within torch.compile, torch.export or another module's trace: what is compiled is the original.
            return self._sw_original()(*args, **kwargs)
        generation = self._sw_generation
        if generation is None:
            return self._first_call(args, kwargs)
        if self.__dict__["__wrapped__"].training:
            self._refuse_training()
        try:
            for call in generation.calls:
                result = call(*args, **kwargs)
                if result is not MISS:
                    return result
        except TypeError:
            # Either the arguments do not fit the signature, which bind says better, or a real problem.
            self._sw_signature().bind(args, kwargs)
            raise
        except errors.Stale:
            self._sw_counters.add("stale")
            if self._sw_options.on_stale == "error":
                raise
            return self._run_original(args, kwargs)
        return self._serve_outside(generation, args, kwargs)

    def _serve_outside(self, generation: Generation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if ambient.is_transformed():
            return self._run_original(args, kwargs)
        if self._sw_options.on_outside == "eager":
            self._sw_counters.add("misses")
            return self._run_original(args, kwargs)
        call = self._sw_signature().bind(args, kwargs)
        self._sw_counters.add("misses")
        generation.refuse_stale()  # a module that was converted is the reason, not the argument that fits it
        raise diagnose(generation.built.entries, call, generation.built.entries[0].device_type)

    def _run_original(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._sw_counters.add("calls_eager")
        if ambient.is_transformed():
            # A transform may be after gradients; it gets the original as it is.
            return self._sw_original()(*args, **kwargs)
        with torch.no_grad():
            return self._sw_original()(*args, **kwargs)

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Warm up with this call as the example, then serve it."""
        if self._sw_state == CLOSED:
            raise errors.Closed(owner=self._sw_owner)
        if ambient.is_transformed():
            return self._run_original(args, kwargs)
        if env.require_warm():
            seen = "it was called while SIZEWISE_REQUIRE_WARM=1, which forbids to compile in a call"
            raise errors.NotWarm(owner=self._sw_owner, seen=seen, otherwise=", or unset the variable")
        with self._sw_lock:
            if self._sw_generation is None:
                self._sw_timeline.record("warmup.by_first_call")
                logger.warning(_COMPILES_NOW, self._sw_owner)
                self.warmup(*args, **kwargs)
        return self(*args, **kwargs)

    # -- warming up

    def warmup(self, *args: Any, **kwargs: Any) -> CompiledModule:
        """Trace, compile and check for calls like this one: the module's own arguments and nothing else.

        Raises:
            TraceError, BuildError, ConfigError: why this module cannot be served; the state is new again.
        """
        return self.warmup_many([(args, kwargs)])

    def warmup_many(
        self,
        calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        progress: Callable[[Event], None] | None = None,
    ) -> CompiledModule:
        """The same for several calls, each ``(args, kwargs)``.

        Without ``dynamic_shapes``, sizes that differ between the calls are dims. Calls that differ in
        Python values or in which arguments are None get a program each. ``progress`` gets every event.

        Raises:
            NotCalls (SW515): ``calls`` is something else.
            NoDynamicDims (SW206): no ``dynamic_shapes`` and no size that differs.
            TooManyPrograms (SW511), and as `warmup`.
        """
        from .plan import checked_calls

        calls = checked_calls(calls, self._sw_owner)
        with self._sw_lock:
            if self._sw_state == CLOSED:
                raise errors.Closed(owner=self._sw_owner)
            before, began = self._sw_state, len(self._sw_timeline.events())
            self.__dict__["_sw_state"] = WARMING
            try:
                with (
                    _subscribed(self._sw_timeline, progress),
                    self._sw_timeline.phase("warmup", calls=len(calls)),
                ):
                    built = self._build(calls)
                    made = self._sw_generation_of(built)
            except BaseException:
                self.__dict__["_sw_state"] = before if before == READY else NEW
                raise
            self._install(made, began)
        return self

    def _build(self, calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> Built:
        from .warm import programs_for

        return programs_for(*self._sw_plan(calls), self._sw_counters, self._sw_timeline)

    def _sw_plan(self, calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> tuple[Target, Plan]:
        """What a warm-up for ``calls`` would build, and for what."""
        from .plan import make_plan

        options, module = self._sw_options, self.__dict__["__wrapped__"]
        settings = (options.dynamic_shapes, options.config, calls, options.decode)
        plan = make_plan(module, self._sw_owner, self._sw_signature(), *settings)
        return self._sw_target(plan.device_type), plan

    def _sw_target(self, device_type: str) -> Target:
        return Target(
            self.__dict__["__wrapped__"],
            self._sw_owner,
            self._sw_signature(),
            self._sw_method,
            self._sw_original(),
            device_type,
            self._sw_prepare_twin,
        )

    def _capture(self, built: Built) -> Captures | None:
        """The captures of ``built``, as its settings ask for them."""
        from .captures import capture, wanted
        from .graphs.backends import backend_for

        options = self._sw_options
        strict, static = options.on_miss == "error", options.outputs == "static"
        asked = wanted(built, options.config, options.pads, strict, options.decode, static)
        if asked is None:
            return None
        target = self._sw_target(built.entries[0].device_type)
        backend = (options.backend_for or backend_for)(target.device_type, asked.warmups)
        return capture(target, built, asked, backend, self._sw_counters, self._sw_timeline)

    def _sw_generation_of(self, built: Built) -> Generation:
        module = self.__dict__["__wrapped__"]
        return make_generation(built, self._capture(built), module, self._sw_counters, self._sw_timeline)

    def _install(self, generation: Generation, began: int) -> None:
        """Swap; ``began`` is the first event of this warm-up."""
        self._sw_swap(generation, READY)
        events = self._sw_timeline.events()[began:]
        logger.info("%s", ready_line(self._sw_owner, events, generation.captures))

    def _sw_swap(self, generation: Generation | None, state: str) -> None:
        """Serve with another generation, then give up the captures of the one before."""
        before = self._sw_generation
        self.__dict__["_sw_generation"] = generation
        self.__dict__["_sw_state"] = state
        if before is not None:
            before.release()

    def refresh(self) -> CompiledModule:
        """Build again, for the module as it is now, from the same example calls.

        Raises:
            Closed (SW501).
            NotWarm (SW502): there was no warm-up to repeat.
        """
        generation = self._sw_generation
        if self._sw_state == CLOSED:
            raise errors.Closed(owner=self._sw_owner)
        if generation is None:
            seen = "refresh() has no warm-up to repeat"
            raise errors.NotWarm(owner=self._sw_owner, seen=seen, otherwise="")
        if not generation.built.examples:
            seen = "its programs are from a bundle, and refresh() needs an example to build for"
            raise errors.NotWarm(owner=self._sw_owner, seen=seen, otherwise="")
        return self.warmup_many([(call.args, call.kwargs) for call in generation.built.examples])

    def save(
        self, path: str | os.PathLike[str], *, threads: int | Sequence[int] | None = None, proved: bool = True
    ) -> Path:
        """Write everything that was built to one file, for `sizewise.load`; the file's path.

        It holds code and no parameters. It serves with as many threads as it was built with; ``threads`` are the
        numbers it is to serve with instead, and what was not built for them is built now, with that many threads set
        for the whole process. With ``proved`` a fresh process first loads it without a compiler and runs every piece,
        which has to give the same bits; that takes a few seconds.

        Raises:
            NotWarm (SW502): nothing was built.
            NotSavable (SW613): a program has no form that can be written down; says why.
            BadOption (SW510): ``threads``.
            CannotSave (SW614), an OSError: the file cannot be written.
        """
        from .saved.bundle import check_writable
        from .saved.save import save_bundle
        from .saved.threads import checked_threads

        counts = None if threads is None else checked_threads(threads)
        check_writable(as_path(path))
        with self._sw_lock:
            generation = self._sw_generation
            if generation is None:
                raise errors.NotWarm(owner=self._sw_owner, seen="there is nothing to save", otherwise="")
            built, module = generation.built, self.__dict__["__wrapped__"]
            alternatives = [built] if counts is None else [self._sw_built_for(count, built) for count in counts]
            return save_bundle(as_path(path), self._sw_owner, module, self._sw_method, alternatives, proved)

    def _sw_built_for(self, threads: int, built: Built) -> Built:
        """``built`` if it is for so many threads, else the same built for them."""
        if ambient.threads_of(built.state) == threads:
            return built
        if not built.examples:
            seen = f"its programs are from a bundle, and for {threads} threads an example is needed to build with"
            raise errors.NotWarm(owner=self._sw_owner, seen=seen, otherwise="")
        calls = [(call.args, call.kwargs) for call in built.examples]
        with ambient.as_it_was(ambient.with_threads(built.state, threads), built.entries[0].device_type):
            return self._build(calls)

    def _sw_load(self, path: Path) -> CompiledModule:
        """Install the programs of a bundle."""
        from .refuse import refuse_training
        from .saved.save import load_bundle

        began = len(self._sw_timeline.events())
        with self._sw_lock:
            with self._sw_timeline.phase("load"):
                module, forward = self.__dict__["__wrapped__"], self._sw_replaced
                refuse_training(module, self._sw_owner)
                built = load_bundle(path, module, self._sw_method, self._sw_signature(), forward)
                try:
                    made = self._sw_generation_of(built)
                except ConfigError as problem:
                    words = f"its settings are none ({next(iter(str(problem).splitlines()))})"
                    raise NotABundle(path=path, problem=words) from problem
                except SizewiseError:
                    raise
                except (LookupError, ValueError, TypeError, AttributeError) as problem:
                    words = f"its manifest is not as Sizewise writes it ({type(problem).__name__}: {problem})"
                    raise NotABundle(path=path, problem=words) from problem
            self._install(made, began)
        return self

    def reset(self) -> None:
        """Forget everything that was built; the state is new."""
        with self._sw_lock:
            if self._sw_state == CLOSED:
                raise errors.Closed(owner=self._sw_owner)
            self._sw_swap(None, NEW)

    def close(self) -> None:
        """Forget everything that was built, for good. The original module stays as it is."""
        with self._sw_lock:
            self._sw_swap(None, CLOSED)

    # -- looking inside

    @property
    def state(self) -> str:
        """``new``, ``warming``, ``ready``, ``stale`` or ``closed``."""
        generation = self._sw_generation
        if self._sw_state == READY and generation is not None and generation.is_stale():
            return STALE
        return str(self._sw_state)

    @property
    def built(self) -> Built | None:
        """The programs that serve calls now, or None before warm-up. To look at, not to change."""
        generation = self._sw_generation
        return generation.built if generation is not None else None

    @property
    def counters(self) -> Counters:
        """What this module did so far; see `sizewise.counters.NAMES`."""
        counters: Counters = self._sw_counters
        return counters

    def report(self) -> Report:
        """What was built and what calls did. Printable; ``to_json()`` for machines."""
        from .report import make_report

        generation = self._sw_generation
        captures = generation.captures if generation is not None else None
        return make_report(self._sw_owner, self.state, self.built, captures, self._sw_counters, self._sw_timeline)

    # -- the original's face

    def _sw_signature(self) -> Signature:
        found = self.__dict__.get("_sw_bound_signature")
        if found is None:
            found = Signature(self._sw_forward(), self._sw_owner)
            self.__dict__["_sw_bound_signature"] = found
        return found

    def _sw_forward(self) -> Callable[..., Any]:
        module = self.__dict__["__wrapped__"]
        if self._sw_method == "__call__":
            forward: Callable[..., Any] = module.forward
            return forward
        return self._sw_original()

    def _sw_original(self) -> Callable[..., Any]:
        """The user's own method, as it would run without Sizewise."""
        if self._sw_replaced is not None:
            replaced: Callable[..., Any] = self._sw_replaced
            return replaced
        module = self.__dict__["__wrapped__"]
        return module if self._sw_method == "__call__" else getattr(module, self._sw_method)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        """A copy around a copy of the original, not warmed up."""
        duplicate = copy.deepcopy(self.__dict__["__wrapped__"], memo)
        return CompiledModule(duplicate, self._sw_options, self._sw_method)


def as_path(path: Any) -> Path:
    """Raises BadOption (SW510)."""
    if isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str):
        return Path(path)
    todo = 'pass the path of a file, such as "model.sizewise"'
    raise errors.BadOption(option="path", seen=path, legal="a path", todo=todo)


@contextlib.contextmanager
def _subscribed(timeline: Timeline, subscriber: Callable[[Event], None] | None) -> Any:
    if subscriber is None:
        yield
        return
    timeline.subscribe(subscriber)
    try:
        yield
    finally:
        timeline.unsubscribe(subscriber)
