"""Functions without a source file of their own: found by name in their module, and compared by what they do.

Notebook cells, modules from archives or of bytecode alone, and what dataclasses and named tuples generate.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from .code import digest

FUNCTION, NOWHERE = "<function> ", "<nowhere> "
"""What a key of `places_of` begins with: before ``module:qualname`` of a function that is compared, or before the name
of code that cannot be found again."""
GONE = "not there"


def places_of(codes: Iterable[types.CodeType]) -> dict[str, str]:
    """`FUNCTION` place -> digest of each function with such a code; `NOWHERE` name -> '' where there is none."""
    by_id = {id(code): code for code in codes}
    if not by_id:
        return {}
    found: dict[str, str] = {}
    placed: set[int] = set()
    for function in _functions_of(by_id):
        for module, qualname in _names(function):
            leading = function_at(module, qualname)
            if leading is not None and any(each is function for each in _chain(leading)):
                found[f"{FUNCTION}{module}:{qualname}"] = digest_of(leading)
                placed.add(id(function.__code__))
    # Part of the digest of the code they stand in.
    placed |= {id(inner) for key in placed for inner in _nested(by_id[key])}
    return found | {f"{NOWHERE}{code.co_qualname}": "" for key, code in by_id.items() if key not in placed}


def seen_at(key: str) -> str:
    """The digest, as it is now, of the function of a key that begins with `FUNCTION`; or `GONE`."""
    module, _, qualname = key.removeprefix(FUNCTION).partition(":")
    function = function_at(module, qualname)
    return digest_of(function) if function is not None else GONE


def function_at(module: str, qualname: str) -> types.FunctionType | None:
    """The function of that name, behind what makes it a static method, a property or the like."""
    found: Any = sys.modules.get(module)
    try:
        found = found if found is not None else importlib.import_module(module)
        for part in qualname.split("."):
            found = vars(found)[part]
    except Exception:
        return None
    found = _inner(found)
    return found if isinstance(found, types.FunctionType) else None


def _inner(value: Any) -> Any:
    """The function of a static or class method, a property or a cached property."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, functools.cached_property) else value


def is_loaded(module: str, source: bytes) -> bool:
    """Whether the functions of a module that is loaded are those of ``source``; True where none is loaded."""
    loaded = sys.modules.get(module)
    if loaded is None:
        return True
    try:
        code = compile(source, getattr(loaded, "__file__", None) or "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    known = {digest(each) for each in _nested(code)}
    values = list(vars(loaded).values())
    classes = [value for value in values if isinstance(value, type) and value.__module__ == module]
    values += [value for each in classes for value in vars(each).values()]
    functions = [value for value in map(_inner, values) if isinstance(value, types.FunctionType)]
    own = [each for each in functions if each.__code__.co_filename == code.co_filename]
    return all(digest(each.__code__) in known for each in own)


def digest_of(function: types.FunctionType) -> str:
    """SHA-256 (hex) of what the function, and the functions it wraps, do, and of their defaults."""
    return hashlib.sha256(repr([_does(each) for each in _chain(function)]).encode()).hexdigest()


def _does(function: types.FunctionType) -> tuple[str, list[str]]:
    keywords = sorted((function.__kwdefaults__ or {}).items())
    defaults = [*map(_text, function.__defaults__ or ()), *(f"{name}={_text(value)}" for name, value in keywords)]
    return digest(function.__code__), defaults


def _chain(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """The function, and those in its closure, as a decorator's is: what the name says may be behind them."""
    waiting, seen = [function], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        for cell in each.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                if isinstance(cell.cell_contents, types.FunctionType):
                    waiting.append(cell.cell_contents)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _functions_of(by_id: dict[int, types.CodeType]) -> Iterator[types.FunctionType]:
    for function in gc.get_referrers(*by_id.values()):
        if isinstance(function, types.FunctionType) and id(function.__code__) in by_id:
            yield function


def _names(function: types.FunctionType) -> Iterator[tuple[str, str]]:
    yield function.__module__ or "", function.__qualname__
    # The methods of a named tuple say that they are of a module that there is not.
    for cls in tuple.__subclasses__() if "namedtuple_" in str(function.__module__) else ():
        if _inner(vars(cls).get(function.__name__)) is function:
            yield cls.__module__, f"{cls.__qualname__}.{function.__name__}"


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield value
            yield from _nested(value)
