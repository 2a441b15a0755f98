"""The static scan of sources for errors, the index it fills, and records made from it."""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from sizewise.cli.errors_index import index as index_command
from sizewise.errors.command import NoPackageThere, UnknownPackage
from sizewise.reference import store as stores
from sizewise.reference.records import record_of
from sizewise.reference.scan import files
from sizewise.reference.scan import index as indexing
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import index, pattern_for, records_of, scan_all
from sizewise.reference.scan.link import Linked, linked
from sizewise.reference.scan.sites import scan
from sizewise.reference.scan.templates import filled, literal_length
from sizewise.reference.store import Distribution, Site, Store, Stored


def found_in(**modules: str) -> list[Linked]:
    """What a package ``p`` of these modules raises; ``a__b`` is p.a.b, ``p`` the package itself."""
    scanned = []
    for name, source in modules.items():
        dotted = "p" if name == "p" else "p." + name.replace("__", ".")
        path = "p/__init__.py" if name == "p" else dotted.replace(".", "/") + ".py"
        scanned.append(scan(textwrap.dedent(source), dotted, path))
    return list(linked(scanned, {}))


def templates(source: str) -> list[str]:
    return [one.template for one in found_in(mod=source)]


def write_package(folder: Path, name: str = "pack", **modules: str) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    for module, source in {"__init__": "", **modules}.items():
        (package / f"{module}.py").write_text(textwrap.dedent(source))
    return package


def fields(record: Stored) -> tuple[str, str | None, str]:
    return record.kind, record.error_class, record.template


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


# -- records


def test_records_join_sites_and_their_ids_do_not_move(tmp_path: Path) -> None:
    one = "def f(x):\n    raise ValueError(f'bad {x}')\ndef g(x):\n    raise ValueError(f'bad {x}')\n    \n"
    two = "def f(y):\n    if y: raise ValueError(f'bad {y}')\n    raise ValueError(f'bad {y}')\n"
    write_package(tmp_path / "old", one=one, two=two)
    write_package(tmp_path / "new", one="\n\n# moved\n" + one, two=two)
    old, new = (records_at(tmp_path / name / "pack") for name in ("old", "new"))
    assert [fields(record) for record in old] == [
        ("raise", "ValueError", "bad {x}"),
        ("raise", "ValueError", "bad {y}"),
    ]
    assert [(site.path, site.line) for record in old for site in record.sites] == [
        ("pack/one.py", 2), ("pack/one.py", 4), ("pack/two.py", 2), ("pack/two.py", 3)
    ]  # fmt: skip
    assert [record.id for record in old] == [record.id for record in new]
    assert new[0].sites[0].line == 5
    assert len({record.id for record in old}) == 2 and old[0].slug == "bad-x" and old[0].literals == 3


def records_at(package: Path) -> list[Stored]:
    sources = find_sources(f"{package}/")
    return records_of(sources, scan_all(sources, workers=0).modules)


def test_what_cannot_be_read_is_skipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_package(
        tmp_path,
        good='raise ValueError("good")\n',
        broken="def f(:\n",
        windows='if x:\r\n    raise ValueError("windows")\r\n',
        deep="x = " + "(" * 500 + ")" * 500,
        sums="x = " + "+".join(["1"] * 9000),
    )
    (package / "latin.py").write_bytes(
        '# -*- coding: latin-1 -*-\nraise ValueError("\xe9t\xe9 %s")\n'.encode("latin-1")
    )
    (package / "bom.py").write_bytes(b'\xef\xbb\xbfraise ValueError("bom")\n')
    (package / "junk.py").write_bytes(b"\xff\xfe\x00raise")
    (package / "null.py").write_bytes(b"x = 1\x00\n")
    (package / "cookie.py").write_bytes(b"# coding: no-such-code\n")
    (package / "huge.py").write_text("x = 1\n" * 4000)
    (package / "gone.py").symlink_to(tmp_path / "nowhere.py")
    monkeypatch.setattr(files, "LARGEST", 23_000)
    sources = find_sources(f"{package}/")
    scanned = scan_all(sources, workers=0)
    assert sum(scanned.skipped.values()) + len(scanned.modules) == scanned.files == 13
    assert scanned.skipped["encoding"] == 2 and scanned.skipped["too large"] == 1
    assert scanned.skipped["unreadable"] == 1
    assert {record.template for record in records_of(sources, scanned.modules)} == {
        "good", "windows", "été %s", "bom"
    }  # fmt: skip


