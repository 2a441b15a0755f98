"""The application: its commands, its version, and what surrounds every command."""

from __future__ import annotations

from typing import Annotated

import typer

from .._version import __version__
from . import cache
from .bench import bench
from .cache_why import why
from .compile import compile
from .demo import demo
from .doctor import doctor
from .errors_index import index
from .errors_site import build, serve
from .explain import explain
from .output import guarded, show

COMMANDS = (demo, compile, bench, doctor, explain)
"""In the order of the help."""

ERRORS = (index, build, serve)
"""The commands below ``sizewise errors``."""

CACHE = (cache.path, cache.ls, cache.verify, cache.prune, cache.clear, why)
"""The commands below ``sizewise cache``."""


def make_app() -> typer.Typer:
    """The typer application; every command is `guarded`."""
    app = typer.Typer(
        name="sizewise",
        help="Compile a PyTorch model once; run every size it declares without compiling again.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Rich's own markup would take the [demo] of "sizewise[demo]" for a style.
        rich_markup_mode="markdown",
    )
    app.callback()(root)
    for command in COMMANDS:
        app.command(command.__name__)(guarded(command))
    errors = typer.Typer(name="errors", help="The error reference: what packages raise, and a site of it.")
    for below in ERRORS:
        errors.command(below.__name__)(guarded(below))
    app.add_typer(errors, no_args_is_help=True)
    programs = typer.Typer(name="cache", help="The compiled programs kept on disk: list, check, make room.")
    for one in CACHE:
        programs.command(one.__name__)(guarded(one))
    app.add_typer(programs, no_args_is_help=True)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        show(f"sizewise {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    # No docstring: it would replace the application's help.
    return None
