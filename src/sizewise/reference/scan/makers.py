"""Messages that another function returns, or that another module has as a constant: what stands in a hole is filled."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product

from .calls import arguments_of
from .found import Arguments, Module, TextMaker
from .lists import WORDS
from .templates import ANY, LISTED, Texts, concatenated, escaped, literal_length, tokens

DEPTH = 3
"""Functions whose texts come from functions."""
HOLES = 16
"""So many holes of a template are looked into, the first ones."""
ENOUGH = 20
"""A template that says as much of its own is left as it is."""
_CALL = re.compile(r"(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,6})\((?P<given>.*)\)")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,6}")

Fill = Callable[[Texts, Mapping[str, Texts]], Texts]
Bind = Callable[[TextMaker, Arguments], Mapping[str, Texts]]


class _Nothing:
    """No variable is known where a hole's source is read."""

    def get(self, name: str, /) -> Texts | None:
        return None


class Makers:
    """The functions that return texts, and the constants, of a package.

    ``follow`` gives the place where a dotted name is defined, ``fill`` puts values into templates, ``bind`` pairs a
    function's parameters with what a call gives.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        follow: Callable[[str], str],
        fill: Fill,
        bind: Bind,
    ) -> None:
        self._modules = {module.name: module for module in modules}
        self._makers = {
            f"{module.name}.{name}": (module, name, maker) for module in modules for name, maker in module.texts.items()
        }
        self._classes = {name: bases for module in modules for name, bases in module.bases.items()}
        self._follow, self._fill, self._bind = follow, fill, bind
        self._expansions: dict[tuple[str, str, int], Texts] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._makers

    def expanded(self, module: Module, qualname: str, texts: Texts, depth: int = 0) -> Texts:
        """Templates without the holes of functions that return texts; ``qualname``: the function they stand in."""
        if not any("{" in text for text in texts):
            return texts
        return tuple(dict.fromkeys(one for text in texts for one in self._expanded(module, qualname, text, depth)))

    def arguments(self, module: Module, qualname: str, given: Arguments) -> Arguments:
        """The same for what a call is given."""
        return Arguments(
            tuple(self.expanded(module, qualname, texts) for texts in given.positional),
            {name: self.expanded(module, qualname, texts) for name, texts in given.named.items()},
            given.bare,
        )

    def _expanded(self, module: Module, qualname: str, text: str, depth: int) -> Iterator[str]:
        if "{" not in text or literal_length(text) >= ENOUGH or depth > DEPTH:
            yield text
            return
        parts: list[Texts] = []
        changed = False
        looked = 0
        for is_hole, part in tokens(text):
            looked += is_hole
            made = self._of_hole(module, qualname, part, depth) if is_hole and looked <= HOLES else ()
            changed = changed or bool(made)
            parts.append(made or (("{" + part + "}",) if is_hole else (escaped(part),)))
        yield from (concatenated(one) for one in islice(product(*parts), LISTED)) if changed else (text,)

    def _of_hole(self, module: Module, qualname: str, source: str, depth: int) -> Texts:
        called = _CALL.fullmatch(source.removesuffix("!s"))
        if called is None:
            return self._constant(module, source) if _NAME.fullmatch(source) else ()
        found = self._maker(module, qualname, called["name"])
        if found is None:
            return ()
        home, name, maker = found
        key = (home.name, name, depth)
        if key not in self._expansions:
            self._expansions[key] = self.expanded(home, name, maker.texts, depth + 1)
        texts = self._expansions[key]
        return self._fill(texts, self._bind(maker, _given(called["given"])))

    def _constant(self, module: Module, name: str) -> Texts:
        first, _, rest = name.partition(".")
        target = module.imports.get(first)
        if target is None:
            return ()
        home, _, last = self._follow(f"{target}.{rest}" if rest else target).rpartition(".")
        texts = self._modules[home].constants.get(last, ()) if home in self._modules else ()
        return texts if all(literal_length(text) >= WORDS for text in texts) else ()

    def _maker(self, module: Module, qualname: str, name: str) -> tuple[Module, str, TextMaker] | None:
        first, _, rest = name.partition(".")
        if first in ("self", "cls"):
            return self._method(module, qualname, rest) if rest and "." not in rest else None
        for outer in (*_outer(qualname), ""):
            found = self._makers.get(".".join(part for part in (module.name, outer, name) if part))
            # A method is called by its name alone nowhere.
            if found is not None and (rest or not found[2].is_method):
                return found
        target = module.imports.get(first)
        if target is None:
            return None
        return self._makers.get(self._follow(f"{target}.{rest}" if rest else target))

    def _method(self, module: Module, qualname: str, name: str) -> tuple[Module, str, TextMaker] | None:
        for outer in _outer(qualname)[1:]:
            owner = f"{module.name}.{outer}"
            for _ in range(DEPTH):
                if found := self._makers.get(f"{owner}.{name}"):
                    return found if found[2].is_method else None
                if owner not in self._classes:
                    break
                owner = self._defined(self._classes[owner][0])
        return None

    def _defined(self, name: str) -> str:
        return name if name in self._classes else self._follow(name)


def _outer(qualname: str) -> list[str]:
    """A function and what is around it, the innermost first."""
    parts = [] if qualname == "<module>" else qualname.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


def _given(source: str) -> Arguments:
    """The arguments of a call as a hole shows it; what was left out of the hole is not known."""
    try:
        call = ast.parse(f"f({source})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return Arguments()
    if not isinstance(call, ast.Call) or source == "...":
        return Arguments()
    given = arguments_of(call, _Nothing())
    cut = (str(...),)
    return Arguments(
        tuple((ANY,) if texts == cut else texts for texts in given.positional),
        {name: (ANY,) if texts == cut else texts for name, texts in given.named.items()},
        given.bare,
    )
