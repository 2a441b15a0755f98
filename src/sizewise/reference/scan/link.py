"""Joins the modules of a package: which class is meant, and what its message says in the end."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from . import found as kinds
from .found import PARAMETER, Arguments, ClassFound, Found, Module, Signature
from .makers import Makers
from .templates import ANY, INHERITED, LISTED, Texts, concatenated, filled, literal_length, quoted, shortened, tokens

DEPTH = 12
"""Names followed from module to module, bases and helpers within helpers."""
_CALLS = (kinds.CALL, kinds.PASSED, kinds.RAISE)
STEPS = 400
"""Lines of helpers looked at for one call of a helper."""
ROOM, SHORT = 50_000_000, 200
"""Characters of all templates of a package together, and how long one can be behind those."""
_GRAPH_BREAK_HELPERS = "unimplemented"
"""How the names of torch's functions begin that raise a graph break."""
_SAYS = 10
"""Letters of a text that is taken for a message, where nothing else shows that it is one."""
_MESSAGE_NAMES = ("message", "msg", "detail", "reason", "error", "description")


class Linked(NamedTuple):
    """A place that makes an error, with its class in full and its message. ``error_class`` is None where only a
    run could tell it.
    """

    module: str
    path: str
    kind: str
    error_class: str | None
    template: str
    qualname: str
    line: int
    condition: str
    extra: Mapping[str, Any]


def linked(modules: Sequence[Module], graph_breaks: Mapping[str, str]) -> Iterator[Linked]:
    """Every error of a package, in the order of the modules. ``graph_breaks``: name of a graph break -> its id."""
    package = _Package(modules, graph_breaks)
    room = ROOM
    for module in modules:
        seen: set[tuple[Any, ...]] = set()
        for found in module.found:
            for one in package.resolve(module, found):
                key = (one.kind, one.error_class, one.template, one.line)
                if key not in seen:
                    seen.add(key)
                    room -= len(one.template)
                    yield one if room > 0 else one._replace(template=shortened(one.template, SHORT))


