"""Sources that were written to take time, memory or the whole command: what they cost is bounded, the rest is read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sizewise.errors.command import NoPackageThere
from sizewise.reference.records import record_of
from sizewise.reference.scan import files, sites
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import index, records_of, scan_all
from sizewise.reference.scan.sites import scan
from sizewise.reference.scan.templates import LONGEST
from sizewise.reference.store import Store

from .command_line import environment
from .scan_support import cpu_seconds, found_in, records_at, templates, write_package

SCHEMA = json.loads((Path(files.__file__).parents[1] / "site" / "error-record.schema.json").read_text())


@pytest.mark.parametrize(
    "step",
    ["a{n} = f'{{a{p}}}{{a{p}}}'", "a{n} = a{p} + a{p}", "a{n} = '%s%s' % (a{p}, a{p})", "a{n} = a{p} * 100",
     "a{n} = '{{}}{{}}'.format(a{p}, a{p})", "a{n} = ' '.join([a{p}] * 2 + [a{p}, a{p}])"],
)  # fmt: skip
def test_a_text_that_doubles_at_every_line_is_cut(step: str) -> None:
    lines = ["a0 = 'so many words '", *(step.format(n=n, p=n - 1) for n in range(1, 40)), "raise ValueError(a39)"]
    before = cpu_seconds()
    (text,) = templates("\n".join(lines))
    assert len(text) <= LONGEST and cpu_seconds() - before < 2
    assert "so many words" in text


def test_functions_and_helpers_that_double_are_cut() -> None:
    makers = "\n".join(f"def make{n}(): return f'so many: {{make{n + 1}()}} and {{make{n + 1}()}}'" for n in range(30))
    calls = "\n".join(f"def fail{n}(msg):\n" + f"    fail{n + 1}('more ' + msg)\n" * 50 for n in range(10))
    last = "def fail10(msg):\n" + "    if x: raise ValueError(msg)\n" * 50
    before = cpu_seconds()
    found = found_in(mod=f"{makers}\n{calls}\n{last}\nfail0('the words of it')\nraise ValueError(make0())\n")
    assert found and cpu_seconds() - before < 5
    assert max(len(one.template) for one in found) <= LONGEST


def test_a_long_constant_keeps_its_start() -> None:
    (text,) = templates(f"raise ValueError('start {{{{' + {'x' * 100_000!r})")
    assert text.startswith("start {{{{xxx") and text.endswith("x{...}") and len(text) <= LONGEST


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    package = write_package(tmp_path, good="raise ValueError('it is read')\n")
    (package / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(package / "pipe.py")
    os.mkfifo(package / "version.py")
    (package / "folder.py").mkdir()
    (package / "loop").symlink_to(package)
    with (package / "sparse.py").open("wb") as stream:
        stream.truncate(10**10)
    (tmp_path / "odd.dist-info").mkdir()
    os.mkfifo(tmp_path / "odd.dist-info" / "METADATA")
    before = cpu_seconds()
    scanned = scan_all(find_sources(f"{package}/"), workers=0)
    assert scanned.skipped == {"not a file": 3, "too large": 1} and cpu_seconds() - before < 1
    assert [record.template for record in records_at(package)] == ["it is read"]


@pytest.mark.parametrize(
    "source", ["x = [" + "1," * 900_000 + "]", "a;" * 300_000, "x = f'" + "{a}" * 50_000 + "'", "a\n" * 300_000]
)
def test_a_source_that_would_fill_the_memory_is_not_parsed(tmp_path: Path, source: str) -> None:
    path = tmp_path / "a.py"
    path.write_text(source)
    with pytest.raises(files.Unreadable, match="too large"):
        files.read(path)


def test_what_takes_too_long_or_says_too_much_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "SECONDS", -1)
    with pytest.raises(files.Unreadable, match="too slow"):
        scan("x = 1\n" * 100, "m", "m.py")
    monkeypatch.undo()
    many = "\n".join(f"raise E{n}(t)" for n in range(2000))
    with pytest.raises(files.Unreadable, match="too large"):
        scan("def f():\n" + f"  t = {'x' * 3000!r}\n" + "  if x: raise E(t)\n" * 5000 + many, "m", "m.py")


def test_punycode_is_no_encoding_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# coding: punycode\n" + "x" * 100)
    with pytest.raises(files.Unreadable, match="encoding"):
        files.read(tmp_path / "a.py")


def test_one_deep_expression_loses_no_other_record(tmp_path: Path) -> None:
    chain = "".join(f"    elif x == {n}: raise ValueError('number {n} of the chain')\n" for n in range(1, 900))
    longer = "".join(f"    elif x == {n}: raise ValueError('too long')\n" for n in range(9000))
    package = write_package(
        tmp_path,
        chain=f"def f(x):\n    if x == 0: pass\n{chain}    else: raise ValueError('at its end')\n",
        longer="if x: raise ValueError('on top')\n@mark\ndef f(x):\n    if x: pass\n"
        + longer
        + "def g():\n    raise ValueError('behind')\nclass A:\n    def m(self):\n        raise ValueError('in A')\n"
        + "    @mark\n    def deep(self):\n        raise ValueError("
        + "+".join(f"'a{n}'" for n in range(5000))
        + ")\n    def n(self):\n        raise ValueError('later in A')\n",
        attributes="def f(x):\n    raise ValueError('m' + x" + ".a" * 900 + ")\nraise ValueError('last')\n",
    )
    before = cpu_seconds()
    scanned = scan_all(find_sources(f"{package}/"), workers=0)
    assert scanned.skipped == {"too deep in parts": 1} and cpu_seconds() - before < 10
    found = {record.template: record.sites[0] for record in records_at(package)}
    # How deep Python itself can go depends on who calls: of the deep ones themselves some may be read.
    wanted = {f"number {n} of the chain" for n in range(1, 900)}
    wanted |= {"at its end", "last", "on top", "behind", "in A", "later in A"}
    assert wanted <= found.keys() and len(found) <= len(wanted) + 3
    assert (found["behind"].line, found["behind"].qualname) == (9006, "g")
    assert (found["in A"].qualname, found["in A"].line) == ("A.m", 9009)
    assert (found["later in A"].qualname, found["later in A"].line) == ("A.n", 9014)


def test_a_chain_of_elifs_is_read_as_nested_ifs_are() -> None:
    chained = """
        def f(x):
            text = 'none of them'
            if x == 1: text = 'the first'
            elif x == 2: return
            elif x == 3: text = 'the third'
            raise ValueError(text)
    """
    nested = """
        def f(x):
            text = 'none of them'
            if x == 1: text = 'the first'
            else:
                if x == 2: return
                else:
                    if x == 3: text = 'the third'
            raise ValueError(text)
    """
    assert sorted(templates(chained)) == sorted(templates(nested)) == ["none of them", "the first", "the third"]


def hostile_package(folder: Path) -> Path:
    return write_package(
        folder,
        version='__version__ = "1.0<script>\\x1b[31m"\n',
        texts=r"""
            def a(x): raise ValueError("lone \ud800 surrogate in the message {}".format(x))
            def b(x): raise KeyError("zero \0 and {\0\0} braces", x)
            def c(x): raise ValueError("</script><script>alert(1)</script> \u2028 \x1b[31m red \x07")
            def d(x): raise ValueError(b"bytes", ..., 1.5, f"{x!r:>{x}}{'{'}{{{x}}}")
            def e(x): raise type("Dyn", (Exception,), {})("a dynamic class")
            def f(x): raise ValueError("")
            def g(x): raise Вася("кириллица")
            def h(x): raise HTTPException(status_code=999, detail="no status")
            def i(x): raise HTTPException(status_code=404, detail="a status")
            def j(x): raise ValueError(0x{DIGITS})
            def k(x): raise ValueError
            assert x, "(?P<a>[unclosed"
            def l(x): warnings.warn("\ud800", W); logger.error("\udfff %s", x)
            def m(x): raise ExceptionGroup("\ud834", [x])
        """.replace("{DIGITS}", "f" * 9000),
        **{"<img src=x onerror=alert(1)>\"'": "raise ValueError('of a strange file')\n"},
    )


def test_the_records_of_a_hostile_package_are_records(tmp_path: Path) -> None:
    package = hostile_package(tmp_path)
    (package / "line\nend.py").write_text("raise ValueError('a line end in the name')\n")
    with open(os.fsencode(package) + b"/\xff\xfe.py", "w") as stream:
        stream.write("raise ValueError('a name that is no text')\n")
    report = index(find_sources(f"{package}/"), tmp_path / "errors.sqlite")
    assert report.skipped == {"name": 1} and report.files == 6 and report.version == "1.0<script>?[31m"
    check: Any = jsonschema.Draft202012Validator(
        {**SCHEMA, **SCHEMA["$defs"]["record"]}, format_checker=jsonschema.FormatChecker()
    )
    with Store(tmp_path / "errors.sqlite") as store:
        records = [record_of(stored) for stored in store.all()]
    for record in records:
        data = json.loads(json.dumps(record.to_json(), ensure_ascii=False).encode())
        check.validate(data)
    messages = {record.errorMessage for record in records}
    assert r"lone \ud800 surrogate in the message {x}" in messages and "a line end in the name" in messages
    assert len(records) >= 15


def test_the_command_goes_on_past_what_it_cannot_read(tmp_path: Path) -> None:
    package = hostile_package(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "sizewise", "errors", "index", f"{package}/", "--json"],
        capture_output=True,
        text=True,
        env={**environment(), "SIZEWISE_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0 and not done.stderr
    assert json.loads(done.stdout)["packages"][0]["note"] == ""


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    write_package(Path(folder))
    with pytest.raises(NoPackageThere, match="no text"):
        find_sources(f"{folder}/pack/")


def test_a_package_may_change_while_it_is_indexed(tmp_path: Path) -> None:
    package = write_package(tmp_path, **{f"m{n}": f"# {n}\nraise ValueError('number {n}')\n" for n in range(40)})
    sources = find_sources(f"{package}/")

    def change(done: int, total: int) -> None:
        if done == 16:
            (package / "m9.py").unlink()
            (package / "m8.py").write_text("def f(:\n")
            (package / "m7.py").write_text("")

    scanned = scan_all(sources, change, workers=0)
    assert scanned.skipped == {"unreadable": 1, "syntax": 1} and scanned.files == 41
    (package / "m1.py").write_text("# shorter")
    for stored in records_of(sources, scanned.modules):
        record = record_of(stored)
        assert record.sourceCode == ("" if stored.template == "number 1" else f"{record.sourceCode}")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        ("ValueError(1, 'two', None)", ValueError(1, "two", None)),
        ("ValueError('it\\'s', \"a 'b'\", -1.5, True)", ValueError("it's", "a 'b'", -1.5, True)),
        ("KeyError(1, 'line\\nend')", KeyError(1, "line\nend")),
        ("ImportError('a', 'b')", ImportError("a", "b")),
        ("StopIteration('a', 2)", StopIteration("a", 2)),
        ("SyntaxError('words', ('f', 3, 1, 't'))", SyntaxError("words", ("f", 3, 1, "t"))),
        ("OSError(2, 'gone')", OSError(2, "gone")),
        ("OSError(2, 'gone', 'file')", OSError(2, "gone", "file")),
        ("OSError(2, 'gone', 'file', None, 'other')", OSError(2, "gone", "file", None, "other")),
        ("OSError(1, 2, 3, 4, 5, 6)", OSError(1, 2, 3, 4, 5, 6)),
        ("UnicodeDecodeError('utf-8', b'', 0, 1, 'why')", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why")),
        ("ExceptionGroup('group message', [ValueError(1)])", ExceptionGroup("group message", [ValueError(1)])),
        ("ExceptionGroup('group message', x)", ExceptionGroup("group message", [ValueError(1)] * 2)),
        ("Two(1, 'b')", ValueError(1, "b", None)),
    ],
)
def test_several_arguments_are_shown_as_python_shows_them(tmp_path: Path, raised: str, error: Exception) -> None:
    two = "class Two(ValueError):\n    def __init__(self, a, b): super().__init__(a, b, None)\n"
    (record,) = records_at(write_package(tmp_path, m=f"{two}raise {raised}\n"))
    assert re.fullmatch(record.pattern, str(error)), (record.template, str(error))
    if "{" not in record.template:
        assert record.template == str(error)
