"""A warm-up: each call's programs from the cache, or built and kept there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import ambient
from .built import Built, Lookup, Target
from .cache import Entry, Store, Token, open_store
from .calls import Call
from .config import env
from .config.sizes import CAPTURE_SIZES
from .counters import Counters
from .errors import CacheError
from .errors import state as errors
from .events import Timeline, logger
from .plan import Plan
from .saved import keys, manifest
from .saved.files import SOURCE, Difference, Differs, NotThere
from .saved.keys import nearest
from .saved.values import NotWritable

if TYPE_CHECKING:
    from .build import Builder

PATIENCE = 600.0
"""Seconds to wait for another process that builds the same programs, before building them here as well."""
_SOURCE_CHANGED = "Source code has changed since the last compilation. Recompiling the model."
_CAPTURES = (
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "allow_partial",
    "require_proof",
)
_SETTINGS_OF_NO_CODE = ("max_programs", "debug_dump_path", *_CAPTURES, *manifest.NOT_KEPT)


def programs_for(target: Target, plan: Plan, counters: Counters, timeline: Timeline) -> Built:
    """The programs for the calls of ``plan``.

    Raises:
        TraceError, BuildError, ConfigError: as building raises them.
        NotWarm (SW502): something has to be built while SIZEWISE_REQUIRE_WARM=1.
    """
    store = _store(plan, timeline) if env.uses_cache() else None
    state = ambient.read(target.device_type)
    built = Built([], plan.spec, None, state=state, decode=plan.decode, examples=plan.calls)
    builder: Builder | None = None

    def get_builder() -> Builder:
        nonlocal builder
        if builder is None:
            # Tracing and compiling import much that serving does not need.
            from .build import Builder

            builder = Builder(target, plan.spec, plan.resolved(), counters, timeline)
        return builder

    for call in plan.calls:
        found = _Call(target, plan, call, state, store, counters, timeline).programs(get_builder)
        built.entries += found.entries
        built.outcomes += found.outcomes
        built.lookups += found.lookups
        built.saved_config = built.saved_config or _with_own(found.saved_config, plan)
    if builder is not None:
        built.resolved = builder.resolved
    return built


def why(target: Target, plan: Plan, store: Store) -> list[Why]:
    """For each call whether its programs are in ``store``, and else what is in the way. Nothing is built."""
    state = ambient.read(target.device_type)
    answers = []
    for call in plan.calls:
        one = _Call(target, plan, call, state, store, Counters(), Timeline())
        found = one.look_up(store)
        if found is not None:
            answers.append(Why(one.key, True, one.found, []))
        elif one.rejected:
            entry, difference = one.rejected[0]
            answers.append(Why(one.key, False, entry, [difference]))
        else:
            answers.append(Why(one.key, False, *nearest(one.factors, store.entries())))
    return answers


@dataclass(frozen=True)
class Why:
    """Whether a call's programs are in the cache; else what differs from the nearest: name, there, here."""

    key: str
    hit: bool
    entry: str
    """The id of the entry that has them, or that comes nearest; '' where there is nothing like it."""
    differences: list[Difference]


class _Reader:
    """Reads an entry's files. What is found damaged after loading is taken out, so that the next process builds it."""

    def __init__(self, store: Store, entry: Entry) -> None:
        self.loading = True
        self._store, self._entry = store, entry

    def __call__(self, name: str) -> bytes:
        try:
            return self._entry.read(name)
        except CacheError:
            if not self.loading:
                self._store.discard(self._entry)
            raise


