"""The static scan of sources for errors: the templates of messages, the classes and helpers behind them."""

from __future__ import annotations

import re
import textwrap

import pytest

from sizewise.reference.scan.index import pattern_for
from sizewise.reference.scan.templates import filled, literal_length

from .scan_support import found_in, templates

# -- templates


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ('"plain"', "plain"),
        ('"one " "text of " "three"', "one text of three"),
        ('f"size {x.shape[0]} of {name!r}"', "size {x.shape[0]} of {name!r}"),
        ('f"{x:.2f} s and {x:{width}}"', "{x:.2f} s and {x}"),
        ('f"{x=}"', "x={x!r}"),
        ('"braces {} {x}"', "braces {{}} {{x}}"),
        ('f"braces {{}} {x}"', "braces {{}} {x}"),
        ('"%s of %d is %.1f%%" % (a, len(b), c)', "{a} of {len(b)} is {c}%"),
        ('"only %r" % x', "only {x!r}"),
        ('"by %(name)s and %(size)d" % {"name": n.name, "size": s}', "by {n.name} and {s}"),
        ('"two %s %s" % pair', "two {...} {...}"),
        ('"{} then {!r} then {:>8}".format(a, b, c.d)', "{a} then {b!r} then {c.d}"),
        ('"{1} {0} {name} {0.shape} {{x}}".format(a, b, name=n)', "{b} {a} {n} {a.shape} {{x}}"),
        ('"a " + str(x) + " b " + f"{y}"', "a {str(x)} b {y}"),
        ('"no " + ("more" if x else "less")', "no more|no less"),
        ('f"{prefix}: it fails"', "It: it fails"),
        ('PREFIX + " at the top"', "Module at the top"),
        ('"\\n".join(["first", f"second {x}"])', "first\nsecond {x}"),
        ('textwrap.dedent("""\\\n    one\n      two\n    """).strip()', "one\n  two"),
        ("f\"{', '.join(f'{a}' for a in b)} end\"", "{', '.join((... for a in b))} end"),
        ("f\"{ {'a': 1}[x] } end\"", "{...[x]} end"),
        ('f"{(lambda: 1)()} end"', "{(lambda: 1)()} end"),
        ('"-" * 5 + "cut"', "-----cut"),
        ('x.message or "nothing was said"', "{x.message}|nothing was said"),
        ("x", "{x}"),
        ("3", "3"),
        ('("two", x)', "{('two', x)}"),
        ('"two", x', "('two', {x!r})"),
    ],
)
def test_a_message_becomes_a_template(message: str, template: str) -> None:
    source = f"PREFIX = 'Module'\ndef f(x):\n    prefix = 'It'\n    raise ValueError({message})\n"
    expected = [text for text in template.split("|") if literal_length(text)] or [template]
    assert templates(source) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('msg = "set before"\nraise ValueError(msg)', ["set before"]),
        ('msg = "one"\nmsg += f" and {x}"\nraise ValueError(msg)', ["one and {x}"]),
        ('if x:\n    msg = "one"\nelse:\n    msg = "two"\nraise ValueError(msg)', ["one", "two"]),
        ('msg = "base"\nif x:\n    msg += " more"\nraise ValueError(msg)', ["base more", "base"]),
        ('if x:\n    raise ValueError("first")\nmsg = "second"\nraise ValueError(msg)', ["first", "second"]),
        ('msg = "all:"\nfor i in x:\n    msg += str(i)\nraise ValueError(msg)', ["all:{...}"]),
        ('msg = "start"\nfor i in x:\n    msg += "!"\n    raise ValueError(msg)', ["start{...}!"]),
        ('msg = "is text"\nmsg = make(x)\nraise ValueError(msg)', ["{msg}"]),
        ('a, msg = x\nraise ValueError(msg + " end")', ["{msg} end"]),
        ('error = TypeError(f"kept {x}")\nlog(error)\nraise error', ["kept {x}"]),
        ('raise ValueError("with").with_traceback(x)', ["with"]),
        ('raise TypeError("one") if x else ValueError("two")', ["one", "two"]),
        ('try:\n    x()\nexcept KeyError as e:\n    raise e', []),
        ('try:\n    x()\nexcept KeyError:\n    msg = "no"\n    raise\nelse:\n    msg = "fine"\nraise V(msg)', ["fine"]),
        ('with x:\n    raise ValueError("inside")\nraise ValueError("behind")', ["inside", "behind"]),
        ('match x:\n    case [a]:\n        msg = "list"\n    case _:\n        msg = "other"\nraise V("a " + msg)',
         ["a {msg}", "a list", "a other"]),
    ],
)  # fmt: skip
def test_variables_are_followed_through_statements(body: str, expected: list[str]) -> None:
    assert templates("def f(x):\n" + textwrap.indent(body, "    ")) == expected


