"""An expression that makes a message, as a template.

A template is literal text with ``{source expression}`` where something is filled in; literal braces are doubled.
An expression can have several templates (a variable that two branches set): all are given, up to `LIMIT`.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from string import Formatter
from typing import Protocol

Texts = tuple[str, ...]
"""The templates an expression can have; () where it is no text."""


class Known(Protocol):
    """What is known of variables."""

    def get(self, name: str, /) -> Texts | None:
        """The templates of a variable, or None where it is something else."""


LIMIT = 4
HOLE_LENGTH = 120
ANY = "{...}"
"""A hole whose expression says nothing short."""
INHERITED = "super.__str__"
"""The hole that stands for what ``super().__str__()`` returns."""
_TOKEN = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]")
_PERCENT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?(?P<code>[diouxXeEfFgGcrsa%])"
)
_HOLE_NAME = re.compile(r"(?:str\((?P<inner>[\w.]+)\)|(?P<name>[\w.]+)(?:\(\))?)(?P<form>!r|!s|:[^{}]*)?")


def escaped(text: str) -> str:
    """Literal text as a template."""
    return text.replace("{", "{{").replace("}", "}}") if "{" in text or "}" in text else text


def tokens(template: str) -> Iterator[tuple[bool, str]]:
    """(is a hole, text) of the parts of a template: what stands in the hole, or literal text with single braces."""
    for token in _TOKEN.findall(template):
        if token in ("{{", "}}"):
            yield False, token[0]
        elif token[0] == "{" and len(token) > 1:
            yield True, token[1:-1]
        else:
            yield False, token


def literal_length(template: str) -> int:
    """Characters of a template that are no hole and no space."""
    return sum(len("".join(text.split())) for is_hole, text in tokens(template) if not is_hole)


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template with other templates put where its holes name one of ``values``."""
    parts = []
    for is_hole, text in tokens(template):
        if not is_hole:
            parts.append(escaped(text))
            continue
        named = _HOLE_NAME.fullmatch(text)
        name = named and (named["inner"] or named["name"])
        value = values.get(name) if name else None
        parts.append("{" + text + "}" if value is None else _shown(value, (named and named["form"]) or ""))
    return "".join(parts)


def _shown(value: str, form: str) -> str:
    found = list(tokens(value))
    if len(found) == 1 and found[0][0]:
        plain = "!" not in found[0][1] and ":" not in found[0][1]
        return "{" + found[0][1] + (form if plain else "") + "}"
    if form != "!r":
        return value
    if any(is_hole for is_hole, _ in found):
        return f"'{value}'"
    return escaped(repr("".join(text for _, text in found)))


def quoted(template: str) -> str:
    """A template as `repr` shows the text it makes."""
    return _shown(template, "!r")


def narrowed(texts: Sequence[str]) -> Texts:
    """At most `LIMIT` different templates; more of them become what they begin with, and a hole."""
    different = tuple(dict.fromkeys(texts))
    if len(different) <= LIMIT:
        return different
    first, last = min(different), max(different)
    length = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    start = first[:length]
    whole = "".join("{" + text + "}" if is_hole else escaped(text) for is_hole, text in _whole_tokens(start))
    return (whole + ANY,)


def _whole_tokens(start: str) -> Iterator[tuple[bool, str]]:
    # A prefix can end inside a hole or between doubled braces.
    for token in _TOKEN.findall(start):
        if token in ("{", "}"):
            return
        yield from tokens(token)


def hole(node: ast.expr, form: str = "") -> str:
    """The hole of an expression, with what braces and length forbid left out as ``...``."""
    source = source_of(node)
    if len(source) > HOLE_LENGTH:
        source = source_of(node.func) + "(...)" if isinstance(node, ast.Call) else "..."
        if len(source) > HOLE_LENGTH:
            source = "..."
    return "{" + source + form + "}"


def source_of(node: ast.expr) -> str:
    """An expression on one line, without braces."""
    simple = _simple(node)
    if simple is not None:
        return simple
    try:
        text = " ".join(ast.unparse(node).split())
        if "{" in text or "}" in text:
            text = " ".join(ast.unparse(_NoBraces().visit(ast.parse(ast.unparse(node), mode="eval"))).split())
    except (RecursionError, ValueError, SyntaxError):
        return "..."
    return text if "{" not in text and "}" not in text else "..."


def _simple(node: ast.expr) -> str | None:
    # ast.unparse takes most of the time of a scan where it does all.
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _simple(node.value) if not isinstance(node.value, ast.Constant) else None
        return owner and f"{owner}.{node.attr}"
    if isinstance(node, ast.Call) and not node.keywords:
        parts = [_simple(node.func), *(_simple(arg) for arg in node.args)]
        return None if None in parts else f"{parts[0]}({', '.join(part or '' for part in parts[1:])})"
    if isinstance(node, ast.Subscript):
        owner, index = _simple(node.value), _simple(node.slice)
        return owner and index and f"{owner}[{index}]"
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return repr(node.value)
    return None


class _NoBraces(ast.NodeTransformer):
    """Puts ``...`` where source would have braces."""

    def _cut(self, node: ast.AST) -> ast.AST:
        return ast.Constant(...)

    visit_JoinedStr = visit_Dict = visit_Set = visit_DictComp = visit_SetComp = _cut

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        has_braces = isinstance(node.value, str | bytes) and any(brace in str(node.value) for brace in "{}")
        return ast.Constant(...) if has_braces else node


def texts_or_hole(node: ast.expr, known: Known) -> Texts:
    """The templates of an expression that stands where a message is wanted."""
    found = texts_of(node, known)
    if found:
        return found
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes):
        return (str(node.value),)
    return (hole(node),)


def texts_of(node: ast.expr, known: Known) -> Texts:
    """The templates of an expression, or () where nothing shows that it is text."""
    reader = _READERS.get(type(node))
    return reader(node, known) if reader is not None else ()


def _constant(node: ast.Constant, known: Known) -> Texts:
    return (escaped(node.value),) if isinstance(node.value, str) else ()


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
    if spec and "{" not in spec[0] and "}" not in spec[0]:
        form += f":{spec[0]}"
    return (hole(part.value, form),)


def _joined(parts: Sequence[Texts]) -> Texts:
    count = 1
    kept: list[Texts] = []
    for part in parts:
        # Beyond the limit a part that has several texts is only filled in: the rest still says what it says.
        fits = count * len(part) <= LIMIT
        kept.append(part if fits else (ANY,))
        count *= len(part) if fits else 1
    return tuple(dict.fromkeys("".join(choice) for choice in product(*kept)))


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
    return "".join(token if is_source(token) else _PERCENT.sub(put, token) for token in _TOKEN.findall(text))


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
    if len(between) != 1 or not isinstance(items, ast.List | ast.Tuple):
        return ()
    if any(isinstance(item, ast.Starred) for item in items.elts):
        return ()
    parts: list[Texts] = []
    for item in items.elts:
        parts += [between, texts_or_hole(item, known)] if parts else [texts_or_hole(item, known)]
    return _joined(parts) if parts else ()


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
