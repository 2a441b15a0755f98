"""`sizewise errors build` and `sizewise errors serve`: the error reference as files and as a server.

The JSON answers:

    build   {"out": str, "errors": int, "files": int, "packages": {name: int}, "seconds": float}
    serve   {"address": str, "errors": int, "packages": {name: int}}, on one line before the first request
"""

from __future__ import annotations

import json as encoder
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..errors import command as errors
from .output import AsJson, show, show_json

EXTRA = "pip install 'sizewise[serve]'"
STEP = 2000
"""Errors between two lines of progress."""
FILES = 3
"""Files of an error: its page, and its data under two names."""

OwnOnly = Annotated[bool, typer.Option("--own-only", help="Leave out what `sizewise errors index` found.")]


def build(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write; an earlier site is replaced.")
    ],
    own_only: OwnOnly = False,
    json: AsJson = False,
) -> None:
    """Write the error reference as a static site: a page and a JSON file per error.

    Sizewise's own errors and those that `sizewise errors index` found. The site
    needs no server and no network: open index.html. Needs the serve extra
    (pip install 'sizewise[serve]').

    With torch and vLLM indexed that is about 100,000 files and half a gigabyte,
    and takes minutes; --own-only is about 1,000 files and takes seconds.
    `sizewise errors serve` shows the same without writing anything.

    Example: sizewise errors build --out site
    """
    _check_packages("sizewise errors build", "jinja2")
    from ..reference.places import index_path
    from ..reference.site.build import build_site
    from ..reference.site.catalogue import Catalogue
    from ..reference.site.clock import now
    from ..reference.store import readable

    started = time.perf_counter()
    with readable(path := None if own_only else index_path()):
        catalogue = Catalogue(path)
        built = build_site(catalogue, out, now(), None if json else _Progress(len(catalogue)))
    answer = {
        "out": str(out),
        "errors": built.errors,
        "files": built.files,
        "packages": catalogue.packages(),
        "seconds": round(time.perf_counter() - started, 2),
    }
    if json:
        show_json(answer)
    else:
        show(f"{built.errors} errors ({_listed(catalogue.packages())}), {built.files} files: {out / 'index.html'}")


def serve(
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = 8321,
    own_only: OwnOnly = False,
    json: AsJson = False,
) -> None:
    """Serve the error reference and its JSON API until interrupted.

    Answers /, /errors/NAME, /api/errors/NAME, /api/errors?q= and /health.
    Needs the serve extra (pip install 'sizewise[serve]').

    Example: sizewise errors serve --port 8321
    """
    _check_packages("sizewise errors serve", "jinja2", "starlette", "uvicorn")
    import uvicorn

    from ..reference.places import index_path
    from ..reference.site.protocol import config_of
    from ..reference.site.serve import Site
    from ..reference.store import readable

    with listening(host, port) as listener:
        with readable(path := None if own_only else index_path()):
            site = Site(path)
        address = _address(listener)
        packages = site.packages()
        if json:
            line = {"address": address, "errors": sum(packages.values()), "packages": packages}
            sys.stdout.write(encoder.dumps(line) + "\n")
        else:
            show(f"{sum(packages.values())} errors ({_listed(packages)}) at {address} (stop with Ctrl-C)")
        sys.stdout.flush()
        uvicorn.Server(config_of(site)).run(sockets=[listener])


def _check_packages(command: str, *packages: str) -> None:
    """Raises MissingExtra (SW702) for the first package that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise errors.MissingExtra(what=command, package=package, command=EXTRA)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises typer.BadParameter where the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise typer.BadParameter(f"{host!r} is no address here: {problem.strerror}", param_hint="--host") from problem
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as problem:
        listener.close()
        raise typer.BadParameter(f"{host}:{port} cannot be used: {problem.strerror}", param_hint="--port") from problem
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Progress:
    """Tells on stderr how many errors are written, and how long the rest will take."""

    def __init__(self, total: int) -> None:
        self._total, self._started = total, time.monotonic()
        if total > STEP:
            typer.echo(f"{total} errors to write, with about {FILES * total} files", err=True)

    def __call__(self, number: int) -> None:
        if number % STEP == 0:
            left = (time.monotonic() - self._started) / number * (self._total - number)
            typer.echo(f"{number} of {self._total} errors written, about {left:.0f} s left", err=True)


def _listed(packages: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in packages.items())
