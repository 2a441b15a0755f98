"""``--backend`` and ``--set field=value`` as a `CompilationConfig`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..config.compilation import CompilationConfig

Backend = Annotated[
    str | None,
    typer.Option("--backend", help='What compiles a piece: "inductor" (the default) or "eager".'),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="A field of CompilationConfig; the value is JSON or a word, a group's field is written "
        "group.field. May be repeated.",
    ),
]


def config_from(backend: str | None, assignments: list[str] | None) -> CompilationConfig | None:
    """The config of the two options, or None where neither was given.

    Raises typer.BadParameter for what is no assignment or sets a field twice, ConfigError for the rest.
    """
    settings: dict[str, Any] = {"backend": backend} if backend is not None else {}
    for assignment in assignments or ():
        _assign(settings, assignment)
    if not settings:
        return None
    # pydantic comes with it; `sizewise --help` does without.
    from ..config.compilation import CompilationConfig

    return CompilationConfig(**settings)


def _assign(settings: dict[str, Any], assignment: str) -> None:
    field, equals, value = assignment.partition("=")
    path = field.strip().split(".")
    if not equals or not all(path):
        raise typer.BadParameter(f"{assignment!r} is not of the form field=value", param_hint="--set")
    group = settings
    for name in path[:-1]:
        inner = group.setdefault(name, {})
        if not isinstance(inner, dict):
            raise typer.BadParameter(f"{name!r} is set twice", param_hint="--set")
        group = inner
    if path[-1] in group:
        raise typer.BadParameter(f"{field.strip()!r} is set twice", param_hint="--set")
    group[path[-1]] = _value(value.strip())


def _value(text: str) -> Any:
    try:
        # str: NaN and Infinity are words here, as in JSON proper.
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
