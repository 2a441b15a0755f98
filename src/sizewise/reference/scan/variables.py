"""What assignments and calls like ``lines.append(...)`` make known of variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from .calls import last_name, looks_like_error
from .lists import CALLED, ITEM, LIST, WORDS, added
from .scope import Scope
from .templates import ANY, Texts, hole, literal_length
from .texts import items_of, texts_of, variable_of

_MAKES_TEXT = re.compile(r"msg|message|error|reason|text|describe|explain|format|hint|summary", re.IGNORECASE)
"""Names of functions whose value may be a message."""
_ADDS = ("append", "extend", "insert")


def bind(target: ast.expr, value: ast.expr, scope: Scope, of_error: bool) -> None:
    """``target = value``. ``of_error``: whether the function is the ``__init__`` of what may be an exception class."""
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            if isinstance(item, ast.Name) and (item.id in scope.known or item.id in scope.errors):
                scope.forget(item.id)
        return
    name = variable_of(target)
    if not name:
        return
    scope.forget_special(name)
    texts = texts_of(value, scope)
    if texts:
        scope.known[name] = texts
        scope.errors.pop(name, None)
        if scope.owner == scope.qualname and name.isupper():
            # A name in lower case is the default of what each object has.
            scope.known[f"self.{name}"] = texts
        return
    if looks_like_error(value):
        scope.errors[name] = [value]
    elif of_error and _keeps_parameter(name, value, scope):
        scope.known[name] = (hole(value),)
    elif name in scope.known or name in scope.errors or name in scope.constants:
        scope.forget(name)
    if scope.signature is not None:
        _bind_special(name, value, scope)


def _bind_special(name: str, value: ast.expr, scope: Scope) -> None:
    if isinstance(value, ast.List | ast.BinOp) and (items := items_of(value, scope)):
        scope.known[LIST + name] = items
    elif isinstance(value, ast.Call) and _MAKES_TEXT.search(last_name(value.func)):
        scope.known[CALLED + name] = (hole(value),)


def _keeps_parameter(name: str, value: ast.expr, scope: Scope) -> bool:
    """``self.size = size`` in the ``__init__`` of an error: ``__str__`` may show it."""
    return (
        isinstance(value, ast.Name)
        and name.startswith("self.")
        and scope.signature is not None
        and value.id in scope.signature.names
    )


def augment(node: ast.AugAssign, scope: Scope) -> None:
    """``target += value``, and the like."""
    name = variable_of(node.target)
    held = scope.get(LIST + name)
    if held is not None and isinstance(node.op, ast.Add):
        scope.known[LIST + name] = added(held, items_of(node.value, scope) or (ITEM + ANY,))
        return
    before = scope.get(name) or scope.get(CALLED + name)
    if not name or before is None:
        return
    scope.known[name] = before
    if isinstance(node.op, ast.Add):
        both = ast.BinOp(left=ast.Name(name), op=ast.Add(), right=node.value)
        scope.known[name] = texts_of(both, scope) or None
    else:
        scope.forget(name)


def extend_list(call: ast.Call, scope: Scope) -> None:
    """``lines.append("...")``, ``lines.extend([...])`` or ``lines.insert(0, "...")``; any other call is nothing."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _ADDS or not call.args:
        return
    variable = variable_of(function.value)
    if not variable:
        return
    before = scope.get(LIST + variable)
    value = call.args[-1]
    items = items_of(value, scope) if function.attr == "extend" else _item(texts_of(value, scope))
    if before is None and not any(literal_length(text) >= WORDS for text in items):
        return
    # Of a list that came from elsewhere nothing is known but what is put into it here.
    held, items = before or (ITEM + ANY,), items or (ITEM + ANY,)
    scope.known[LIST + variable] = added(items, held) if function.attr == "insert" else added(held, items)


def _item(texts: Texts) -> Texts:
    """An item that may be there or not: what has no words is left open."""
    return tuple(dict.fromkeys(ITEM + (one if " " in one and literal_length(one) >= WORDS else ANY) for one in texts))


def appended(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The variables that ``+=`` changes in a loop, in its branches too."""
    for node in statements:
        if isinstance(node, ast.AugAssign):
            yield variable_of(node.target)
        elif isinstance(node, ast.If | ast.For | ast.While):
            yield from appended([*node.body, *node.orelse])


def starting_texts(before: Texts) -> Texts:
    """What a variable that a loop appends to can hold at the start of one of its rounds."""
    return tuple(f"{text}{ANY}" for text in before)