class _Call:
    """One call of a warm-up."""

    def __init__(
        self,
        target: Target,
        plan: Plan,
        call: Call,
        state: tuple[Any, ...],
        store: Store | None,
        counters: Counters,
        timeline: Timeline,
    ) -> None:
        self.target, self.plan, self.call, self.state, self.store = target, plan, call, state, store
        self.counters, self.timeline = counters, timeline
        self.why: list[str] = []
        self.rejected: list[tuple[str, Difference]] = []
        self._damaged: list[tuple[Entry | Path, str]] = []
        self._seen: set[str] = set()
        self.found = ""
        """The id of the entry that has the programs."""
        self._next_line = 1.0
        """Seconds of waiting at which the next line is logged."""

    def programs(self, builder: Callable[[], Builder]) -> Built:
        if self.store is None:
            self._refuse_if_warm("the cache is turned off")
            return builder().build([self.call])
        with self.timeline.phase("cache"):
            try:
                found = self.look_up(self.store)
            except Exception as problem:
                # A key that cannot be made (a module class in splitting_ops, say): the cache is only a cache.
                words = next(iter(str(problem).splitlines()), "")
                why = f"no key can be made: {type(problem).__name__}: {words}"
                self._refuse_if_warm(why)
                built = builder().build([self.call])
                built.lookups = [Lookup("", False, why)]
                return built
        self._put_away_damage(self.store)
        if found is None:
            found = self._build(self.store, builder)
        self.counters.add("cache_hits" if found.lookups[0].hit else "cache_misses")
        return found

    def look_up(self, store: Store) -> Built | None:
        """The programs in ``store``, if they are there."""
        target = self.target
        self.factors = keys.factors(
            target.module,
            target.method,
            self.call,
            self.plan.spec,
            target.device_type,
            self.state,
            _settings(self.plan),
        )
        self.key = keys.key_of(self.factors)
        return self._find(store)

    def _find(self, store: Store) -> Built | None:
        """The programs of the first candidate that fits, of those that were not looked at before."""
        target = self.target
        forward = target.original if target.method == "forward" else None
        for entry in store.candidates(self.key, self._found_damaged):
            if entry.id in self._seen:
                continue
            self._seen.add(entry.id)
            try:
                read = _Reader(store, entry)
                found = manifest.load(entry.manifest, read, target.module, target.method, target.signature, forward)
            except (Differs, NotThere) as problem:
                self.why.append(str(problem))
                difference = (
                    problem.difference if isinstance(problem, Differs) else (str(problem), "there", "not there")
                )
                self.rejected.append((entry.id, difference))
            except Exception as problem:
                # Damaged, or of another version that has the same key: as if it were not there.
                words = str(problem).splitlines()[0] if isinstance(problem, CacheError) else self._odd(entry, problem)
                self._add_damage(entry, entry.id, words)
            else:
                read.loading = False
                wrong = self._differs(found)
                if wrong:
                    self._add_wrong(entry, wrong)
                    continue
                self.found = entry.id
                found.lookups = [Lookup(self.key, True, "found")]
                return found
        self.why = self.why or ["no program was built for this class, structure and settings"]
        return None

    def _differs(self, found: Built) -> str:
        """Where the programs give something else than eager mode for this call, in words; '' where they do not.

        Everything that is known to matter was compared before; this is for what is not known.
        """
        if self.plan.config is not None and not self.plan.config.self_test:
            return ""
        from .verify.hit import differs

        with self.timeline.phase("check"):
            return differs(self.target, found.entries, self.call)

    def _add_wrong(self, entry: Entry, wrong: str) -> None:
        words = f"its {wrong}: something that forward depends on is not among what is compared"
        logger.warning("sizewise: a cached program of %s is not used, %s. It is built here.", self.target.owner, words)
        self.why.append(words)
        self.rejected.append((entry.id, ("the result for the example", "eager's", wrong)))

    def _found_damaged(self, path: Path, problem: str) -> None:
        if path.stem not in self._seen:
            self._seen.add(path.stem)
            self._add_damage(path, path.stem, f"the cached program {path} {problem}.")

    def _add_damage(self, which: Entry | Path, name: str, words: str) -> None:
        self._damaged.append((which, words))
        self.why.append(f"a damaged file: {words}")
        self.rejected.append((name, ("its files", "as they were published", words)))

    def _odd(self, entry: Entry, problem: Exception) -> str:
        path = entry.layout.manifest(entry.key, entry.id)
        return f"the cached program {path} cannot be read ({type(problem).__name__}: {problem})."

    def _put_away_damage(self, store: Store) -> None:
        """Say what was damaged, and take it out, so that the next process does not meet it again."""
        while self._damaged:
            which, words = self._damaged.pop()
            self.timeline.record("cache.damaged", text=words)
            logger.warning("sizewise: %s It is ignored; what is missing is built again.", words)
            store.discard(which)

    def _build(self, store: Store, builder: Callable[[], Builder]) -> Built:
        self._refuse_if_warm("; ".join(self.why))
        with store.building(self.key, timeout=PATIENCE, on_wait=self._on_wait) as token:
            if token.state == "timeout":
                still = "sizewise: %s is still being built by %s after %.0f s; it is built here as well"
                logger.warning(still, self.target.owner, token.owner, token.waited)
            # Also without a wait: somebody may have published between the look before and the lock.
            with self.timeline.phase("cache"):
                found = self._find(store)
            self._put_away_damage(store)
            if found is not None:
                return found
            why = "; ".join(self.why)
            changed = [name for _, (name, _, _) in self.rejected if name.startswith(SOURCE)]
            if changed:
                logger.warning("%s (%s)", _SOURCE_CHANGED, ", ".join(dict.fromkeys(changed)))
            built = builder().build([self.call])
            built.lookups = [Lookup(self.key, False, why)]
            self._publish(store, built, token)
            return built

    def _publish(self, store: Store, built: Built, token: Token) -> None:
        target = self.target
        with self.timeline.phase("publish"):
            try:
                description, files = manifest.make(
                    target.owner, target.module, target.method, built.entries, built.outcomes, built.config()
                )
            except Exception as problem:
                # Whatever it is, what was built serves.
                why = (
                    f"it needs {problem}"
                    if isinstance(problem, NotWritable)
                    else f"{type(problem).__name__}: {problem}"
                )
                self.timeline.record("cache.not_written", why=why)
                built.lookups[0].why += f"; and it is not kept: {why}"
                return
            fields = {**description, "factors": self.factors, "torch": description["versions"]["torch"]}
            # Tuples become lists here and not when it is read.
            store.publish(self.key, json.loads(json.dumps(fields)), files, token=token)

    def _refuse_if_warm(self, why: str) -> None:
        if env.require_warm():
            seen = f"it has to be built ({why}) while SIZEWISE_REQUIRE_WARM=1, which allows to load only"
            otherwise = " in a process that may build, which fills the cache; load a bundle; or unset the variable"
            raise errors.NotWarm(owner=self.target.owner, seen=seen, otherwise=otherwise)

    def _on_wait(self, seconds: float, owner: str) -> None:
        self.timeline.record("cache.wait", seconds=seconds, owner=owner)
        if seconds >= self._next_line:
            # Rarer and rarer: a long build with many who wait would fill the log.
            self._next_line = seconds + min(seconds, 60)
            logger.warning(
                "sizewise: %s is being built by %s; waiting for it (%.0f s)", self.target.owner, owner, seconds
            )


