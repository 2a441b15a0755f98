"""Calls that make, raise, log or warn of an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from . import found as kinds
from .found import PARAMETER, Arguments, Found
from .names import Names
from .scope import Scope
from .templates import Known, Texts, escaped, hole
from .texts import percent, texts_of, texts_or_hole

CHECKS = {
    "torch._check": "RuntimeError",
    "torch._check_is_size": "RuntimeError",
    "torch._check_tensor_all": "RuntimeError",
    "torch._check_index": "IndexError",
    "torch._check_value": "ValueError",
    "torch._check_type": "TypeError",
    "torch._check_not_implemented": "NotImplementedError",
}
_CHECKS_WITH_CLASS = ("torch._check_with", "torch._check_tensor_all_with")
_LEVELS = re.compile(r"(?P<level>info|warning|warn|error|critical|fatal|exception)(_once)?")
_LEVEL_NAMES = {"warn": "warning", "fatal": "critical", "exception": "error"}
_MAY_RAISE = re.compile(
    r"raise|throw|fail|error|abort|unsupported|not_implemented|mismatch|invalid|check|assert|ensure|require|expect",
    re.IGNORECASE,
)
_IS_ERROR = re.compile(r"(Error|Exception|Warning|Exit|Interrupt|Unsupported|Failed|Failure|Stop|Skip|Bypass)\w*$")
_SETS_TEXT = re.compile(r"set_\w*(?:msg|message|error)")
_STATUS_NAMES = ("status_code", "code")


def looks_like_error(node: ast.expr) -> bool:
    """Whether an expression is a call of what has the name of an exception class."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    return bool(name[:1].isupper() or name[:1] == "_") and bool(_IS_ERROR.search(name))


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name; "" where it is none."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def arguments_of(node: ast.Call, known: Known) -> Arguments:
    """The arguments of a call as templates, up to one that could stand for several."""
    positional: list[Texts] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            break
        positional.append(texts_or_hole(arg, known))
    named = {keyword.arg: texts_or_hole(keyword.value, known) for keyword in node.keywords if keyword.arg}
    bare = frozenset(place for place, arg in enumerate(node.args[: len(positional)]) if _is_bare(arg))
    return Arguments(tuple(positional), named, bare)


def _is_bare(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes)


def found_in_call(node: ast.Call, scope: Scope, names: Names) -> Iterator[Found]:
    """The errors of a call that stands as a statement: a log line, a warning, a check, a helper that raises."""
    name = last_name(node.func)
    keywords = {keyword.arg for keyword in node.keywords}
    if {"gb_type", "explanation"} <= keywords:
        yield _graph_break(node, scope)
        return
    level = _LEVELS.fullmatch(name)
    if level and isinstance(node.func, ast.Attribute) and node.args and "log" in last_name(node.func.value).lower():
        yield from _log(node, level["level"], scope)
        return
    dotted = names.dotted(node.func, scope.owner, scope.inner)
    if dotted in ("warnings.warn", "warnings.warn_explicit"):
        yield from _warning(node, scope, names)
    elif dotted in CHECKS or dotted in _CHECKS_WITH_CLASS:
        yield from _check(node, dotted, scope, names)
    elif dotted and "._C." in dotted and _SETS_TEXT.search(name):
        for text in (one for arg in _values(node) for one in texts_or_hole(arg, scope)):
            extra = {"via": dotted}
            yield Found(kinds.HANDED, None, Arguments(), scope.qualname, node.lineno, template=text, extra=extra)
    elif name == "raise_observed_exception":
        yield from _observed(node, scope, names)
    elif name in ("set_exception", "throw") and node.args and looks_like_error(node.args[0]):
        yield from raised(node.args[0], node.lineno, scope, names)
    elif dotted and _MAY_RAISE.search(name) and any(_is_text(arg, scope) for arg in _values(node)):
        yield Found(kinds.CALL, dotted, arguments_of(node, scope), scope.qualname, node.lineno)


