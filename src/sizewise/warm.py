"""A warm-up: each call's programs from the cache, or built and kept there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import ambient
from .built import Built, Lookup, Target
from .cache import Store, Token, open_store
from .calls import Call
from .config import env
from .counters import Counters
from .errors import CacheError
from .errors import state as errors
from .events import Timeline, logger
from .plan import Plan
from .saved import keys, manifest
from .saved.files import Differs, NotThere
from .saved.values import NotWritable

if TYPE_CHECKING:
    from .build import Builder

PATIENCE = 600.0
"""Seconds to wait for another process that builds the same programs, before building them here as well."""
_SETTINGS_OF_NO_CODE = ("max_programs", "allow_partial", "debug_dump_path")


def programs_for(target: Target, plan: Plan, counters: Counters, timeline: Timeline) -> Built:
    """The programs for the calls of ``plan``.

    Raises:
        TraceError, BuildError, ConfigError: as building raises them.
        NotWarm (SW502): something has to be built while SIZEWISE_REQUIRE_WARM=1.
    """
    store = open_store(tell=timeline.record) if env.uses_cache() else None
    state = ambient.read(target.device_type)
    built = Built([], plan.spec, None, state=state, examples=plan.calls)
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
        built.saved_config = built.saved_config or found.saved_config
    if builder is not None:
        built.resolved = builder.resolved
    return built


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

    def programs(self, builder: Callable[[], Builder]) -> Built:
        if self.store is None:
            self._refuse_if_warm("the cache is turned off")
            return builder().build([self.call])
        with self.timeline.phase("cache"):
            self.factors = keys.factors(
                self.target.module,
                self.target.method,
                self.call,
                self.plan.spec,
                self.target.device_type,
                self.state,
                _settings(self.plan),
            )
            self.key = keys.key_of(self.factors)
            found = self._find(self.store)
        if found is None:
            found = self._build(self.store, builder)
        self.counters.add("cache_hits" if found.lookups[0].hit else "cache_misses")
        return found

    def _find(self, store: Store) -> Built | None:
        """The programs of the first candidate that fits."""
        self.why = []
        target = self.target
        forward = target.original if target.method == "forward" else None
        for entry in store.candidates(self.key):
            try:
                found = manifest.load(
                    entry.manifest, entry.read, target.module, target.method, target.signature, forward
                )
            except (Differs, NotThere) as problem:
                self.why.append(str(problem))
            except Exception as problem:
                # Damaged, or of another version that has the same key: as if it were not there.
                logger.debug("cached program %s is passed over: %s: %s", entry.id, type(problem).__name__, problem)
                self.why.append(f"a damaged file: {problem}" if isinstance(problem, CacheError) else "a damaged entry")
                store.discard(entry)
            else:
                found.lookups = [Lookup(self.key, True, "found")]
                return found
        self.why = self.why or ["no program was built for this class, structure and settings"]
        return None

    def _build(self, store: Store, builder: Callable[[], Builder]) -> Built:
        self._refuse_if_warm("; ".join(self.why))
        with store.building(self.key, timeout=PATIENCE, on_wait=self._on_wait) as token:
            if token.waited > 0.05:
                with self.timeline.phase("cache"):
                    found = self._find(store)
                if found is not None:
                    return found
            why = "; ".join(self.why)
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
            except NotWritable as problem:
                self.timeline.record("cache.not_written", why=str(problem))
                built.lookups[0].why += f"; and it is not kept: it needs {problem}"
                return
            fields = {**description, "factors": self.factors, "torch": description["versions"]["torch"]}
            # Tuples become lists here and not when it is read.
            store.publish(self.key, json.loads(json.dumps(fields)), files, token=token)

    def _refuse_if_warm(self, why: str) -> None:
        if env.require_warm():
            seen = f"it has to be built ({why}) while SIZEWISE_REQUIRE_WARM=1, which allows to load only"
            raise errors.NotWarm(owner=self.target.owner, seen=seen, otherwise=", or unset the variable")

    def _on_wait(self, seconds: float, owner: str) -> None:
        self.timeline.record("cache.wait", seconds=seconds, owner=owner)
        if seconds >= 1:
            logger.warning(
                "sizewise: %s is being built by %s; waiting for it (%.0f s)", self.target.owner, owner, seconds
            )


def _settings(plan: Plan) -> dict[str, Any]:
    """What was set and changes the code, as JSON."""
    if plan.config is None:
        return {}
    found: dict[str, Any] = json.loads(plan.config.to_json())
    return {name: value for name, value in found.items() if name not in _SETTINGS_OF_NO_CODE}
