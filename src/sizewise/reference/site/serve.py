"""The error reference as a server. Needs starlette, uvicorn and jinja2, from the extra ``serve``.

    GET /                         the first page; ?q= searches where scripts do not run
    GET /errors/NAME              the page of an error, by its id or another of its names
    GET /api/errors/NAME          the same as JSON; NAME.json too
    GET /api/errors               a list: ?q= (at most 200 characters), ?limit= (1 to 100), ?offset=
    GET /api/error-record.schema.json
    GET /health

Whatever is not answered is refused with ``{"error": {"code": ..., "status": ..., "message": ...}}``, and with a page
where a browser asked for one. No address is ever turned into the name of a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..._version import __version__
from ..store import Store
from .catalogue import Catalogue, version_of
from .clock import now
from .entry import Entry
from .envelope import SCHEMA, envelope, summary
from .find import find
from .links import SERVED
from .render import ASSETS, Renderer, search_script

LONGEST_ADDRESS = 2000
"""Bytes of path and query together."""
LONGEST_QUERY = 200
MOST = 100
USUAL = 20

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_CODES = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    414: "address-too-long",
    500: "failed",
    503: "index-unavailable",
}
_SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class _State:
    """A catalogue and what is made from it once."""

    def __init__(self, index: Path | None, own: Sequence[Entry] | None = None) -> None:
        self.made = now()
        self.catalogue = Catalogue(index, own)
        self.renderer = Renderer(self.catalogue, self.made)
        self.search = search_script(self.catalogue)


class Site:
    """Answers requests from Sizewise's errors and an index; reads the index again when it has changed."""

    def __init__(self, index: Path | None, own: Sequence[Entry] | None = None) -> None:
        """``index``: the file of the index, None for Sizewise's errors only. ``own``: those, if known already."""
        self._index = index
        self._lock = threading.Lock()
        self._state = _State(index, own)
        self._seen_whole: tuple[int, ...] = ()
        self._assets = {path.name: (path.read_bytes(), _KINDS[path.suffix]) for path in ASSETS.iterdir()}

    def _now(self) -> _State:
        with self._lock, contextlib.suppress(sqlite3.Error):
            # An index that cannot be read at this moment leaves what was read before.
            if version_of(self._index) != self._state.catalogue.version:
                self._state = _State(self._index, self._state.catalogue.own())
        return self._state

    def _check(self) -> None:
        """Raises sqlite3.Error where the index cannot be read or is damaged; reads all of it where it has changed."""
        if self._index is None or (changed := _stamp(self._index)) == self._seen_whole:
            return
        if changed:
            with Store(self._index) as store:
                store.check_whole()
        self._seen_whole = changed

    def packages(self) -> dict[str, int]:
        """Package -> how many errors."""
        return self._now().catalogue.packages()

    def home(self, request: Request) -> Response:
        query, state = _query(request), self._now()
        found = find(state.catalogue.faces, query) if query.strip() else []
        return _answer(request, state.renderer.home(SERVED, query, found), "text/html; charset=utf-8")

    def report(self, request: Request) -> Response:
        _only(request)
        return _answer(request, self._now().renderer.report(SERVED), "text/html; charset=utf-8")

    def page(self, request: Request) -> Response:
        _only(request)
        state = self._now()
        entry = _entry(state.catalogue, request.path_params["name"])
        return _answer(
            request, state.renderer.error(entry, state.catalogue.related(entry), SERVED), "text/html; charset=utf-8"
        )

    def data(self, request: Request) -> Response:
        _only(request)
        state = self._now()
        entry = _entry(state.catalogue, request.path_params["name"].removesuffix(".json"))
        related, aliases = state.catalogue.related(entry), state.catalogue.aliases(entry.record.id)
        return _json(request, envelope(entry, related, aliases, state.made))

    def listed(self, request: Request) -> Response:
        query = _query(request, "limit", "offset")
        limit, offset = _number(request, "limit", USUAL, 1, MOST), _number(request, "offset", 0, 0, 10**9)
        state = self._now()
        found = find(state.catalogue.faces, query)
        answer = {
            "errors": [summary(face) for face in found[offset : offset + limit]],
            "total": len(found),
            "limit": limit,
            "offset": offset,
            "datasetVersion": state.made,
        }
        return _json(request, answer)

    def schema(self, request: Request) -> Response:
        _only(request)
        return _answer(request, SCHEMA.read_text(encoding="utf-8"), "application/schema+json")

    def search(self, request: Request) -> Response:
        _only(request)
        return _answer(request, self._now().search, _KINDS[".js"])

    def asset(self, request: Request) -> Response:
        _only(request)
        found = self._assets.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return _answer(request, found[0], found[1], keep="public, max-age=3600")

    def refused(self, request: Request, problem: Exception) -> Response:
        """Why an address has no answer: JSON, and for a browser outside of the API a page with a way back."""
        if not isinstance(problem, HTTPException):
            return _failed(request, problem)
        headers = problem.headers or {}
        if not _reads_pages(request):
            return refusal(problem.status_code, problem.detail, headers)
        title = "No such page" if problem.status_code == 404 else "Not possible"
        message = problem.detail if problem.detail != "Not Found" else "No page has this address"
        page = self._now().renderer.refusal(SERVED, title, message[:1].upper() + message[1:])
        kept = {"cache-control": "no-store", "vary": "accept", **_SAFE, **headers}
        return Response(page, problem.status_code, headers={**kept, "content-type": "text/html; charset=utf-8"})

    def health(self, request: Request) -> Response:
        _only(request)
        self._check()
        state = self._now()
        answer = {
            "status": "ok",
            "version": __version__,
            "errors": len(state.catalogue),
            "packages": state.catalogue.packages(),
            "datasetVersion": state.made,
        }
        return _json(request, answer, keep="no-store")