def _values(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _is_text(node: ast.expr, known: Known) -> bool:
    return any(len(text) > 8 for text in texts_of(node, known))


def raised(
    node: ast.expr, line: int, scope: Scope, names: Names, extra: dict[str, Any] | None = None
) -> Iterator[Found]:
    """The errors an expression behind ``raise`` makes; none for one that was made elsewhere."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "with_traceback":
        node = node.func.value
    if isinstance(node, ast.IfExp):
        yield from raised(node.body, line, scope, names, extra)
        yield from raised(node.orelse, line, scope, names, extra)
    elif isinstance(node, ast.Name) and node.id in scope.errors:
        for made in scope.errors[node.id]:
            yield from raised(made, line, scope, names, extra)
    elif isinstance(node, ast.Call):
        given = arguments_of(node, scope)
        more = {**(extra or {}), **_http_status(node)}
        yield Found(kinds.RAISE, _maker(node.func, scope, names), given, scope.qualname, line, extra=more)
    elif _names_a_class(node, names):
        dotted = names.dotted(node, scope.owner, scope.inner)
        yield Found(kinds.RAISE, dotted, Arguments(), scope.qualname, line, extra=extra or {})


def _maker(node: ast.expr, scope: Scope, names: Names) -> str | None:
    if isinstance(node, ast.Name) and scope.signature is not None and node.id in scope.signature.names:
        return PARAMETER + node.id
    return names.dotted(node, scope.owner, scope.inner)


def _names_a_class(node: ast.expr, names: Names) -> bool:
    name = last_name(node).lstrip("_")
    # A name in lower case is a variable, whose exception was made (and is told of) elsewhere.
    return name[:1].isupper() and not name.isupper()


def _http_status(node: ast.Call) -> dict[str, Any]:
    for keyword in node.keywords:
        if keyword.arg in _STATUS_NAMES:
            value = keyword.value
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and 100 <= value.value <= 599:
                return {"httpStatus": value.value}
            named = re.search(r"HTTPStatus\.([A-Z_]+)", ast.unparse(value))
            if named:
                return {"httpStatus": named[1]}
    return {}


def _log(node: ast.Call, level: str, scope: Scope) -> Iterator[Found]:
    texts = texts_of(node.args[0], scope)
    if len(node.args) > 1:
        rest = node.args[1:]
        if len(rest) == 1 and isinstance(rest[0], ast.Dict):
            texts = tuple(percent(text, rest[0], scope) for text in texts)
        else:
            kept = [arg for arg in rest if not isinstance(arg, ast.Starred)]
            texts = tuple(percent(text, kept, scope) for text in texts)
    extra = {"level": _LEVEL_NAMES.get(level, level)}
    for text in texts:
        yield Found(kinds.LOG, None, Arguments(), scope.qualname, node.lineno, template=text, extra=extra)


def _warning(node: ast.Call, scope: Scope, names: Names) -> Iterator[Found]:
    by_name = {keyword.arg: keyword.value for keyword in node.keywords}
    message = node.args[0] if node.args else by_name.get("message")
    category = node.args[1] if len(node.args) > 1 else by_name.get("category")
    if message is None:
        return
    if looks_like_error(message) and isinstance(message, ast.Call):
        made_by = names.dotted(message.func, scope.owner, scope.inner)
        yield Found(kinds.WARN, made_by, arguments_of(message, scope), scope.qualname, node.lineno)
        return
    made_by = names.dotted(category, scope.owner, scope.inner) if category is not None else "UserWarning"
    for text in texts_or_hole(message, scope):
        yield Found(kinds.WARN, made_by, Arguments(), scope.qualname, node.lineno, template=text)


def deprecation(node: ast.Call, qualname: str, names: Names, known: Known) -> Iterator[Found]:
    """The warning of the decorator ``@deprecated("...", category=...)``, shown when what it marks is called."""
    if last_name(node.func).strip("_") != "deprecated" or not node.args:
        return
    by_name = {keyword.arg: keyword.value for keyword in node.keywords}
    category = by_name.get("category")
    made_by = names.dotted(category) if category is not None else "DeprecationWarning"
    for text in texts_of(node.args[0], known):
        yield Found(kinds.WARN, made_by, Arguments(), qualname, node.lineno, template=text)


def _check(node: ast.Call, dotted: str, scope: Scope, names: Names) -> Iterator[Found]:
    args = list(node.args)
    made_by: str | None = CHECKS.get(dotted)
    if dotted in _CHECKS_WITH_CLASS and args:
        made_by = names.dotted(args.pop(0), scope.owner, scope.inner)
    by_name = {keyword.arg: keyword.value for keyword in node.keywords}
    condition = args[0] if args else by_name.get("cond")
    message = args[1] if len(args) > 1 else by_name.get("message", by_name.get("msg"))
    # Without a message of its own a check says one sentence that is no one's; it stands where torch makes it.
    texts = texts_or_hole(message, scope) if message is not None else ()
    if isinstance(message, ast.Lambda):
        texts = texts_of(message, scope) or (hole(message.body),)
    for text in texts:
        why = hole(condition)[1:-1] if condition is not None else ""
        yield Found(kinds.CHECK, made_by, Arguments(), scope.qualname, node.lineno, why, text, extra={"via": dotted})


def _observed(node: ast.Call, scope: Scope, names: Names) -> Iterator[Found]:
    """torch._dynamo.exc.raise_observed_exception(ValueError, tx, args=["..."])."""
    made_by = names.dotted(node.args[0], scope.owner, scope.inner) if node.args else None
    given = next((keyword.value for keyword in node.keywords if keyword.arg == "args"), None)
    texts: Texts = ()
    if isinstance(given, ast.List | ast.Tuple) and given.elts:
        texts = _constant_variable(given.elts[0], scope)
    extra = {"via": "torch._dynamo.exc.raise_observed_exception"}
    yield Found(kinds.RAISE, made_by, Arguments((texts,) if texts else ()), scope.qualname, node.lineno, extra=extra)


def _constant_variable(node: ast.expr, known: Known) -> Texts:
    while isinstance(node, ast.Call) and node.args and last_name(node.func) in ("create", "build", "ConstantVariable"):
        node = node.args[-1]
    return texts_or_hole(node, known)


def _graph_break(node: ast.Call, scope: Scope) -> Found:
    """torch._dynamo.exc.unimplemented(gb_type=..., context=..., explanation=..., hints=[...])."""
    by_name = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    named = {name: texts_or_hole(value, scope) for name, value in by_name.items() if name != "hints"}
    hints = by_name.get("hints")
    given = Arguments((), {**named, "hints": tuple(_hints(hints, scope))})
    return Found(kinds.GRAPH_BREAK, "torch._dynamo.exc.Unsupported", given, scope.qualname, node.lineno)


def _hints(node: ast.expr | None, known: Known) -> Iterator[str]:
    """A template per hint; ``*NAME`` for a list of them that another module has."""
    if isinstance(node, ast.List | ast.Tuple):
        for item in node.elts:
            if isinstance(item, ast.Starred):
                yield from _hints(item.value, known)
            else:
                yield from texts_or_hole(item, known)[:1]
    elif isinstance(node, ast.Name | ast.Attribute):
        yield f"*{escaped(ast.unparse(node))}"
    elif isinstance(node, ast.BinOp):
        yield from _hints(node.left, known)
        yield from _hints(node.right, known)
    elif node is not None:
        yield hole(node)
