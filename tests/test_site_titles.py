"""Titles of errors, related errors of those that say nothing, and what a page leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sizewise.cli import errors_site
from sizewise.errors.command import CannotWrite
from sizewise.reference.site.build import build_site
from sizewise.reference.site.catalogue import Catalogue
from sizewise.reference.site.entry import Entry
from sizewise.reference.site.face import Face, words_of
from sizewise.reference.site.links import in_files
from sizewise.reference.site.related import Kinship
from sizewise.reference.site.render import Renderer
from sizewise.reference.titles import says_words, title_of

from .site_support import CAPTURING, MADE, Client, Page, fill, our_entries, running


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("short", "short"),
        ("two\n  lines", "two lines"),
        (CAPTURING, "CUDA graph capturing detected at an inappropriate time…"),
        ("x" * 80, "x" * 59 + "…"),
        ("{self.a_very_long_expression(with_arguments, and_more)} is not there", "{…} is not there"),
        (
            "the value of this one is not one of those: {names} and {others}",
            "the value of this one is not one of those: {names} and…",
        ),
        ("abcdefghijklmnopqrstuvwxyz-" * 2 + "={some} is", "abcdefghijklmnopqrstuvwxyz-" * 2 + "=…"),
        ("{{literal}} braces " + "word " * 20, "{{literal}} braces word word word word word word word word…"),
    ],
)  # fmt: skip
def test_titles(message: str, title: str) -> None:
    assert title_of(message) == title and len(title) <= 60


def test_a_message_of_holes_alone_has_a_title_of_its_class_and_function() -> None:
    for message in ("{_get_wo_message(str(e))}", "{a}: {b}", "{a}{{}}"):
        assert not says_words(message)
        assert title_of(message, "a.b.LoweringException", "Graph.run") == "LoweringException in Graph.run"
    assert title_of("{x}") == "{x}" and says_words("got {x}")


def test_titles_of_our_own_errors_are_whole() -> None:
    for entry in our_entries():
        assert len(entry.title) <= 60 and entry.title.count("{") == entry.title.count("}")


def a_face(number: int, message: str, group: str) -> Face:
    return Face(
        id=f"{number:016x}", slug=str(number), message=message, code=None, error_class="E", severity="error",
        package="p", groups=(group,), names=frozenset(), places=frozenset(), words=words_of(message), function="f",
    )  # fmt: skip


def test_templates_without_words_are_not_the_same_message() -> None:
    kin = Kinship([a_face(0, "{a}", "g"), a_face(1, "{b}", "h"), a_face(2, "{c}", "g")])
    assert [(int(one.face.id, 16), one.why) for one in kin.related(f"{0:016x}")] == [(2, "same group: g")]


# -- pages


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("titles")
    fill(folder / "errors.sqlite", folder / "root")
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> Catalogue:
    return Catalogue(place / "errors.sqlite", our_entries())


def page_of(catalogue: Catalogue, entry: Entry) -> Page:
    return Page(Renderer(catalogue, MADE).error(entry, catalogue.related(entry), in_files(2)))


def test_a_page_leaves_out_what_says_nothing(whole: Catalogue) -> None:
    entry = whole.entry("SW401")
    assert entry is not None and "How to prevent it" in page_of(whole, entry).heads
    bare = replace(entry, record=replace(entry.record, preventionTips=[], solutions=[]), remedy="{todo}")
    heads = page_of(whole, bare).heads
    assert "How to prevent it" not in heads and "Solutions" not in heads
    site = replace(entry.sites[0], condition="not ok")
    assert "where" not in page_of(whole, replace(entry, sites=(site,))).text.partition("All sites")[2].split("Tags")[0]


def test_code_that_needs_a_setup_says_which(whole: Catalogue) -> None:
    entry = whole.entry("SW401")
    assert entry is not None and entry.setup.startswith("import torch")
    page = page_of(whole, entry)
    assert page.text.count("Runs after the first lines of the example fix") == 2
    assert {"href": "#fix"} in page.of("a")
    alone = page_of(whole, replace(entry, record=replace(entry.record, exampleFix=None)))
    assert "Runs after this" in alone.text and alone.text.count("import sizewise") >= 2
    assert "Runs after" not in page_of(whole, replace(entry, setup="")).text


# -- refusals and the command


@pytest.fixture(scope="module")
def ask(place: Path) -> Iterator[Client]:
    with running(place / "errors.sqlite") as client:
        yield client


@pytest.mark.parametrize("path", ["/errors/nope", "/nowhere", "/errors/%3Cscript%3E"])
def test_a_browser_gets_a_page_with_a_way_back(path: str, ask: Client) -> None:
    answer = ask(path, accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert answer.status == 404 and answer.headers["content-type"].startswith("text/html")
    assert (
        answer.headers["cache-control"] == "no-store"
        and "default-src 'none'" in answer.headers["content-security-policy"]
    )
    page = Page(answer.body.decode())
    assert page.heads == ["No such page"] and {"href": "/"} in page.of("a")
    assert ask(path).json["error"]["status"] == 404


@pytest.mark.parametrize("path", ["/api/errors/nope", "/assets/nope", "/api/nope", "/health?x=1"])
def test_addresses_of_data_stay_json(path: str, ask: Client) -> None:
    answer = ask(path, accept="text/html")
    assert (
        answer.status in (400, 404) and answer.headers["content-type"] == "application/json" and "error" in answer.json
    )


def test_a_folder_that_is_not_ours_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(CannotWrite) as caught:
        build_site(Catalogue(None, our_entries()[:1]), tmp_path, MADE)
    assert str(caught.value).count("SW704]") == 1 and str(caught.value).count("cannot write") == 1


def test_progress_says_how_long_the_rest_takes(capsys: pytest.CaptureFixture[str]) -> None:
    step = errors_site.STEP
    tell = errors_site._Progress(2 * step)
    for number in range(1, step + 1):
        tell(number)
    said = capsys.readouterr().err
    assert f"{2 * step} errors to write, with about {6 * step} files" in said
    assert f"{step} of {2 * step} errors written, about " in said and " s left" in said
    errors_site._Progress(3)
    assert capsys.readouterr().err == ""