def make_server(site: Site) -> ASGIApp:
    """The server as an ASGI application."""
    routes = [
        Route("/", site.home),
        Route("/report", site.report),
        Route("/errors/{name}", site.page),
        Route("/api/errors", site.listed),
        Route("/api/errors/{name}", site.data),
        Route("/api/error-record.schema.json", site.schema),
        Route("/search.js", site.search),
        Route("/assets/{name}", site.asset),
        Route("/health", site.health),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: site.refused, sqlite3.Error: _no_index, Exception: _failed},
    )
    # It would send an address with a slash at its end on to a host that the client names.
    app.router.redirect_slashes = False
    return _Limits(app)


class _Limits:
    """Refuses addresses that are too long before anything reads them."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            await refusal(414, f"an address has at most {LONGEST_ADDRESS} bytes")(scope, receive, send)
        else:
            await self._inner(scope, receive, send)


def _entry(catalogue: Catalogue, name: str) -> Entry:
    entry = catalogue.entry(name)
    if entry is None:
        raise HTTPException(404, "no error has this id or name")
    return entry


def _query(request: Request, *others: str) -> str:
    """The parameter ``q``; only it and ``others`` may be given, once each."""
    _only(request, "q", *others)
    query = request.query_params.get("q", "")
    if len(query) > LONGEST_QUERY:
        raise HTTPException(400, f"q has at most {LONGEST_QUERY} characters; seen: {len(query)}")
    return query


def _only(request: Request, *allowed: str) -> None:
    """Refuses parameters that the address does not have, and one that is given twice."""
    names = [name for name, _ in request.query_params.multi_items()]
    wrong = next((name for name in names if name not in allowed or names.count(name) > 1), None)
    if wrong is not None:
        known = f"the parameters are {', '.join(allowed)}, once each" if allowed else "this address has no parameters"
        raise HTTPException(400, f"{known}; seen: {wrong[:40]!r}")


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file; () for one that is not there."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return ()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _number(request: Request, name: str, usual: int, least: int, most: int) -> int:
    text = request.query_params.get(name, str(usual))
    # `int` takes signs, spaces, underscores and digits of other scripts.
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise HTTPException(400, f"{name} is a whole number from {least} to {most}; seen: {text[:40]!r}")
    return int(text)


def _reads_pages(request: Request) -> bool:
    """Whether a browser asked for a page. Programs that take anything, and addresses of data, get JSON."""
    path = request.url.path
    data = path == "/health" or path.startswith(("/api/", "/assets/")) or path in ("/api", "/search.js")
    return not data and "text/html" in request.headers.get("accept", "")


def _json(request: Request, data: Any, keep: str = "no-cache") -> Response:
    return _answer(request, json.dumps(data, indent=1) + "\n", "application/json", keep)


def _answer(request: Request, body: str | bytes, kind: str, keep: str = "no-cache") -> Response:
    """A response with its ETag, or 304 where the client has it. ``no-cache``: kept, but asked for again each time."""
    content = body.encode() if isinstance(body, str) else body
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": keep, **_SAFE}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if keep != "no-store" and (tag in known or known == ["*"]):
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "content-type": kind})


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The JSON answer of what is refused."""
    code = _CODES.get(status, "refused")
    body = json.dumps({"error": {"code": code, "status": status, "message": message}}) + "\n"
    kept = {"cache-control": "no-store", **_SAFE, **(headers or {})}
    return Response(body, status, headers={**kept, "content-type": "application/json"})


def _no_index(request: Request, problem: Exception) -> Response:
    return refusal(503, "the index of errors cannot be read at this moment", {"retry-after": "5"})


def _failed(request: Request, problem: Exception) -> Response:
    # The server logs the traceback; it is no business of the client's.
    return refusal(500, "the server failed on this request")