def test_many_branches_become_their_common_start() -> None:
    lines = "".join(f"    if x == {number}:\n        msg += ' word{number}'\n" for number in range(5))
    found = templates(f"def f(x):\n    msg = 'the start'\n{lines}    raise ValueError(msg)")
    assert "the start{...}" in found and len(found) <= 4 and all(text.startswith("the start") for text in found)


def test_holes_are_filled_with_templates() -> None:
    assert (
        filled("{a} and {b!r} {{a}} {c.d}", {"a": "{x!r}", "b": "it's", "c": "no"}) == '{x!r} and "it\'s" {{a}} {c.d}'
    )


def test_patterns_match_what_python_shows() -> None:
    message = str(KeyError("no such\nkey: it's 'x'"))
    assert re.fullmatch(pattern_for("no such\nkey: it's {name!r}", "raise", "KeyError"), message)
    assert not re.fullmatch(pattern_for("no such\nkey", "raise", "KeyError"), message)
    both = str(KeyError('can\'t have "." here'))
    assert re.fullmatch(pattern_for('can\'t have "." {where}', "raise", "KeyError"), both)
    broken = "gb\n  Higher Order Operator: cond\n  Explanation: because 1\n\n  Developer debug context: x y\n\nmore"
    template = "gb\n  Explanation: because {n}\n\n  Developer debug context: {context}"
    assert re.fullmatch(pattern_for(template, "graph-break", None), broken)


# -- classes, helpers, factories


def test_classes_have_their_full_names() -> None:
    errors = "class Bad(ValueError): pass\nclass Worse(Bad): pass\n"
    user = """
        import p.api
        import p.errors as e
        from . import errors
        from .api import Bad, Worse as W
        from os import PathLike
        from elsewhere import Other
        def f(x):
            raise Bad("1 {x}")
        class Mine(Exception): pass
        class C:
            class Inner(RuntimeError): pass
            def m(self):
                raise self.Inner("2")
                raise W("never")
            def n(self): raise W("3")
            def o(self): raise errors.Worse("4")
            def p(self): raise e.Bad("5")
            def q(self): raise p.api.Bad("6")
            def r(self): raise Mine("7")
            def s(self): raise Other("8")
            def t(self): raise Missing("9")
            def u(self): raise type(self)("10 letters at least")
            def v(self): raise NotImplementedError
    """
    api = "from .errors import *\nfrom .errors import Worse\n"
    seen = {one.template: one.error_class for one in found_in(p="", errors=errors, api=api, user=user)}
    assert seen == {
        "1 {{x}}": "p.errors.Bad", "2": "p.user.C.Inner", "3": "p.errors.Worse", "4": "p.errors.Worse",
        "5": "p.errors.Bad", "6": "p.errors.Bad", "7": "p.user.Mine", "8": "elsewhere.Other", "9": "Missing",
        "10 letters at least": None, "": "NotImplementedError",
    }  # fmt: skip


def test_classes_that_make_their_own_message() -> None:
    source = """
        class Passes(RuntimeError):
            def __init__(self, name, size=3):
                super().__init__(f"the {name!r} has size {size}")
        class Inherits(Passes): pass
        class Keeps(Exception):
            def __init__(self, what):
                self.message = "kept " + what
                super().__init__(self.message)
        class Shows(Exception):
            def __init__(self, size):
                self.size = size
            def __str__(self):
                return f"shown {self.size}"
        class Adds(ValueError):
            def __init__(self, message, *, name=None):
                super().__init__(message)
                self.name = name
            def __str__(self):
                base = super().__str__()
                return f"{base} ({self.name})" if self.name else base
        class Old(Exception):
            def __init__(self, msg):
                Exception.__init__(self, "old: %s" % msg)
        class Plain(Exception):
            def __init__(self, *args, **more):
                super().__init__(*args)
        class Second(Exception):
            def __init__(self, expr, *args):
                super().__init__(*args)
                self.expr = expr
        def f(x):
            if x == 1: raise Passes("abc", size=x)
            if x == 2: raise Inherits(x.name)
            if x == 3: raise Keeps(f"{x} of it")
            if x == 4: raise Shows(x + 1)
            if x == 5: raise Adds("said", name=x)
            if x == 6: raise Old("text")
            if x == 7: raise Plain("as it is")
            if x == 8: raise Second(x, "the second")
    """
    assert templates(source) == [
        "the 'abc' has size {x}",
        "the {x.name!r} has size 3",
        "kept {x} of it",
        "shown {x + 1}",
        "said ({x})",
        "said",
        "old: text",
        "as it is",
        "the second",
    ]


