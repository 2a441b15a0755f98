"""A module's statements, read in order: what each raises, logs or warns of, and under which condition."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import found as kinds
from .calls import arguments_of, deprecation, found_in_call, last_name, looks_like_error, raised
from .files import Unreadable
from .found import Arguments, ClassFound, Found, Module, Signature, TextMaker
from .lists import WORDS
from .names import Names
from .parse import parsed
from .scope import Scope, defaults_of, signature_of
from .templates import LISTED, Texts, escaped, hole, hole_name, literal_length
from .texts import texts_of, texts_or_hole, variable_of
from .variables import appended, augment, bind, extend_list, starting_texts

CONDITION_LENGTH = 400
NAME_LENGTH = 400
"""Characters kept of a qualified name."""
SECONDS = 20.0
"""CPU time for one file; the longest of torch, vLLM and transformers take less than one second."""
_OFTEN = 200
"""Statements between two looks at the time."""
_FREE, _TIMES = 200_000, 20
"""Characters of templates that a file can have, and how many more for each of its own."""
_ERROR_NAMES = re.compile(
    r"Error|Exception|Warning|Unsupported|Failed|Failure|Restart|Bypass|Exit|Stop|Cancel|Interrupt"
)
_OF_ERRORS = re.compile(r"exc|err")
"""Parts of the names of modules that hold exception classes."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def scan(text: str, module: str, path: str) -> Module:
    """Everything that a module's source says of errors.

    Raises SyntaxError, ValueError (a null byte), RecursionError or MemoryError for a source that cannot be read, and
    Unreadable for one that takes too long or says far more than it is long.
    """
    tree, left_out = parsed(text)
    walker = _Walker(text, module, path.endswith("__init__.py"))
    walker.module(tree)
    names = walker.names
    return Module(
        module,
        path,
        walker.found,
        walker.classes,
        walker.functions,
        names.imports,
        names.stars,
        walker.constants,
        walker.texts,
        walker.bases,
        left_out + walker.left_out,
    )