def test_nothing_that_is_read_is_run(tmp_path: Path) -> None:
    harm = "import pathlib\npathlib.Path(__file__).with_name('harm').touch()\nraise SystemExit('run')\n"
    package = write_package(tmp_path, __init__=harm, __main__=harm)
    assert [fields(record) for record in records_at(package)] == [("raise", "SystemExit", "run")]
    assert not list(package.glob("**/harm"))


@pytest.mark.slow
def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    modules = {f"m{number}": f"raise ValueError('number {number}')\n" for number in range(60)}
    sources = find_sources(f"{write_package(tmp_path, **modules)}/")
    seen: list[tuple[int, int]] = []
    alone, together = scan_all(sources, workers=0), scan_all(sources, lambda *done: seen.append(done), workers=2)
    assert alone.modules == together.modules and alone.files == together.files == 61
    assert seen[0] == (0, 61) and seen[-1] == (61, 61)


def test_a_worker_that_dies_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(ThreadPoolExecutor):
        """A pool of which a worker dies when it reads ``one.py``, or any file."""

        killers = ("one.py",)

        def __init__(self, workers: int, mp_context: object) -> None:
            super().__init__(workers)

        def submit(self, function: Any, *args: Any) -> Any:  # type: ignore[override]
            if "" in self.killers or any(job[2].endswith(self.killers) for jobs in args for job in jobs):
                raise BrokenProcessPool
            return super().submit(function, *args)

    modules = {name: f"raise ValueError('{name} is read')" for name in ("one", "two", "six")}
    sources = find_sources(f"{write_package(tmp_path, **modules)}/")
    monkeypatch.setattr(indexing, "ProcessPoolExecutor", Dying)
    scanned = scan_all(sources, workers=2)
    assert scanned.skipped == {"crash": 1} and len(scanned.modules) == 3 and scanned.files == 4
    monkeypatch.setattr(Dying, "killers", ("",))
    scanned = scan_all(sources, workers=2)
    assert scanned.skipped == {} and len(scanned.modules) == scanned.files == 4, "without any process"


# -- distributions


def test_sources_by_path_and_by_name(tmp_path: Path) -> None:
    sha = "0123456789abcdef0123456789abcdef01234567"
    package = write_package(tmp_path, "sub_pack", version=f"git_version = '{sha}'\n__version__ = '9.9'\n")
    assert find_sources(str(package)) == find_sources(str(tmp_path))
    found = find_sources(str(package))
    assert (found.name, found.version, found.packages, found.sha) == ("sub-pack", "9.9", ("sub_pack",), sha)
    info = tmp_path / "sub_pack-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sub-pack\nVersion: 1.2\n")
    (package / "version.py").write_text("commit_id = 'g0123456'\n")
    found = find_sources(str(tmp_path))
    assert (found.version, found.sha) == ("1.2", None)
    torch = find_sources("torch")
    assert torch.packages == ("torch",) and (torch.root / "torch/_dynamo/exc.py").is_file()
    assert torch.sha is None or re.fullmatch(r"[0-9a-f]{40}", torch.sha)


def test_unknown_packages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownPackage, match="tortch"):
        find_sources("tortch")
    with pytest.raises(UnknownPackage):
        find_sources("")
    with pytest.raises(NoPackageThere, match="no such folder"):
        find_sources(str(tmp_path / "nowhere"))
    with pytest.raises(NoPackageThere, match="no package is in it"):
        find_sources(str(tmp_path))
    write_package(tmp_path, "one")
    write_package(tmp_path, "two")
    with pytest.raises(NoPackageThere, match="several packages"):
        find_sources(str(tmp_path))


# -- the store


