"""What is known of the variables of a function while its statements are read in order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from . import lists
from .found import Signature
from .templates import ANY, Texts, narrowed

Values = dict[str, Texts | None]


@dataclass(slots=True)
class Scope:
    """A function, a class or a module at one point of its source."""

    qualname: str = ""
    owner: str = ""
    """Qualified name of the class whose method this is."""
    known: Values = field(default_factory=dict)
    """Variables -> the templates they can have here; None for one that is no text."""
    errors: dict[str, list[ast.expr]] = field(default_factory=dict)
    """Variables that hold an exception -> the expressions that made it."""
    signature: Signature | None = None
    caught: str = ""
    """What the innermost ``except`` around this place catches."""
    conditions: tuple[tuple[str, ast.expr], ...] = ()
    """(prefix, test) of every ``if`` around this place, the innermost last."""

    constants: Mapping[str, Texts] = field(default_factory=dict)
    """The texts that the module has at its top."""
    inner: dict[str, str] = field(default_factory=dict)
    """Functions and classes that the functions around this place define -> their qualified names."""

    def get(self, name: str, /) -> Texts | None:
        """The templates of a variable here, or None where it is no text."""
        return self.known[name] if name in self.known else self.constants.get(name)

    def branch(self) -> Scope:
        """The same place, with variables that a branch can change on its own."""
        return self._copy(self.conditions)

    def under(self, prefix: str, test: ast.expr) -> Scope:
        """A branch that runs where ``test`` holds (prefix "") or does not ("not ")."""
        return self._copy((*self.conditions, (prefix, test)))

    def _copy(self, conditions: tuple[tuple[str, ast.expr], ...]) -> Scope:
        # Built by hand: dataclasses.replace would take a tenth of a scan.
        known, errors = self.known.copy(), self.errors.copy()
        return Scope(
            self.qualname,
            self.owner,
            known,
            errors,
            self.signature,
            self.caught,
            conditions,
            self.constants,
            self.inner,
        )

    def adopt(self, branches: Iterable[Scope]) -> None:
        """Go on behind branches of which each may have run."""
        first, *others = scopes = list(branches)
        if all(scope.known == first.known and scope.errors == first.errors for scope in others):
            self.known, self.errors = first.known, first.errors
            return
        names = dict.fromkeys(name for scope in scopes for name in scope.known)
        self.known = {name: _merged(name, [scope.known.get(name) for scope in scopes]) for name in names}
        self.errors = {}
        for scope in scopes:
            for name, made in scope.errors.items():
                kept = self.errors.setdefault(name, [])
                kept += [one for one in made if one not in kept]

    def repeated(self, body: Scope) -> None:
        """Go on behind a loop: text that it appends may have been appended any number of times."""
        for name, after in body.known.items():
            before = self.known.get(name)
            if before == after:
                continue
            if lists.is_special(name):
                self.known[name] = lists.repeated(before or (), after or ()) if name[0] == lists.LIST else after
                continue
            if before and after and all(text.startswith(before) for text in after):
                self.known[name] = tuple(f"{text}{ANY}" if not text.endswith(ANY) else text for text in before)
            else:
                self.known[name] = _merged(name, [before, after])
        for name, made in body.errors.items():
            self.errors.setdefault(name, made)

    def forget(self, name: str) -> None:
        """The variable is something else from here on."""
        self.known[name] = None
        self.errors.pop(name, None)
        self.forget_special(name)

    def forget_special(self, name: str) -> None:
        """The variable is no list of texts, and holds nothing that a call returned."""
        for mark in (lists.LIST, lists.CALLED):
            if mark + name in self.known:
                self.known[mark + name] = None


def _merged(name: str, values: list[Texts | None]) -> Texts | None:
    first = values[0]
    if name.startswith(lists.CALLED):
        return tuple(dict.fromkeys(text for value in values for text in value or ())) or None
    if name.startswith(lists.LIST):
        return lists.merged(values) if any(values) else first
    if all(value == first for value in values):
        return first
    texts = [text for value in values for text in value or ("{" + name + "}",)]
    return narrowed(texts)


def signature_of(function: ast.FunctionDef | ast.AsyncFunctionDef, is_method: bool, texts: Values) -> Signature:
    """The parameters of a function; ``texts`` has the templates of its defaults by name."""
    args = function.args
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    if is_method and positional and not _is_static(function):
        positional = positional[1:]
    names = (*positional, *(arg.arg for arg in args.kwonlyargs))
    defaults = {name: value for name, value in texts.items() if value and name in names}
    return Signature(names, len(positional), defaults)


def _is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)


def defaults_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, ast.expr]]:
    """(parameter, expression of its default)."""
    args = function.args
    positional = [*args.posonlyargs, *args.args]
    pairs = zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True)
    keyword = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return [(arg.arg, value) for arg, value in (*pairs, *keyword) if value is not None]