class _Package:
    def __init__(self, modules: Sequence[Module], graph_breaks: Mapping[str, str]) -> None:
        self._modules = {module.name: module for module in modules}
        self._classes: dict[str, ClassFound] = {}
        self._raisers: dict[str, list[Found]] = {}
        self._functions: dict[str, Signature] = {}
        self._graph_breaks = graph_breaks
        for module in modules:
            self._classes.update((found.name, found) for found in module.classes)
            self._functions.update(module.functions)
        self._makers = Makers(modules, self.follow, _filled_all, lambda maker, given: _bound(maker.signature, given))
        self._whole_classes()
        for module in modules:
            for found in module.found:
                function = f"{module.name}.{found.qualname}"
                if function in self._functions:
                    given = self._makers.arguments(module, found.qualname, found.arguments)
                    self._raisers.setdefault(function, []).append(found._replace(arguments=given))
        made_by = {found.made_by for module in modules for found in module.found if found.kind == kinds.RAISE}
        self._factories = {via for name in made_by if (via := self._raiser(name)) is not None}

    def _whole_classes(self) -> None:
        """Fill in what methods say of their classes' messages."""
        home = {found.name: module for module in self._modules.values() for found in module.classes}
        for name, found in self._classes.items():
            module = home[name]
            inside = f"{name.removeprefix(module.name + '.')}.__init__"
            passed = found.passed_on
            self._classes[name] = found._replace(
                passed_on=passed and self._makers.arguments(module, inside, passed),
                attributes={
                    key: self._makers.expanded(module, inside, texts) for key, texts in found.attributes.items()
                },
                shown=self._makers.expanded(module, inside, found.shown),
            )

    def _bases(self, name: str) -> Sequence[str]:
        found = self._classes.get(name)
        return found.bases if found is not None else ()

    def resolve(self, module: Module, found: Found) -> Iterator[Linked]:
        """The errors of one place."""
        if found.kind == kinds.GRAPH_BREAK:
            yield self._graph_break(module, found)
            return
        if found.qualname.rpartition(".")[2].startswith(_GRAPH_BREAK_HELPERS):
            # It says what its callers give it, in a form that all of them share.
            yield from self._resolve(module, found)
            return
        found = found._replace(arguments=self._makers.arguments(module, found.qualname, found.arguments))
        if found.template is None:
            yield from self._resolve(module, found)
            return
        for text in self._makers.expanded(module, found.qualname, (found.template,)):
            yield from self._resolve(module, found._replace(template=text))

    def _resolve(self, module: Module, found: Found) -> Iterator[Linked]:
        if found.kind == kinds.HANDED and literal_length(found.template or "") < _SAYS:
            return
        if found.kind == kinds.RETURN:
            # What a factory makes is told of where it is called, if that is known.
            if f"{module.name}.{found.qualname}" in self._factories or not self.is_error(found.made_by):
                return
            found = found._replace(kind=kinds.RAISE)
        via = self._raiser(found.made_by) if found.kind in _CALLS else None
        if found.kind == kinds.PASSED and via is not None and not self._raises(via):
            return
        if via is not None:
            yield from self._through(module, found, via)
            return
        if found.kind in (kinds.CALL, kinds.PASSED):
            return
        error_class, texts = self._class_and_texts(found)
        base = self._builtin_base(error_class)
        extra = {**found.extra, "base": base} if base is not None else found.extra
        for text in _told(texts):
            yield _one(module, found, found.kind, error_class, text, extra)

    def _class_and_texts(self, found: Found) -> tuple[str | None, Texts]:
        name = found.made_by
        error_class = None if name is None or name.startswith(PARAMETER) else self.class_name(name)
        if found.template is not None:
            return error_class, (found.template,)
        if error_class is None:
            return None, _plain_message(found.arguments)
        return error_class, self.message(error_class, found.arguments)

    # -- names

    def follow(self, name: str) -> str:
        """Where a name is defined: through what modules import from each other."""
        for _ in range(DEPTH):
            if name in self._classes or name in self._functions or name in self._makers:
                return name
            moved = self._step(name)
            if moved is None or moved == name:
                return name
            name = moved
        return name

    def _step(self, name: str) -> str | None:
        head, _, rest = name.rpartition(".")
        while head:
            module = self._modules.get(head)
            if module is not None:
                first, _, more = rest.partition(".")
                target = module.imports.get(first)
                if target is not None:
                    return f"{target}.{more}" if more else target
                return self._starred(module, rest)
            head, _, last = head.rpartition(".")
            rest = f"{last}.{rest}"
        return None

    def _starred(self, module: Module, rest: str) -> str | None:
        for star in module.stars:
            name = f"{star}.{rest}"
            if name in self._classes or name in self._functions or name in self._makers:
                return name
        return None

    def class_name(self, name: str) -> str | None:
        """The full name of a class as a traceback shows it, as far as the sources tell; None for what is no class."""
        name = self.follow(name)
        if name in self._classes:
            return name
        last = name.rpartition(".")[2]
        if not last.lstrip("_")[:1].isupper():
            return _error_aliases().get(name)
        if name.rpartition(".")[0] in self._modules:
            # The module has no such class: made at run time, or bound by something else.
            return last
        return name.removeprefix("builtins.")

    def is_error(self, name: str | None) -> bool:
        """Whether a class is an exception, by its bases; one of another package by its name."""
        for _ in range(DEPTH):
            if name is None or name.startswith(PARAMETER):
                return False
            name = self.follow(name)
            known = self._classes.get(name)
            if known is None:
                builtin = getattr(builtins, name, None)
                is_builtin = isinstance(builtin, type) and issubclass(builtin, BaseException)
                return is_builtin or name.endswith(("Error", "Exception", "Warning"))
            name = known.bases[0]
        return False

    def _builtin_base(self, name: str | None) -> str | None:
        """The built-in class that a class of the package is a kind of: it may have been raised as that before."""
        waiting = list(self._bases(name or ""))
        for _ in range(DEPTH):
            if not waiting:
                break
            base = self.follow(waiting.pop(0))
            if isinstance(getattr(builtins, base, None), type) and base not in ("Exception", "BaseException", "object"):
                return base
            waiting += self._bases(base)
        return None

    # -- messages

    def message(self, error_class: str, arguments: Arguments, depth: int = 0) -> Texts:
        """The messages of ``error_class(arguments)``."""
        known = self._classes.get(error_class)
        if known is None or depth > DEPTH:
            return _builtin_message(error_class, arguments)
        values = _bound(known.init, arguments) if known.init is not None else {}
        if known.shown:
            own = {name: texts[0] for name, texts in known.attributes.items()}
            shown = [filled(text, own) for text in known.shown]
            if any(INHERITED in text for text in shown):
                values = {**values, INHERITED: self._inherited_message(known, arguments, values, depth)}
            return _filled_all(shown, values)
        return self._inherited_message(known, arguments, values, depth)

    def _inherited_message(
        self, known: ClassFound, arguments: Arguments, values: Mapping[str, Texts], depth: int
    ) -> Texts:
        if known.init is None or known.passed_on is None:
            return self.message(self._base(known), arguments, depth + 1)
        passed = _passed(known.passed_on, known.init, arguments, values)
        if known.passes_rest:
            first, own = known.init.positional, len(passed.positional)
            bare = passed.bare | {own + place - first for place in arguments.bare if place >= first}
            passed = Arguments((*passed.positional, *arguments.positional[first:]), passed.named, frozenset(bare))
        return self.message(self._base(known), passed, depth + 1)

    def _base(self, known: ClassFound) -> str:
        return self.follow(known.bases[0]) if known.bases else "Exception"

    # -- helpers that raise what they are given

    def _raiser(self, name: str | None) -> str | None:
        if name is None or name.startswith(PARAMETER):
            return None
        found = self.follow(name)
        if found in self._classes:
            return None
        if found in self._raisers:
            return found
        return self._inherited(found)

    def _raises(self, via: str) -> bool:
        """Whether a function raises, and does not return, what it makes."""
        return any(found.kind in (kinds.RAISE, kinds.CHECK, kinds.CALL) for found in self._raisers[via])

    def _inherited(self, name: str) -> str | None:
        owner, _, method = name.rpartition(".")
        for _ in range(DEPTH):
            known = self._classes.get(owner)
            if known is None or not known.bases:
                return None
            owner = self.follow(known.bases[0])
            if f"{owner}.{method}" in self._raisers:
                return f"{owner}.{method}"
        return None

    def _through(self, module: Module, found: Found, via: str) -> Iterator[Linked]:
        is_check = found.kind != kinds.RAISE and "check" in via.rpartition(".")[2].lower()
        kind = kinds.CHECK if is_check else kinds.RAISE
        made = list(self._made(via, found.arguments, 0, iter(range(STEPS))))
        told = [one for one in made if found.kind == kinds.RAISE or one[2]]
        for error_class, text, _ in told:
            yield _one(module, found, kind, error_class, text, {**found.extra, "via": via})

    def _made(
        self, via: str, given: Arguments, depth: int, steps: Iterator[int]
    ) -> Iterator[tuple[str | None, str, bool]]:
        """(class, message, whether the message has something of ``given``) of what a helper makes.

        ``steps``: one for each line that may be looked at; helpers call helpers, which multiplies.
        """
        values = _bound(self._functions[via], given)
        # The lines first: a step is taken for each of them.
        for found, _ in zip(self._raisers[via], steps, strict=False):
            if found.kind in (kinds.LOG, kinds.WARN, kinds.GRAPH_BREAK, kinds.ASSERT):
                continue
            inner = self._raiser(found.made_by) if found.kind in _CALLS else None
            if inner is not None:
                if depth < 3 and inner != via:
                    passed = _passed(found.arguments, self._functions[via], given, values)
                    yield from self._made(inner, passed, depth + 1, steps)
                continue
            if found.kind in (kinds.CALL, kinds.PASSED):
                continue
            error_class, texts = self._class_and_texts(found)
            if found.made_by is not None and found.made_by.startswith(PARAMETER):
                error_class = _class_given(found.made_by.removeprefix(PARAMETER), values)
            for text in _told(texts):
                for one in _filled_all((text,), values):
                    yield error_class, one, literal_length(one) > literal_length(text)

    # -- graph breaks

    def _graph_break(self, module: Module, found: Found) -> Linked:
        named = found.arguments.named
        gb_type, explanation = named["gb_type"][0], named["explanation"][0]
        hints = [hint for text in named.get("hints", ()) for hint in self._hints(module, text)]
        lines = [gb_type, f"  Explanation: {_indented(explanation)}", *(f"  Hint: {_indented(hint)}" for hint in hints)]
        # The context is for developers and never the same twice.
        template = "\n".join(lines) + "\n\n  Developer debug context: {context}"
        extra = {
            **found.extra,
            "gb_type": _plain(gb_type),
            "explanation": _plain(explanation),
            "hints": [_plain(hint) for hint in hints],
            "context": _plain(named.get("context", ("",))[0]),
        }
        gbid = self._graph_breaks.get(extra["gb_type"])
        if gbid:
            extra["gbid"] = gbid
        return _one(module, found, kinds.GRAPH_BREAK, found.made_by, template, extra)

    def _hints(self, module: Module, text: str) -> Texts:
        if not text.startswith("*"):
            return (text,)
        head, _, rest = text[1:].partition(".")
        name = module.imports.get(head, f"{module.name}.{head}") + (f".{rest}" if rest else "")
        home, _, constant = name.rpartition(".")
        owner = self._modules.get(home)
        return owner.constants.get(f"*{constant}", (ANY,)) if owner is not None else (ANY,)