def sample(name: str = "pack", version: str = "1", texts: Sequence[str] = ("the first", "second {x}")) -> list[Stored]:
    origin = Distribution(name, version, "/root", "", None, "2026-01-01T00:00:00Z")
    return [
        Stored(
            f"{name}-{version}-{number}", "raise", "ValueError", text, re.escape(text), "slug", len(text),
            (Site(f"{name}/mod.py", number, f"C.m{number}", "x", {"via": "v"}), Site(f"{name}/b.py", 1, "f", "")),
            origin,
        )
        for number, text in enumerate(texts)
    ]  # fmt: skip


def test_the_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    records = sample()
    with Store(tmp_path / "new" / "errors.sqlite") as store:
        assert store.replace(records[0].distribution, records) == 2
        assert list(store.all()) == records
        assert store.get([records[1].id, "unknown", records[0].id]) == [records[1], records[0]]
        assert store.search(["FIRST", "nothing"]) == [records[0]]
        assert store.search([]) == [] == store.search(['"', "x"])
        assert store.at("mod.py", "m1") == store.at("pack/mod.py", "C.m1") == [records[1]]
        assert store.at("b.py", "f") == store.at("", "f") == records
        assert store.at("b.py", "m1") == [] == store.at("/d.py", "m1")
        assert store.distributions() == [records[0].distribution]
        newer = sample(version="2", texts=["the third"])
        other = sample("other", texts=["the first"])
        store.replace(other[0].distribution, other)
        store.replace(newer[0].distribution, newer)
        assert sorted(record.id for record in store.all()) == ["other-1-0", "pack-2-0"]
        assert store.search(["first"]) == other and store.search(["second"]) == []


def test_a_search_for_many_words_looks_for_the_rare_ones() -> None:
    common = [f"the tensor is number{number}" for number in range(3500)]
    records = sample(texts=[*common, "the tensor is peculiar"])
    with Store(":memory:") as store:
        store.replace(records[0].distribution, records)
        assert store.search(["the", "tensor", "is", "peculiar"]) == [records[-1]]
        assert len(store.search(["the"], limit=7)) == 7


def test_two_stores_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    one, two = sample("one"), sample("two")
    with Store(path) as writer, Store(path) as reader:
        writer.replace(one[0].distribution, one)
        assert len(list(reader.all())) == 2
        reader.replace(two[0].distribution, two)
        assert len(list(writer.all())) == 4
        assert writer.get(["two-1-0"])[0].distribution.name == "two"