class _Walker:
    """Walks statements only: an expression is looked into where a statement makes an error of it."""

    def __init__(self, text: str, module: str, is_package: bool) -> None:
        self.names = Names(module, is_package)
        self.found: list[Found] = []
        self.classes: list[ClassFound] = []
        self.functions: dict[str, Signature] = {}
        self.constants: dict[str, Texts] = {}
        self.texts: dict[str, TextMaker] = {}
        self.bases: dict[str, tuple[str, ...]] = {}
        self.left_out = 0
        self._characters = _FREE + _TIMES * len(text)
        self._end = time.process_time() + SECONDS
        self._holds_errors = _OF_ERRORS.search(module.rpartition(".")[2]) is not None
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    # -- the module

    def module(self, tree: ast.Module) -> None:
        for place, node in enumerate(tree.body):
            if place % _OFTEN == 0:
                self._in_time()
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.names.imported(node)
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self.names.defined.add(node.name)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._constant(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._constant(node.target, node.value)
        self.constants["__name__"] = (self.names.module,)
        self.block(tree.body, Scope(qualname="<module>", constants=self.constants))

    def _constant(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.List | ast.Tuple):
            texts = [texts_of(item, self.constants)[:1] for item in value.elts]
            if texts and all(texts):
                # A list of texts is for `*NAME` alone; as a text it has a name that no variable has.
                self.constants[f"*{target.id}"] = tuple(text for one in texts for text in one)
            return
        found = texts_of(value, self.constants)
        if found:
            self.constants[target.id] = found

    def block(self, statements: Sequence[ast.stmt], scope: Scope) -> bool:
        """Read statements in order; whether they always leave (raise, return, continue, break)."""
        self._in_time()
        if len(statements) > _OFTEN:
            starts = range(0, len(statements), _OFTEN)
            return any(self.block(statements[start : start + _OFTEN], scope) for start in starts)
        for node in statements:
            handler = _STATEMENTS.get(type(node))
            if handler is None:
                continue
            try:
                if handler(self, node, scope):
                    return True
            except (RecursionError, MemoryError):
                self.left_out += 1  # too deep: the statements around it are read all the same
        return False

    def _in_time(self) -> None:
        if time.process_time() > self._end:
            raise Unreadable("too slow")

    # -- errors

    def _add(self, found: Found, scope: Scope) -> None:
        if not found.condition and scope.conditions:
            found = found._replace(condition=self._condition(scope))
        if scope.caught and found.kind == kinds.RAISE:
            found = found._replace(extra={**found.extra, "handles": scope.caught})
        self._characters -= _said(found)
        if self._characters < 0:
            raise Unreadable("too large")
        self.found.append(found)
        signature = scope.signature
        if signature is not None and found.kind not in (kinds.LOG, kinds.WARN):
            known = {*signature.names}
            given = [text for texts in found.arguments.values() for text in texts]
            if found.kind in (kinds.RETURN, kinds.PASSED) or any(
                hole_name(text) in known for text in [*given, found.template or ""]
            ):
                self.functions[f"{self.names.module}.{found.qualname}"] = signature

    def _condition(self, scope: Scope) -> str:
        prefix, test = scope.conditions[-1]
        source = self._source(test)
        return (f"not ({source})" if prefix == "not " else f"{prefix}{source}")[:CONDITION_LENGTH]

    def _source(self, node: ast.expr) -> str:
        """An expression as it is written, on one line."""
        line, last = node.lineno, node.end_lineno or node.lineno
        if line == last and line <= len(self._lines):
            text = self._lines[line - 1]
            if text.isascii():
                return text[node.col_offset : node.end_col_offset]
            return text.encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
        try:
            return " ".join(ast.unparse(node).split())
        except (RecursionError, ValueError):
            return "..."

    def _raise(self, node: ast.Raise, scope: Scope) -> bool:
        if node.exc is not None:
            extra = {"from": self._source(node.cause)[:CONDITION_LENGTH]} if node.cause is not None else None
            for found in raised(node.exc, node.lineno, scope, self.names, extra):
                self._add(found, scope)
        return True

    def _assert(self, node: ast.Assert, scope: Scope) -> bool:
        condition = self._source(node.test)
        texts = texts_or_hole(node.msg, scope) if node.msg is not None else (escaped(f"assert {condition}"),)
        extra = {} if node.msg is not None else {"bare": True}
        for text in texts:
            self._add(
                Found(
                    kinds.ASSERT,
                    "AssertionError",
                    Arguments(),
                    scope.qualname,
                    node.lineno,
                    condition[:CONDITION_LENGTH],
                    text,
                    extra,
                ),
                scope,
            )
        return isinstance(node.test, ast.Constant) and not node.test.value

    def _expression(self, node: ast.Expr, scope: Scope) -> bool:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            self._called(value, scope)
        return False

    def _called(self, call: ast.Call, scope: Scope, returned: bool = False) -> None:
        self._super_init(call, scope)
        extend_list(call, scope)
        for found in found_in_call(call, scope, self.names):
            if returned and found.kind == kinds.CALL:
                found = found._replace(kind=kinds.PASSED)
            self._add(found, scope)
        for arg in call.args:
            # guarded(lambda: fail(...))
            if isinstance(arg, ast.Lambda) and isinstance(arg.body, ast.Call):
                inside = replace(scope, qualname=_inside(scope.qualname, "<lambda>"), signature=None)
                for found in found_in_call(arg.body, inside, self.names):
                    self._add(found, inside)

    def _makes_error(self, value: ast.expr, scope: Scope) -> bool:
        """``return Made(...)`` in a function that is called for an error; `link` knows whether it is one."""
        function = scope.qualname.rpartition(".")[2]
        is_class = isinstance(value, ast.Call) and last_name(value.func)[:1].isupper()
        return is_class and re.search(r"err|exc|fail", function, re.IGNORECASE) is not None

    def _return(self, node: ast.Return, scope: Scope) -> bool:
        value = node.value
        if isinstance(value, ast.Name) and value.id in scope.errors:
            made = scope.errors[value.id]
        elif value is not None and (looks_like_error(value) or self._makes_error(value, scope)):
            made = [value]
        else:
            made = []
            if isinstance(value, ast.Call):
                self._called(value, scope, returned=True)
        for one in made:
            for found in raised(one, node.lineno, scope, self.names):
                self._add(found._replace(kind=kinds.RETURN), scope)
        if value is not None and scope.signature is not None:
            self._returned_text(value, scope)
        return True

    def _returned_text(self, value: ast.expr, scope: Scope) -> None:
        name = variable_of(value)
        # What `__init__` set is filled in where the class is known.
        kept = name.startswith("self.") and scope.qualname.endswith(".__str__")
        texts = (hole(value),) if kept else texts_of(value, scope)
        owner = self._class_of(scope)
        if scope.qualname.endswith(".__str__") and owner is not None:
            self.classes[-1] = owner._replace(shown=(*owner.shown, *texts))
            return
        worded = tuple(text for text in texts if " " in text and literal_length(text) >= WORDS)
        if worded and scope.signature is not None:
            before = self.texts.get(scope.qualname, TextMaker(scope.signature, bool(scope.owner), ()))
            several = tuple(dict.fromkeys((*before.texts, *worded)))[:LISTED]
            is_method = scope.qualname.rpartition(".")[0] == scope.owner != ""
            self.texts[scope.qualname] = TextMaker(scope.signature, is_method, several)

    # -- variables

    def _assign(self, node: ast.Assign, scope: Scope) -> bool:
        for target in node.targets:
            bind(target, node.value, scope, self._in_error_init(scope))
        return False

    def _annotated(self, node: ast.AnnAssign, scope: Scope) -> bool:
        if node.value is not None:
            bind(node.target, node.value, scope, self._in_error_init(scope))
        return False

    def _in_error_init(self, scope: Scope) -> bool:
        return scope.qualname.endswith(".__init__") and self._class_of(scope) is not None

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> bool:
        augment(node, scope)
        return False

    # -- branches

    def _if(self, node: ast.If, scope: Scope) -> bool:
        # An elif is an if alone in an else. A chain of them is walked, not called into: it can be of any length.
        chain: list[tuple[Scope, Scope, bool]] = []
        while True:
            then = scope.under("", node.test)
            chain.append((scope, then, self.block(node.body, then)))
            scope = scope.under("not ", node.test) if node.orelse else scope
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                break
            node = node.orelse[0]
        other, left_other = scope, self.block(node.orelse, scope)
        for around, then, left in reversed(chain):
            staying = [branch for branch, gone in ((then, left), (other, left_other)) if not gone]
            if staying:
                around.adopt(staying)
            other, left_other = around, not staying
        return left_other

    def _repeat(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> bool:
        body = scope.branch()
        if body.known:
            # Not only the first round: what the loop appends may be there already.
            for name in appended(node.body):
                before = body.known.get(name)
                if before:
                    body.known[name] = starting_texts(before)
        self.block(node.body, body)
        scope.repeated(body)
        self.block(node.orelse, scope)
        return False

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        self.block(node.body, scope)
        return False  # a context manager can swallow what is raised inside

    def _try(self, node: ast.Try, scope: Scope) -> bool:
        body = scope.branch()
        left = self.block(node.body, body) or self.block(node.orelse, body)
        staying = [] if left else [body]
        for handler in node.handlers:
            branch = scope.branch()
            caught = self._source(handler.type) if handler.type is not None else "everything"
            branch.caught = caught[:CONDITION_LENGTH]
            if handler.name:
                branch.forget(handler.name)
            if not self.block(handler.body, branch):
                branch.caught = scope.caught
                staying.append(branch)
        if staying:
            scope.adopt(staying)
        return self.block(node.finalbody, scope) or not staying

    def _match(self, node: ast.Match, scope: Scope) -> bool:
        staying = [scope.branch()]
        for case in node.cases:
            branch = scope.under(f"{ast.unparse(case.pattern)} matches ", node.subject)
            if not self.block(case.body, branch):
                staying.append(branch)
        scope.adopt(staying)
        return False

    def _leave(self, node: ast.stmt, scope: Scope) -> bool:
        return True

    # -- definitions

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> bool:
        self.names.imported(node)
        return False

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> bool:
        qualname = _inside(scope.qualname, node.name)
        self._define(node.name, qualname, scope)
        inner = Scope(qualname, scope.owner, dict(scope.known), dict(scope.errors), constants=self.constants)
        inner.inner = dict(scope.inner)
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call):
                for found in deprecation(mark, qualname, self.names, scope):
                    self._add(found, scope)
        texts = {name: texts_or_hole(value, scope) for name, value in defaults_of(node)}
        is_method = bool(scope.owner) and scope.qualname == scope.owner
        inner.signature = signature_of(node, is_method, dict(texts))
        for name in inner.signature.names:
            if name in inner.known or name in inner.errors or name in self.constants:
                inner.forget(name)
        self.block(node.body, inner)
        owner = self._class_of(scope)
        if is_method and node.name == "__init__" and owner is not None:
            set_here = {name: value for name, value in inner.known.items() if name.startswith("self.") and value}
            self.classes[-1] = owner._replace(init=inner.signature, attributes=set_here)
        return False

    def _define(self, name: str, qualname: str, scope: Scope) -> None:
        if scope.signature is not None:
            scope.inner[name] = qualname

    def _class_of(self, scope: Scope) -> ClassFound | None:
        """The class whose method or body this is, where it may be an error's."""
        last = self.classes[-1] if self.classes else None
        return last if last is not None and last.name == f"{self.names.module}.{scope.owner}" else None

    def _class(self, node: ast.ClassDef, scope: Scope) -> bool:
        qualname = _inside(scope.qualname, node.name)
        bases = tuple(base for one in node.bases if (base := self.names.dotted(one, scope.owner, scope.inner)))
        of_an_error = any(one.name in bases for one in self.classes)
        if bases:
            self.bases[f"{self.names.module}.{qualname}"] = bases
        named = self._holds_errors or _ERROR_NAMES.search(" ".join((node.name, *bases)))
        if bases and (of_an_error or named):
            self.classes.append(ClassFound(f"{self.names.module}.{qualname}", bases))
        self._define(node.name, qualname, scope)
        self.block(
            node.body, Scope(qualname, qualname, dict(scope.known), constants=self.constants, inner=dict(scope.inner))
        )
        return False

    def _super_init(self, call: ast.Call, scope: Scope) -> None:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr != "__init__":
            return
        owner = self._class_of(scope) if scope.qualname.endswith(".__init__") else None
        if owner is None or owner.passed_on is not None:
            return
        if isinstance(function.value, ast.Call):
            given = arguments_of(call, scope)
        else:
            # Base.__init__(self, message)
            given = arguments_of(ast.Call(call.func, call.args[1:], call.keywords), scope)
        rest = any(isinstance(arg, ast.Starred) for arg in call.args)
        self.classes[-1] = owner._replace(passed_on=given, passes_rest=rest)


# Of the class, not of its objects: those would be cycles, and a scan runs without the collector.
_STATEMENTS: Mapping[type[ast.stmt], Callable[[_Walker, Any, Scope], bool]] = {
    ast.If: _Walker._if,
    ast.Raise: _Walker._raise,
    ast.Assert: _Walker._assert,
    ast.Expr: _Walker._expression,
    ast.Assign: _Walker._assign,
    ast.AnnAssign: _Walker._annotated,
    ast.AugAssign: _Walker._augmented,
    ast.Return: _Walker._return,
    ast.For: _Walker._repeat,
    ast.AsyncFor: _Walker._repeat,
    ast.While: _Walker._repeat,
    ast.With: _Walker._with,
    ast.AsyncWith: _Walker._with,
    ast.Try: _Walker._try,
    ast.TryStar: _Walker._try,
    ast.Match: _Walker._match,
    ast.FunctionDef: _Walker._function,
    ast.AsyncFunctionDef: _Walker._function,
    ast.ClassDef: _Walker._class,
    ast.Import: _Walker._import,
    ast.ImportFrom: _Walker._import,
    ast.Continue: _Walker._leave,
    ast.Break: _Walker._leave,
}


def _inside(outer: str, name: str) -> str:
    return (name if outer == "<module>" else f"{outer}.{name}")[:NAME_LENGTH]


def _said(found: Found) -> int:
    """Characters of the templates of one error."""
    given = sum(len(text) for texts in found.arguments.values() for text in texts)
    return given + len(found.template or "") + len(found.made_by or "")
