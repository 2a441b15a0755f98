"""The static scan of sources for errors: messages that are made away from where they are raised."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from sizewise.reference.records import record_of
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import records_of, scan_all
from sizewise.reference.scan.link import linked
from sizewise.reference.scan.sites import scan
from sizewise.reference.store import Distribution, Site, Stored

from .scan_support import found_in, records_at, templates, write_package


def body(source: str) -> str:
    return "def f(x):\n" + textwrap.indent(textwrap.dedent(source).strip("\n"), "    ")


# -- classes


def test_a_class_that_shows_what_it_keeps(tmp_path: Path) -> None:
    errors = """
        class NotFound(Exception):
            message: str
            def __init__(self, name, path):
                message = f"Loading {name} failed: nothing at {path}"
                self.message = message
            def __str__(self):
                return self.message
        class Inner(NotFound):
            pass
    """
    user = """
        from .errors import Inner, NotFound
        def f(x):
            if x: raise NotFound(x.name, "/data")
            raise Inner("it", x)
    """
    records = records_at(write_package(tmp_path, errors=errors, user=user))
    assert [(one.error_class, one.template) for one in records] == [
        ("pack.errors.NotFound", "Loading {x.name} failed: nothing at /data"),
        ("pack.errors.Inner", "Loading it failed: nothing at {x}"),
    ]


def test_classes_of_a_module_of_errors_need_no_name_that_says_so() -> None:
    exc = """
        class Shorten(RuntimeError):
            def __init__(self, *args, frame=None, **more):
                super().__init__(*args, **more)
        class TritonMissing(Shorten):
            def __init__(self, frame):
                super().__init__("Cannot find a working installation.", frame=frame)
        class TooOld(Shorten):
            def __init__(self, props, frame):
                Shorten.__init__(self, f"Found {props.name} which is too old", frame=frame)
    """
    user = """
        def f(x):
            from .exc import TooOld, TritonMissing
            if x: raise TritonMissing(x)
            raise TooOld(x, 1)
    """
    assert [(one.error_class, one.template, one.extra.get("base")) for one in found_in(exc=exc, user=user)] == [
        ("p.exc.TritonMissing", "Cannot find a working installation.", "RuntimeError"),
        ("p.exc.TooOld", "Found {props.name} which is too old", "RuntimeError"),
    ]


def test_a_class_whose_method_makes_its_message() -> None:
    source = """
        from string import Template
        _FORM = "$title FAILED\\n  rank: ${rank}, $$5, $other"
        class ChildFailedError(Exception):
            def __init__(self, name):
                super().__init__(self.format_msg(name))
            def format_msg(self, name):
                return Template(_FORM).substitute(title=f"{name} {{x}}", rank=self.rank)
        def f(x): raise ChildFailedError(x.name)
    """
    assert templates(source) == ["{x.name} {{x}} FAILED\n  rank: {self.rank}, $5, {other}"]


# -- functions and constants


def test_messages_that_functions_return() -> None:
    texts = """
        LATER = "this comes in a later version"
        lower = "a text of its own"
        def wrong(name, hint="none"):
            if name:
                return f"wrong is {name}, hint: {hint}"
            return "wrong is something else"
    """
    user = """
        from . import texts as t
        from .texts import LATER, lower, wrong
        def _own(size): return "the size %d is odd" % size
        class Base:
            def _message(self): return f"{self.name} says too much"
        class C(Base):
            def m(self, x):
                def inner(y): return f"the inner text of {y}"
                if x == 1: raise ValueError(_own(x.size))
                if x == 2: raise ValueError(f"{wrong(x.name)}!")
                if x == 3: raise ValueError(self._message())
                if x == 4: raise ValueError(inner(3))
                if x == 5: raise ValueError(t.LATER)
                if x == 6: raise ValueError(lower)
                if x == 7: assert x, t.wrong("it", hint=x)
                msg = self._message()
                msg += " indeed"
                if x == 8: raise ValueError(msg)
                raise ValueError(_own(size=x))
    """
    assert [one.template for one in found_in(texts=texts, user=user)] == [
        "the size {x.size} is odd",
        "wrong is {x.name}, hint: none!",
        "wrong is something else!",
        "{self.name} says too much",
        "the inner text of 3",
        "this comes in a later version",
        "a text of its own",
        "wrong is it, hint: {x}",
        "wrong is something else",
        "{self.name} says too much indeed",
        "the size {x} is odd",
    ]


def test_functions_that_say_nothing_of_errors_leave_the_hole() -> None:
    source = """
        def short(x): return f"<{x}>"
        def loop(x): return loop(x) + " and again it goes"
        class C:
            def method(self): return "a text of a method"
        def f(x):
            if x == 1: raise ValueError(short(x))
            if x == 2: raise ValueError(method(x))
            if x == 3: raise ValueError(f"twenty letters are enough here: {loop(x)}")
            if x == 4: raise ValueError(unknown.text(x))
            raise ValueError(loop(x))
    """
    assert templates(source)[:4] == [
        "{short(x)}",
        "{method(x)}",
        "twenty letters are enough here: {loop(x)}",
        "{unknown.text(x)}",
    ]
    assert templates(source)[4].endswith("and again it goes")


def test_texts_that_are_handed_to_code_in_cpp() -> None:
    source = """
        import torch
        class Manager:
            def note(self, storage, trace):
                msg = self.format_msg(trace)
                torch._C._set_storage_access_error_msg(storage, msg)
                torch._C._set_storage_access_error_msg(storage, self.format_msg("a"))
                torch._C._set_warn_always(True)
            @staticmethod
            def format_msg(trace):
                return f"Error: accessing what was overwritten. Stack trace: {trace}."
    """
    found = found_in(mod=source)
    assert [(one.kind, one.error_class, one.template, one.qualname, one.line) for one in found] == [
        ("handed-on", None, f"Error: accessing what was overwritten. Stack trace: {trace}.", "Manager.note", line)
        for trace, line in (("{trace}", 6), ("a", 7))
    ]
    assert found[0].extra == {"via": "torch._C._set_storage_access_error_msg"}


def test_constants_of_a_class_count_and_defaults_do_not() -> None:
    source = """
        class Config:
            model = "the default model"
            REFUSED = "this is refused"
            def check(self, x):
                if x: raise ValueError(self.REFUSED)
                raise ValueError(f"{self.model} is wrong")
    """
    assert templates(source) == ["this is refused", "{self.model} is wrong"]


# -- lists


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('lines = ["one line:", f"and {x}"]\nraise E("\\n".join(lines))', ["one line:\nand {x}"]),
        ('a = ["first part"]\na += ["second"]\nraise E(", ".join(a + ["third"]))', ["first part, second, third"]),
        ('a = ["has the first"]\na.append(f"then also {x} goes")\nraise E("; ".join(a))',
         ["has the first; then also {x} goes"]),
        ('a = ["behind the other"]\na.insert(0, "in front of it")\nraise E(" ".join(a))',
         ["in front of it behind the other"]),
        ('a = []\nif x: a.append("there is x")\nraise E("no: " + " ".join(a))', ["no: there is x"]),
        ('a = self.reasons()\nif x: a.append(f"rank {x} is too large")\nraise E(" ".join(a))',
         ["{...}rank {x} is too large", "{...}"]),
        ('a = ["these are wrong:"]\nfor i in x:\n    a.append(f"- the item {i} is")\nraise E("\\n".join(a))',
         ["these are wrong:\n- the item {i} is{...}", "these are wrong:"]),
        ('a = ["a list of"]\na.extend(["many", f"{x} words"])\nraise E(" ".join(a))', ["a list of many {x} words"]),
        ('a = ["a list of"]\na.extend(x)\nraise E(" ".join(a))', ["a list of{...}"]),
        ('a = ["never shown"]\na = x\nraise E(" ".join(a))', ["{' '.join(a)}"]),
        ('a = []\na.append(x)\nraise E(" ".join(a))', ["{' '.join(a)}"]),
        ('raise E(" ".join(["start", *x, "end"]))', ["start{...}end"]),
    ],
)  # fmt: skip
def test_texts_of_lists(source: str, expected: list[str]) -> None:
    found = templates(body(source))
    assert found == [text for text in expected if text in found], found
    assert expected[0] in found


def test_each_reason_of_many_has_its_own_template() -> None:
    reasons = "".join(f"if x.a{n}: why.append('the reason {n} of it')\n" for n in range(6))
    found = templates(body(f"why = []\n{reasons}if why: raise ValueError('Refused: ' + '; '.join(why))"))
    assert sorted(found) == [f"Refused: {{...}}the reason {n} of it{{...}}" for n in range(6)]


# -- records


def test_the_window_of_source_ends_with_the_file(tmp_path: Path) -> None:
    lines = [f"x{number} = {number}" for number in range(9)]
    (tmp_path / "m.py").write_text("\n".join([*lines, "raise ValueError('last')", "y = 1"]) + "\n")
    (tmp_path / "n.py").write_text("raise ValueError('only')")
    origin = Distribution("pack", "1", str(tmp_path), "", None, "2026-01-01T00:00:00Z")
    for path, line, last in (("m.py", 10, 11), ("m.py", 11, 11), ("n.py", 1, 1)):
        stored = Stored(
            "0" * 16, "raise", "ValueError", "last", "last", "last", 4, (Site(path, line, "f", ""),), origin
        )
        record = record_of(stored)
        assert record.sourceCodeEnd == last and record.sourceCode.count("\n") == last - record.sourceCodeStart + 1


# -- the installed torch


def test_forms_in_the_installed_torch() -> None:
    sources = find_sources("torch")
    names = (
        "torch._inductor.exc", "torch._dynamo.exc", "torch._inductor.cudagraph_trees", "torch._inductor.scheduler",
        "torch._dynamo.device_interface", "torch.serialization", "torch.utils.data.dataloader",
        "torch.distributed.elastic.multiprocessing.errors", "torch.distributed.launcher.api",
    )  # fmt: skip
    modules = []
    for name in names:
        path = f"{name.replace('.', '/')}.py"
        if not (sources.root / path).is_file():
            path = f"{name.replace('.', '/')}/__init__.py"
        modules.append(scan((sources.root / path).read_text(), name, path))
    found = {(one.kind, one.error_class): one.template for one in linked(modules, {})}
    said = [(one.kind, one.error_class, one.template) for one in linked(modules, {})]

    def has(kind: str, error_class: str | None, start: str) -> bool:
        return any(one[:2] == (kind, error_class) and one[2].startswith(start) for one in said)

    assert found[("raise", "torch._inductor.exc.TritonMissing")].startswith("Cannot find a working triton installation")
    assert "too old to be supported" in found[("raise", "torch._inductor.exc.GPUTooOldForTriton")]
    assert has("handed-on", None, "Error: accessing tensor output of CUDAGraphs that has been overwritten")
    assert has("raise", "pickle.UnpicklingError", "Weights only load failed.")
    assert has("warn", "UserWarning", "This DataLoader will create {self.num_workers} worker processes in total.")
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
    assert any(one[1] == child and " FAILED" in one[2] for one in said)
    # The form that all graph breaks share is no error of its own.
    assert not any("Developer debug context" in one[2] and one[0] == "raise" for one in said)


def test_forms_do_not_depend_on_the_order_of_modules(tmp_path: Path) -> None:
    package = write_package(
        tmp_path,
        a="from .b import text\ndef f(x): raise ValueError(text(x))\n",
        b="def text(x): return f'the text of {x}'\n",
    )
    sources = find_sources(f"{package}/")
    modules = scan_all(sources, workers=0).modules
    assert [one.template for one in records_of(sources, modules[::-1])] == ["the text of {x}"]