def _store(plan: Plan, timeline: Timeline) -> Store:
    """The store in the folder that was set, or where the environment says."""
    folder = plan.config.cache_dir if plan.config is not None else ""
    return open_store(Path(os.path.expanduser(folder)) if folder else None, tell=timeline.record)


def _settings(plan: Plan) -> dict[str, Any]:
    """What was set and changes the code, as JSON."""
    if plan.config is None:
        return {}
    found: dict[str, Any] = json.loads(plan.config.to_json())
    if CAPTURE_SIZES in (found.get("compile_sizes") or ()):
        # The word stands for sizes, and these have code of their own.
        return {name: value for name, value in found.items() if name in _CAPTURES or name not in _SETTINGS_OF_NO_CODE}
    return {name: value for name, value in found.items() if name not in _SETTINGS_OF_NO_CODE}


def _with_own(saved: dict[str, Any] | None, plan: Plan) -> dict[str, Any] | None:
    """The config that loaded programs were built with, but with the caller's own settings where these make no code."""
    if saved is None:
        return None
    code = {name: value for name, value in saved.items() if name not in _SETTINGS_OF_NO_CODE}
    own = json.loads(plan.config.to_json()) if plan.config is not None else {}
    return code | {name: value for name, value in own.items() if name in _SETTINGS_OF_NO_CODE}