def test_another_files_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(stores.NotAnIndex):
        Store(path)
    report = index(find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/"), path)
    assert path.read_bytes() == before
    assert "something else" in report.note and Path(report.path) != path and Path(report.path).is_file()


def test_a_damaged_index_is_built_anew(tmp_path: Path) -> None:
    path = tmp_path / "errors.sqlite"
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    assert index(sources, path).note == ""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * len(content[4096:])
    path.write_bytes(content)
    report = index(sources, path)
    assert "was damaged" in report.note and report.path == str(path)
    with Store(path) as store:
        assert len(list(store.all())) == 1
    path.write_bytes(b"not a database at all" * 300)
    report = index(sources, path)
    assert report.path != str(path) and path.read_bytes().startswith(b"not a database")


def test_a_locked_or_unwritable_index_is_built_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    sources = find_sources(f"{write_package(tmp_path, m='raise ValueError(1)')}/")
    index(sources, path)
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(indexing, "WAIT", 0.1)
    report = index(sources, path)
    assert "locked" in report.note and report.path != str(path)
    holder.close()
    (tmp_path / "file").write_text("")
    report = index(sources, tmp_path / "file" / "errors.sqlite")
    assert report.note and report.records == 1


def test_an_index_of_an_older_layout_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "errors.sqlite"
    with Store(path) as store:
        store.replace(sample()[0].distribution, sample())
    monkeypatch.setattr(stores, "SCHEMA", stores.SCHEMA + 1)
    with Store(path) as store:
        assert list(store.all()) == [] == store.distributions()


# -- records for people


def test_a_record_has_its_window_of_source(tmp_path: Path) -> None:
    body = "\n".join(f"    x{number} = {number}" for number in range(40))
    package = write_package(tmp_path, "torch", mod=f"def f(x):\n{body}\n    raise ValueError(f'bad {{x}}')\n{body}\n")
    sha = "0123456789abcdef0123456789abcdef01234567"
    (package / "version.py").write_text(f"git_version = {sha!r}\n")
    report = index(find_sources(f"{package}/"), tmp_path / "errors.sqlite")
    with Store(Path(report.path)) as store:
        (stored,) = store.all()
    record = record_of(stored)
    assert (record.lineNumber, record.sourceCodeStart, record.sourceCodeEnd) == (42, 24, 60)
    lines = record.sourceCode.splitlines()
    assert len(lines) == 37 and lines[record.lineNumber - record.sourceCodeStart].strip().startswith("raise")
    assert record.githubUrl == f"https://github.com/pytorch/pytorch/blob/{sha}/torch/mod.py#L24-L60"
    assert re.fullmatch(record.messagePattern, "bad 3\nand more")
    assert (record.repo, record.errorType, record.severity) == ("pytorch/pytorch", "exception", "error")
    assert record.analyzedAt == stored.distribution.indexed_at and record.analyzedSha == sha
    assert record.documentation is None and record.solutions == [] and record.tags == ["torch"]
    (package / "mod.py").write_text("")
    assert record_of(stored).sourceCode == "" or record_of(stored).lineNumber == 42


def test_records_of_logs_warnings_and_bare_errors() -> None:
    origin = Distribution("vllm", "1", "/nowhere", "", None, "2026-01-01T00:00:00Z")
    site = Site("vllm/entrypoints/x.py", 3, "f", "", {"level": "info", "httpStatus": "NOT_FOUND"})
    log = Stored("0" * 16, "log", None, "said {x}", "said", "said-x", 4, (site,), origin)
    record = record_of(log)
    assert (record.errorType, record.severity, record.httpStatus, record.githubUrl) == ("log", "info", 404, None)
    assert record.tags == ["vllm", "entrypoints"]
    bare = Stored("0" * 16, "raise", "NotImplementedError", "", "", "notimplementederror", 0, (site,), origin)
    assert record_of(bare).errorMessage == "NotImplementedError" and record_of(bare).sourceCode == ""


# -- the command


def test_the_command_reports_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "cache"))
    package = write_package(tmp_path, "small", m="raise ValueError('one')\n", bad="def (")
    index_command(packages=[f"{package}/"], json=True)
    (report,) = json.loads(capsys.readouterr().out)["packages"]
    assert (report["name"], report["files"], report["skipped"], report["records"]) == ("small", 3, {"syntax": 1}, 1)
    assert report["path"] == str(tmp_path / "cache" / "errors.sqlite") and report["note"] == ""
    index_command(packages=[f"{package}/"], json=False)
    shown = capsys.readouterr().out
    assert "small" in shown and "3 (1 skipped)" in shown
    with pytest.raises(UnknownPackage):
        index_command(packages=[f"{package}/", "no-such-package"], json=False)


# -- the installed torch


@pytest.mark.slow
def test_the_installed_torch_is_indexed_in_full_and_in_time(tmp_path: Path) -> None:
    before = cpu_seconds()
    report = index(find_sources("torch"), tmp_path / "errors.sqlite")
    spent = cpu_seconds() - before
    with Store(tmp_path / "errors.sqlite") as store:
        records = list(store.all())
        compiled = store.search(re.findall(r"\w+", "Invalid backend: 'x', see `torch._dynamo.list_backends()`"), 5)
    assert report.records == len(records) == len({record.id for record in records}) > 10_000
    raised = [record for record in records for _ in record.sites if record.kind in ("raise", "check", "graph-break")]
    assert sum(record.literals >= 10 for record in raised) / len(raised) >= 0.9
    assert any(
        "list_backends" in record.template and "InvalidBackend" in str(record.error_class) for record in compiled
    )
    assert all(record.extra.get("gb_type") for one in records if one.kind == "graph-break" for record in one.sites)
    assert spent < 40, "twice the 20 s of the requirement: the machines of CI are shared"


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
