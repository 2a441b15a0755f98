"""What happened, as data. Loggers, reports and progress bars subscribe; nothing here prints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .locks import ForkLock

logger = logging.getLogger("sizewise")


@dataclass(frozen=True)
class Event:
    """One thing that happened: ``at`` is seconds since the timeline began, ``seconds`` how long it took."""

    name: str
    at: float
    seconds: float = 0.0
    fields: dict[str, Any] = field(default_factory=dict)


Subscriber = Callable[[Event], None]


class Timeline:
    """The events of one compiled module. Appending is safe from any thread."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._lock = ForkLock()
        self._events: list[Event] = []
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.remove(subscriber)

    def record(self, name: str, seconds: float = 0.0, **fields: Any) -> Event:
        event = Event(name, time.perf_counter() - self._began - seconds, seconds, fields)
        with self._lock:
            self._events.append(event)
        logger.debug("%s %s %.3f s", name, fields, seconds)
        for subscriber in list(self._subscribers):
            subscriber(event)
        return event

    @contextmanager
    def phase(self, name: str, **fields: Any) -> Iterator[None]:
        """Record ``name`` with the time its body took, also when it raises."""
        self.record(f"{name}.start", **fields)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.record(name, time.perf_counter() - started, **fields)

    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    def total(self, name: str) -> float:
        """Seconds spent in all events of that name."""
        return sum(event.seconds for event in self.events() if event.name == name)
