"""HTTP as the error reference's server speaks it: uvicorn's, with limits in time and number, and JSON for each refusal.

uvicorn alone answers what is no HTTP with plain text, and waits for ever for the end of a request: a few hundred slow
clients would take all the files that a process may open.
"""

from __future__ import annotations

import asyncio

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .serve import Site, make_server, refusal

HEAD_SECONDS = 10.0
"""For a whole request to come in, from its first byte or from the start of the connection."""
ANSWER_SECONDS = 60.0
"""For an answer to be made and taken."""
IDLE_SECONDS = 5
"""Between two requests on one connection."""
MOST_CONNECTIONS, AT_ONCE = 100, 32
"""Connections at one time, and how many are taken before the first of them is looked at. Some systems let a process
open no more than 256 files.
"""
LARGEST_HEAD = 16_384
"""Bytes of a request's first line and headers."""
_HEAD, _ANSWER, _IDLE = range(3)


def config_of(site: Site) -> uvicorn.Config:
    """The settings of a server for a site."""
    return uvicorn.Config(
        make_server(site),
        http=_Bounded,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=AT_ONCE,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )


class _Bounded(H11Protocol):
    """A connection with a time limit for each of its phases: a request comes in, an answer goes out, nothing."""

    _timer: asyncio.TimerHandle | None = None
    _phase = _HEAD
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter(_HEAD, HEAD_SECONDS)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._phase == _ANSWER or self.transport.is_closing():
            return
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._enter(_ANSWER, ANSWER_SECONDS)
        elif self._phase == _IDLE:
            self._enter(_HEAD, HEAD_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The next request may have come with this one. What a client has not taken in time is thrown away.
        self._enter(_IDLE if self._is_answered() else _ANSWER, ANSWER_SECONDS)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is no HTTP request that can be read")

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: HTTP lets a server leave an upgrade out of account."""

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _enter(self, phase: int, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._phase, self._since = phase, self.loop.time()
        self._timer = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self._phase == _HEAD and not self.transport.is_closing():
            self._refuse(408, f"a request has to come within {HEAD_SECONDS:g} seconds")
        else:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        if self._is_answered() and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = refusal(status, message, {"connection": "close"})
            head = h11.Response(status_code=status, headers=answer.raw_headers, reason=b"Refused")
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._enter(_IDLE, 1)  # a client that does not take this either is cut off

    def _make_room(self) -> None:
        """Cut off the connection that has waited longest for a request; this one where all are being answered."""
        others = (one for one in self.connections if isinstance(one, _Bounded) and one is not self)
        waiting = [one for one in others if one._phase != _ANSWER and not one.transport.is_closing()]
        min(waiting, key=lambda one: one._since, default=self).transport.abort()
