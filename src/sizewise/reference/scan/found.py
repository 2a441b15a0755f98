"""What the scan of one module hands on: small, and ready to be sent between processes.

Names of classes and functions are dotted paths as the module's imports give them; `link` follows them through the
other modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .templates import Texts

RAISE, ASSERT, LOG, WARN, CHECK, GRAPH_BREAK = "raise", "assert", "log", "warn", "check", "graph-break"
HANDED = "handed-on"
"""A message that is made here and given to C++, which raises it later."""
CALL = "call"
"""A call of something that may raise what it is given; `link` knows whether it does."""
PASSED = "passed"
"""A call whose value a function returns: it may make an exception, or raise."""
RETURN = "return"
"""A function that makes an exception and returns it."""
PARAMETER = "parameter "
"""Before the name of the parameter that holds the class to raise."""


class Arguments(NamedTuple):
    """The arguments of a call, each as the templates it can have.

    ``bare``: the places of those that are no texts but numbers, None and the like: `repr` puts no quotes around them.
    """

    positional: tuple[Texts, ...] = ()
    named: Mapping[str, Texts] = {}
    bare: frozenset[int] = frozenset()

    def values(self) -> list[Texts]:
        return [*self.positional, *self.named.values()]


class Signature(NamedTuple):
    """The parameters of a function without ``self``, in order, and the templates of their defaults."""

    names: tuple[str, ...]
    positional: int
    """How many of ``names`` can be given by position."""
    defaults: Mapping[str, Texts]


class Found(NamedTuple):
    """A place that makes an error. ``made_by``: the dotted class, or the function that is called for one."""

    kind: str
    made_by: str | None
    arguments: Arguments
    qualname: str
    line: int
    condition: str = ""
    template: str | None = None
    """The template, where it does not depend on other modules."""
    extra: Mapping[str, Any] = {}


class TextMaker(NamedTuple):
    """A function that returns a text."""

    signature: Signature
    is_method: bool
    texts: Texts


class ClassFound(NamedTuple):
    """What a class says about its message. ``texts`` of attributes have the parameters as holes."""

    name: str
    bases: tuple[str, ...]
    init: Signature | None = None
    passed_on: Arguments | None = None
    """What ``__init__`` gives to ``super().__init__``; None where it does not call it."""
    passes_rest: bool = False
    """Whether it also passes on the positional arguments that have no name (``*args``)."""
    attributes: Mapping[str, Texts] = {}
    """``self.message`` and what else ``__init__`` sets to text."""
    shown: Texts = ()
    """What ``__str__`` returns."""


class Module(NamedTuple):
    """All of one module."""

    name: str
    path: str
    found: list[Found]
    classes: list[ClassFound]
    functions: dict[str, Signature]
    """Functions that raise or return what they are given."""
    imports: dict[str, str]
    """Names it imports from elsewhere: what others import from here may be one of them."""
    stars: list[str]
    constants: dict[str, Texts]
    """Names set to texts at the top of the module, a list of texts among them (one template each)."""
    texts: dict[str, TextMaker]
    """Functions that return texts, by their qualified names."""
    bases: dict[str, tuple[str, ...]]
    """The base classes of every class that has some, by its full name."""
    left_out: int = 0
    """Statements, functions and classes that are not in all this, because they are too deep."""
