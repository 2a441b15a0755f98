"""The only reader of environment variables. Each is read when asked for, never at import."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import NamedTuple

from ..errors import config as errors

PREFIX = "SIZEWISE_"


class Variable(NamedTuple):
    """``legal`` is empty where any text is: a path."""

    name: str
    legal: tuple[str, ...]
    default: str


REQUIRE_WARM = Variable("SIZEWISE_REQUIRE_WARM", ("0", "1"), "0")
LOG = Variable("SIZEWISE_LOG", ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "WARNING")
CACHE_DIR = Variable("SIZEWISE_CACHE_DIR", (), "")
NO_CACHE = Variable("SIZEWISE_DISABLE_COMPILE_CACHE", ("0", "1"), "0")
VARIABLES = {variable.name: variable for variable in (REQUIRE_WARM, LOG, CACHE_DIR, NO_CACHE)}


def require_warm() -> bool:
    """Whether every trace and compilation is an error (SIZEWISE_REQUIRE_WARM=1). Raises SW136."""
    return read(REQUIRE_WARM) == "1"


def uses_cache() -> bool:
    """Whether programs are kept on disk and looked up there (not SIZEWISE_DISABLE_COMPILE_CACHE=1). Raises SW136."""
    return read(NO_CACHE) == "0"


def log_level() -> str:
    """The level of Sizewise's logger (SIZEWISE_LOG), as `logging` names it. Raises SW136."""
    return read(LOG)


def cache_dir() -> str:
    """The folder for what Sizewise keeps between processes (SIZEWISE_CACHE_DIR); "" for the user's cache directory."""
    return read(CACHE_DIR)


def read(variable: Variable) -> str:
    """The variable's value, or its default where it is unset or empty. Raises SW136."""
    value = os.environ.get(variable.name) or variable.default
    if variable.legal and value not in variable.legal:
        raise errors.InvalidEnvironmentValue(
            name=variable.name, value=value, legal=", ".join(variable.legal), default=variable.default
        )
    return value


def check() -> None:
    """Check every SIZEWISE_ variable, so that a misspelt one is not ignored. Raises SW136, SW137."""
    for name in sorted(os.environ):
        if not name.startswith(PREFIX):
            continue
        if name in VARIABLES:
            read(VARIABLES[name])
            continue
        # Without the prefix, which makes any two of them alike.
        near = get_close_matches(name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in VARIABLES], n=1)
        raise errors.UnknownEnvironmentVariable(
            name=name,
            value=os.environ[name],
            suggestion=f"write {PREFIX}{near[0]}, or " if near else "",
            known=", ".join(VARIABLES),
        )