def _one(
    module: Module, found: Found, kind: str, error_class: str | None, text: str, extra: Mapping[str, Any]
) -> Linked:
    return Linked(module.name, module.path, kind, error_class, text, found.qualname, found.line, found.condition, extra)


def _told(texts: Texts) -> Iterable[str]:
    """Without those of several templates that say nothing."""
    return [text for text in texts if literal_length(text)] or texts[:1]


def _indented(text: str) -> str:
    return text.strip("\n").replace("\n", "\n    ") if "\n" in text else text


def _plain(template: str) -> str:
    """A template for reading: literal braces single."""
    return "".join("{" + text + "}" if is_hole else text for is_hole, text in tokens(template))


def _bound(signature: Signature | None, arguments: Arguments) -> dict[str, Texts]:
    """Parameter -> what a call gives for it."""
    if signature is None:
        return {}
    values = dict(signature.defaults)
    values.update(zip(signature.names[: signature.positional], arguments.positional, strict=False))
    values.update((name, texts) for name, texts in arguments.named.items() if name in signature.names)
    return values


def _passed(passed: Arguments, signature: Signature, given: Arguments, values: Mapping[str, Texts]) -> Arguments:
    """What a function with these parameters, called with ``given``, passes on."""
    bare = {"{" + signature.names[place] + "}" for place in given.bare if place < signature.positional}
    through = (place for place, texts in enumerate(passed.positional) if texts and texts[0] in bare)
    return Arguments(
        tuple(_filled_all(texts, values) for texts in passed.positional),
        {name: _filled_all(texts, values) for name, texts in passed.named.items()},
        passed.bare.union(through),
    )


