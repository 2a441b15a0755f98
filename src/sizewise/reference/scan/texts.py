"""An expression that makes a message, read as the templates it can have."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from string import Formatter

from .lists import CALLED, ITEM, LIST, joined_items
from .templates import (
    ANY,
    INHERITED,
    LIMIT,
    LISTED,
    LONGEST,
    TOKEN,
    Known,
    Texts,
    concatenated,
    constant,
    escaped,
    hole,
    literal_length,
    narrowed,
    number,
    shortened,
    source_of,
    tokens,
)

_LONGEST = 60
"""A list with more items is data, and so is a longer format."""
_DOLLAR = re.compile(r"\$(?:\$|(?P<name>[a-zA-Z_]\w*)|\{(?P<braced>\w+)\})")
_PERCENT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?(?P<code>[diouxXeEfFgGcrsa%])"
)


def texts_or_hole(node: ast.expr, known: Known) -> Texts:
    """The templates of an expression that stands where a message is wanted."""
    found = texts_of(node, known)
    if found:
        return found
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes):
        return (number(node.value) if isinstance(node.value, int) else str(node.value),)
    if isinstance(node, ast.Name):
        return known.get(CALLED + node.id) or (hole(node),)
    return (hole(node),)


def texts_of(node: ast.expr, known: Known) -> Texts:
    """The templates of an expression, or () where nothing shows that it is text."""
    reader = _READERS.get(type(node))
    if reader is None:
        return ()
    texts = reader(node, known)
    for text in texts:
        if len(text) > LONGEST:
            return tuple(map(shortened, texts))
    return texts


def _constant(node: ast.Constant, known: Known) -> Texts:
    return (constant(node.value),) if isinstance(node.value, str) else ()


def _name(node: ast.Name, known: Known) -> Texts:
    return known.get(node.id) or ()


def _attribute(node: ast.Attribute, known: Known) -> Texts:
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        return known.get(f"self.{node.attr}") or ()
    return ()


def _fstring(node: ast.JoinedStr, known: Known) -> Texts:
    return _joined([_field(part, known) for part in node.values])


def _field(part: ast.expr, known: Known) -> Texts:
    if not isinstance(part, ast.FormattedValue):
        return texts_or_hole(part, known)
    form = f"!{chr(part.conversion)}" if part.conversion > 0 else ""
    spec = texts_of(part.format_spec, known) if part.format_spec is not None else ()
    if not form and not spec:
        texts = texts_of(part.value, known)
        if texts:
            return texts
    if spec and len(spec[0]) <= _LONGEST and "{" not in spec[0] and "}" not in spec[0]:
        form += f":{spec[0]}"
    return (hole(part.value, form),)


def _joined(parts: Sequence[Texts]) -> Texts:
    count = 1
    kept: list[Texts] = []
    for part in parts:
        # Beyond the limit a part that has several texts is only filled in: the rest still says what it says.
        fits = count * len(part) <= (LISTED if count == 1 else LIMIT)
        kept.append(part if fits else (ANY,))
        count *= len(part) if fits else 1
    return tuple(dict.fromkeys(concatenated(choice) for choice in product(*kept)))


def _operation(node: ast.BinOp, known: Known) -> Texts:
    if isinstance(node.op, ast.Add):
        return _sum(node, known)
    if isinstance(node.op, ast.Mod):
        left = texts_of(node.left, known)
        return tuple(percent(text, node.right, known) for text in left)
    if isinstance(node.op, ast.Mult):
        text, times = texts_of(node.left, known), node.right
        if text and isinstance(times, ast.Constant) and isinstance(times.value, int) and 0 <= times.value <= 100:
            return tuple(one * times.value for one in text)
        return (hole(node),) if text else ()
    return ()


def _sum(node: ast.BinOp, known: Known) -> Texts:
    # A long sum is a deep tree on its left: walked here, not called into.
    parts: list[ast.expr] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        parts.append(left.right)
        left = left.left
    parts.append(left)
    texts = [texts_of(part, known) for part in reversed(parts)]
    if not any(texts):
        return ()
    return _joined([text or texts_or_hole(part, known) for text, part in zip(texts, reversed(parts), strict=True)])


def percent(text: str, values: ast.expr | Sequence[ast.expr], known: Known) -> str:
    """A template that ``%`` fills. ``text`` is already a template: what it has of holes stays."""
    items = values if isinstance(values, Sequence) else _items(values)
    used = 0

    def put(match: re.Match[str]) -> str:
        nonlocal used
        code, key = match["code"], match["key"]
        if code == "%":
            return "%"
        form = "!r" if code == "r" else ""
        if key is not None:
            return _value_of_key(values, key, form, known)
        used += 1
        if items is None:
            return hole(values, form) if isinstance(values, ast.expr) and _one_value(text) else ANY
        if used > len(items):
            return ANY
        return _filling(items[used - 1], form, known)

    # What stands in a hole is source, where % is an operator.
    is_source = re.compile(r"\{[^{}]+\}").fullmatch
    return "".join(token if is_source(token) else _PERCENT.sub(put, token) for token in TOKEN.findall(text))


def _one_value(text: str) -> bool:
    return sum(match["code"] != "%" for match in _PERCENT.finditer(text)) == 1


def _items(values: ast.expr) -> Sequence[ast.expr] | None:
    if isinstance(values, ast.Tuple):
        return None if any(isinstance(item, ast.Starred) for item in values.elts) else values.elts
    return None if isinstance(values, ast.Name | ast.Attribute | ast.Call | ast.Dict) else [values]


def _value_of_key(values: ast.expr | Sequence[ast.expr], key: str, form: str, known: Known) -> str:
    if isinstance(values, ast.Dict):
        for name, value in zip(values.keys, values.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return _filling(value, form, known)
    return "{" + (key if re.fullmatch(r"\w+", key) else "...") + form + "}"


def _filling(value: ast.expr, form: str, known: Known) -> str:
    texts = texts_of(value, known) if not form else ()
    return texts[0] if len(texts) == 1 else hole(value, form)


def _call(node: ast.Call, known: Known) -> Texts:
    function, args = node.func, node.args
    if isinstance(function, ast.Name):
        if function.id == "str" and len(args) == 1:
            return texts_of(args[0], known)
        return _cleaned(function.id, args, known)
    if not isinstance(function, ast.Attribute):
        return ()
    if function.attr == "format":
        return tuple(text for one in texts_of(function.value, known) for text in _format(one, node, known))
    if function.attr in ("substitute", "safe_substitute"):
        return _substituted(function.value, node, known)
    if function.attr == "join" and len(args) == 1:
        return _join(function.value, args[0], known)
    if function.attr in ("strip", "rstrip", "lstrip"):
        trim: Callable[[str], str] = getattr(str, function.attr)
        return tuple(trim(text) for text in texts_of(function.value, known)) if not args else ()
    if function.attr == "__str__" and isinstance(function.value, ast.Call) and not args:
        return ("{" + INHERITED + "}",)  # super().__str__()
    return _cleaned(function.attr, args, known)


def _cleaned(name: str, args: Sequence[ast.expr], known: Known) -> Texts:
    if name in ("dedent", "cleandoc") and len(args) == 1:
        clean = textwrap.dedent if name == "dedent" else inspect.cleandoc
        return tuple(clean(text) for text in texts_of(args[0], known))
    return ()


def _format(text: str, node: ast.Call, known: Known) -> Texts:
    """A template that `str.format` fills; ``text`` is the template of the format string itself."""
    form = "".join("\0" if is_hole else part for is_hole, part in tokens(text))
    holes = [part for is_hole, part in tokens(text) if is_hole]
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    parts: list[str] = []
    count = 0
    try:
        for literal, field, _, conversion in Formatter().parse(form):
            parts.append(_restored(literal, holes))
            if field is None:
                continue
            key, rest = re.match(r"([^.\[]*)(.*)", field, re.DOTALL).groups()  # type: ignore[union-attr]
            if not key:
                key, count = str(count), count + 1
            value = _argument(key, node.args, named)
            shown = f"!{conversion}" if conversion else ""
            if value is None or rest:
                inner = (source_of(value) if value is not None else key or "...") + rest
                parts.append(ANY if "{" in inner or "}" in inner or "\0" in inner else "{" + inner + shown + "}")
            else:
                parts.append(_filling(value, shown, known))
    except (ValueError, IndexError):
        return (text,)
    return ("".join(parts),)


def _substituted(template: ast.expr, node: ast.Call, known: Known) -> Texts:
    """``string.Template("... $name ...").substitute(name=...)``."""
    if not isinstance(template, ast.Call) or not template.args or not ast.unparse(template.func).endswith("Template"):
        return ()
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}

    def put(match: re.Match[str]) -> str:
        name = match["name"] or match["braced"]
        if name is None:
            return "$"
        return _filling(named[name], "", known) if name in named else "{" + name + "}"

    texts = []
    for text in texts_of(template.args[0], known):
        plain = "".join("\0" if is_hole else part for is_hole, part in tokens(text))
        holes = [part for is_hole, part in tokens(text) if is_hole]
        pieces = _DOLLAR.split(plain)
        found = [put(match) for match in _DOLLAR.finditer(plain)]
        literal = [_restored(piece, holes) for piece in pieces[:: _DOLLAR.groups + 1]]
        texts.append("".join(a + b for a, b in zip(literal, [*found, ""], strict=True)))
    return tuple(texts)


def _restored(literal: str, holes: list[str]) -> str:
    pieces = literal.split("\0")
    text = escaped(pieces[0])
    for piece in pieces[1:]:
        text += ("{" + holes.pop(0) + "}" if holes else ANY) + escaped(piece)
    return text


def _argument(key: str, args: Sequence[ast.expr], named: Mapping[str, ast.expr]) -> ast.expr | None:
    if not key.isdigit():
        return named.get(key)
    place = int(key)
    starred = any(isinstance(arg, ast.Starred) for arg in args[: place + 1])
    return args[place] if place < len(args) and not starred else None


def _join(separator: ast.expr, items: ast.expr, known: Known) -> Texts:
    between = texts_of(separator, known)
    texts = joined_items(items_of(items, known), between[0]) if len(between) == 1 else ()
    shown = isinstance(items, ast.List | ast.Tuple) or any(map(literal_length, texts))
    return texts if shown else ()


def items_of(node: ast.expr, known: Known) -> Texts:
    """The templates of a list of texts, as `lists` writes them; () where nothing shows that it is one."""
    if isinstance(node, ast.List | ast.Tuple):
        if len(node.elts) > _LONGEST:
            return ()
        return _joined([_item(item, known) for item in node.elts]) if node.elts else ("",)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [items_of(side, known) for side in (node.left, node.right)]
        return _joined([one or (ITEM + ANY,) for one in both]) if any(both) else ()
    name = variable_of(node)
    return (known.get(LIST + name) or ()) if name else ()


def _item(node: ast.expr, known: Known) -> Texts:
    if isinstance(node, ast.Starred):
        return items_of(node.value, known) or (ITEM + ANY,)
    return tuple(ITEM + text for text in texts_or_hole(node, known))


def variable_of(node: ast.expr) -> str:
    """``name`` or ``self.name``; "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


def _either(node: ast.IfExp, known: Known) -> Texts:
    first, second = texts_of(node.body, known), texts_of(node.orelse, known)
    if not first and not second:
        return ()
    return narrowed([*(first or texts_or_hole(node.body, known)), *(second or texts_or_hole(node.orelse, known))])


def _or(node: ast.BoolOp, known: Known) -> Texts:
    if not isinstance(node.op, ast.Or):
        return ()
    texts = [texts_of(value, known) for value in node.values]
    if not any(texts):
        return ()
    both = zip(texts, node.values, strict=True)
    return narrowed([one for text, value in both for one in text or texts_or_hole(value, known)])


def _named(node: ast.NamedExpr, known: Known) -> Texts:
    return texts_of(node.value, known)


def _lambda(node: ast.Lambda, known: Known) -> Texts:
    args = node.args
    takes_none = not (args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg)
    # `lambda x=x: ...` only keeps a value of now.
    return texts_of(node.body, known) if takes_none and len(args.args) == len(args.defaults) else ()


_READERS: dict[type[ast.expr], Callable[..., Texts]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.JoinedStr: _fstring,
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.IfExp: _either,
    ast.BoolOp: _or,
    ast.NamedExpr: _named,
    ast.Lambda: _lambda,
}
