"""The records of a scan, the packages it reads, records made for people, and the command."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from sizewise.cli.errors_index import index as index_command
from sizewise.errors.command import NoPackageThere, UnknownPackage
from sizewise.reference.records import record_of
from sizewise.reference.scan import files
from sizewise.reference.scan import index as indexing
from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import index, records_of, scan_all
from sizewise.reference.store import Distribution, Site, Store, Stored

from .scan_support import cpu_seconds, fields, records_at, write_package

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