def _filled_all(texts: Iterable[str], values: Mapping[str, Texts]) -> Texts:
    """Templates with their holes filled, in every way there is, up to `LISTED`."""
    made: list[str] = []
    several = {name: options for name, options in values.items() if len(options) > 1}
    single = {name: options[0] for name, options in values.items() if options}
    for text in texts:
        used = [name for name in several if "{" + name in text or f"({name}" in text]
        for choice in product(*(several[name] for name in used[:1])):
            made.append(filled(text, {**single, **dict(zip(used, choice, strict=False))}))
    return tuple(dict.fromkeys(made))[:LISTED]


def _plain_message(arguments: Arguments) -> Texts:
    """The message of a class that is not known: what its call gives that looks most like one."""
    named = [arguments.named[name] for name in _MESSAGE_NAMES if name in arguments.named]
    candidates = [*arguments.positional, *named]
    for texts in candidates:
        if any(literal_length(text) >= 8 for text in texts):
            return texts
    return candidates[0] if candidates else ("",)


def _builtin_message(error_class: str, arguments: Arguments) -> Texts:
    """What ``str(error)`` gives for a class without an ``__init__`` of its own."""
    given = arguments.positional
    builtin = getattr(builtins, error_class, None)
    if not isinstance(builtin, type):
        # Of another package: what it does with its arguments is not known.
        return _plain_message(arguments)
    if not given:
        return ("",)
    if len(given) == 1:
        return given[0]
    if issubclass(builtin, BaseExceptionGroup):
        return tuple(f"{text} ({ANY} sub-exception{ANY})" for text in given[0])
    if issubclass(builtin, SyntaxError):
        return tuple(f"{text}{ANY}" for text in given[0])  # file and line, where they are given
    if len(given) >= 4 and issubclass(builtin, UnicodeError) and builtin is not UnicodeError:
        return tuple(f"{ANY}: {text}" for text in given[-1])
    reprs = [texts[0] if place in arguments.bare else quoted(texts[0]) for place, texts in enumerate(given)]
    if issubclass(builtin, OSError) and len(given) <= 5:
        files = "" if len(given) == 2 else f": {reprs[2]}{ANY if len(given) == 5 else ''}"
        return (f"[Errno {given[0][0]}] {given[1][0]}{files}",)
    return (concatenated(["(", reprs[0], *(f", {one}" for one in reprs[1:]), ")"]),)


def _class_given(parameter: str, values: Mapping[str, Texts]) -> str | None:
    """The class a call gives to a helper, where it is a built-in one: others would need the caller's imports."""
    name = values.get(parameter, ("",))[0].strip("{}")
    return name if isinstance(getattr(builtins, name, None), type) else None


def _error_aliases() -> Mapping[str, str]:
    """Exception classes in lower case, as the standard library has a few."""
    return {"socket.timeout": "TimeoutError", "socket.error": "OSError", "select.error": "OSError"}