def test_helpers_and_factories_are_told_where_they_are_called() -> None:
    tools = """
        def fail(message):
            raise RuntimeError(message)
        def check(ok, message, kind=ValueError):
            if not ok:
                raise kind(message())
        def make(name, hint=""):
            return TypeError(f"{name} is wrong{hint}")
    """
    user = """
        from .tools import check, fail, make
        class A:
            def _raise_bad(self, text): raise KeyError("bad: " + text)
            def m(self, x):
                if x: fail(f"it failed with {x}")
                check(x > 2, lambda: f"{x} is too small")
                check(x > 2, lambda: f"{x} is too large", TypeError)
                self._raise_bad("a helper's own words")
                raise make("this", f" at {x}")
    """
    seen = [(one.kind, one.error_class, one.template, one.qualname) for one in found_in(tools=tools, user=user)]
    assert ("raise", "RuntimeError", "it failed with {x}", "A.m") in seen
    assert ("check", "ValueError", "{x} is too small", "A.m") in seen
    assert ("check", "TypeError", "{x} is too large", "A.m") in seen
    assert ("raise", "TypeError", "this is wrong at {x}", "A.m") in seen
    assert not any("{name} is wrong" in template for _, _, template, _ in seen)


def test_checks_of_torch_and_graph_breaks() -> None:
    hints = 'FUNDAMENTAL = ["It is {fundamental}.", "Second " "part."]\n'
    source = """
        import torch
        from . import hints
        from .exc import unimplemented
        def f(x):
            torch._check(x.dim() == 2, lambda: f"want 2 dims, got {x.dim()}")
            torch._check_value(x, "plain " "text")
            if x.bad:
                unimplemented(gb_type="Bad {thing}", context=f"{x}", explanation=f"Cannot {x.do}\\nat all",
                              hints=["Do not.", *hints.FUNDAMENTAL])
    """
    check, value, broken = found_in(hints=hints, user=source)
    assert check[2:5] == ("check", "RuntimeError", "want 2 dims, got {x.dim()}")
    assert check.condition == "x.dim() == 2" and check.extra["via"] == "torch._check"
    assert value[2:5] == ("check", "ValueError", "plain text")
    assert broken.template == (
        "Bad {{thing}}\n  Explanation: Cannot {x.do}\n    at all\n  Hint: Do not.\n  Hint: It is {{fundamental}}.\n"
        "  Hint: Second part.\n\n  Developer debug context: {context}"
    )
    assert broken.kind == "graph-break" and broken.error_class == "torch._dynamo.exc.Unsupported"
    assert broken.extra["gb_type"] == "Bad {thing}" and broken.condition == "x.bad"
    assert broken.extra["hints"] == ["Do not.", "It is {fundamental}.", "Second part."]


def test_logs_warnings_and_deprecations() -> None:
    source = """
        import logging
        import warnings
        from typing_extensions import deprecated
        logger = logging.getLogger(__name__)
        def f(x):
            logger.warning("low on %s: %d%% left", x.name, x.left)
            logger.info_once(f"using {x}")
            logging.error("bad %r", x)
            self.log.exception("it failed")
            math.log(x)
            warnings.warn("old " + x, FutureWarning, stacklevel=2)
            warnings.warn(f"plain {x}")
            warnings.warn(DeprecationWarning("in a class"))
        @deprecated("f is old", category=FutureWarning)
        def g(): pass
    """
    seen = [(one.kind, one.error_class, one.template, one.extra.get("level")) for one in found_in(mod=source)]
    assert seen == [
        ("log", None, "low on {x.name}: {x.left}% left", "warning"),
        ("log", None, "using {x}", "info"),
        ("log", None, "bad {x!r}", "error"),
        ("log", None, "it failed", "error"),
        ("warn", "FutureWarning", "old {x}", None),
        ("warn", "UserWarning", "plain {x}", None),
        ("warn", "DeprecationWarning", "in a class", None),
        ("warn", "FutureWarning", "f is old", None),
    ]


def test_conditions_asserts_and_causes() -> None:
    source = """
        assert True, "top"
        class C:
            def m(self, é, y):
                assert é == "é", f"é is {é}"
                assert y == {1: 2}
                assert (y ==
                        3)
                if y > 2 and é:
                    try:
                        if not y:
                            raise ValueError("one")
                        elif y == 3:
                            raise ValueError("two")
                        else:
                            raise ValueError("three")
                    except (KeyError, OSError) as e:
                        raise ValueError("four") from e
                def inner():
                    raise ValueError("five", status_code=404)
    """
    seen = {one.template: one for one in found_in(mod=source)}
    assert {name: one.condition for name, one in seen.items()} == {
        "top": "True", "é is {é}": 'é == "é"', "assert y == {{1: 2}}": "y == {1: 2}", "assert y == 3": "y == 3",
        "one": "not y", "two": "y == 3", "three": "not (y == 3)", "four": "y > 2 and é", "five": "",
    }  # fmt: skip
    assert seen["four"].extra == {"from": "e", "handles": "(KeyError, OSError)"}
    assert seen["five"].extra == {"httpStatus": 404}
    assert seen["top"].qualname == "<module>" and seen["five"].qualname == "C.m.inner"
    assert seen["assert y == 3"].kind == "assert" and seen["assert y == 3"].line == 7
