"""Templates: what an expression that makes a message can say.

A template is literal text with ``{source expression}`` where something is filled in; literal braces are doubled.
An expression can have several templates (a variable that two branches set): all are given, up to `LIMIT`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

Texts = tuple[str, ...]
"""The templates an expression can have; () where it is no text."""


class Known(Protocol):
    """What is known of variables."""

    def get(self, name: str, /) -> Texts | None:
        """The templates of a variable, or None where it is something else."""


LIMIT = 4
LISTED = 8
"""As many templates are kept of a message that is put together from texts of a list."""
LONGEST = 4000
"""Characters of a template. A few lines can put together one that fills the memory; no one writes such a message."""
HOLE_LENGTH = 120
ANY = "{...}"
"""A hole whose expression says nothing short."""
INHERITED = "super.__str__"
"""The hole that stands for what ``super().__str__()`` returns."""
TOKEN = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}]")
_HOLE_NAME = re.compile(r"(?:str\((?P<inner>[\w.]+)\)|(?P<name>[\w.]+)(?:\(\))?)(?P<form>!r|!s|:[^{}]*)?")


def escaped(text: str) -> str:
    """Literal text as a template."""
    return text.replace("{", "{{").replace("}", "}}") if "{" in text or "}" in text else text


def constant(text: str) -> str:
    """A text constant as a template, as it can be stored and shown.

    Half of a surrogate pair stands as the escape that a traceback prints for it, a zero character as a hole.
    """
    if text.isascii():
        return escaped(text) if "\0" not in text else escaped(text).replace("\0", ANY)
    return escaped(text.encode("utf-8", "backslashreplace").decode()).replace("\0", ANY)


def shortened(template: str, most: int = LONGEST) -> str:
    """A template of at most ``most`` characters: what is behind those is a hole."""
    return template if len(template) <= most else _cut(template[: most - len(ANY)]) + ANY


def concatenated(parts: Iterable[str]) -> str:
    """Templates one behind the other, shortened."""
    parts = tuple(parts)
    if sum(map(len, parts)) <= LONGEST:
        return "".join(parts)
    kept: list[str] = []
    length = 0
    for part in parts:
        kept.append(part)
        length += len(part)
        if length > LONGEST:
            break
    return shortened("".join(kept))


def tokens(template: str) -> Iterator[tuple[bool, str]]:
    """(is a hole, text) of the parts of a template: what stands in the hole, or literal text with single braces."""
    for token in TOKEN.findall(template):
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
    return concatenated(parts)


def _shown(value: str, form: str) -> str:
    found = list(tokens(value))
    if len(found) == 1 and found[0][0]:
        plain = "!" not in found[0][1] and ":" not in found[0][1]
        return "{" + found[0][1] + (form if plain else "") + "}"
    if form != "!r":
        return value
    # The quotes of `repr` depend on the whole text (a hole is taken to have none in it): with this in front of a part
    # it chooses the same for that.
    whole = "".join(text for is_hole, text in found if not is_hole)
    front = ("'" if "'" in whole else "") + ('"' if '"' in whole or "'" not in whole else "")
    start = len(repr(front)) - 1
    inside = ("{" + text + "}" if is_hole else escaped(repr(front + text)[start:-1]) for is_hole, text in found)
    return f"{repr(front)[0]}{''.join(inside)}{repr(front)[0]}"


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
    return (_cut(first[:length]) + ANY,)


def _cut(start: str) -> str:
    return "".join("{" + text + "}" if is_hole else escaped(text) for is_hole, text in _whole_tokens(start))


def _whole_tokens(start: str) -> Iterator[tuple[bool, str]]:
    # A prefix can end inside a hole or between doubled braces.
    for token in TOKEN.findall(start):
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
    except (RecursionError, MemoryError, ValueError, SyntaxError):
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
        return number(node.value)
    return None


def hole_name(template: str) -> str:
    """The name in a template that is one hole and nothing else: ``{msg}``, ``{msg()}`` or ``{str(msg)}``."""
    if not template.startswith("{") or not template.endswith("}"):
        return ""
    inner = template[1:-1].removesuffix("()")
    return inner[4:-1] if inner.startswith("str(") and inner.endswith(")") else inner


def number(value: int) -> str:
    """An integer as text; ``...`` for one that is longer than a hole."""
    return repr(value) if value.bit_length() < 3 * HOLE_LENGTH else "..."


class _NoBraces(ast.NodeTransformer):
    """Puts ``...`` where source would have braces."""

    def _cut(self, node: ast.AST) -> ast.AST:
        return ast.Constant(...)

    visit_JoinedStr = visit_Dict = visit_Set = visit_DictComp = visit_SetComp = _cut

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        has_braces = isinstance(node.value, str | bytes) and any(brace in str(node.value) for brace in "{}")
        return ast.Constant(...) if has_braces else node
