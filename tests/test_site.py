"""The error reference as files and as a server: complete, valid, escaped, and it refuses what it should."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sizewise.cli import errors_site
from sizewise.errors.command import CannotWrite
from sizewise.errors.page import page_of
from sizewise.errors.record import Record
from sizewise.reference.site import catalogue as catalogue_module
from sizewise.reference.site import indexed
from sizewise.reference.site.build import build_site
from sizewise.reference.site.catalogue import Catalogue
from sizewise.reference.site.entry import Entry
from sizewise.reference.site.face import Face, names_in, words_of
from sizewise.reference.site.find import find
from sizewise.reference.site.links import in_files
from sizewise.reference.site.projects import tracker
from sizewise.reference.site.related import COUNT, Kinship
from sizewise.reference.site.render import ASSETS, Renderer, holes
from sizewise.reference.store import Stored

from .site_support import (
    BACKEND,
    CAPTURING,
    CHECK,
    CODES,
    HOSTILE,
    MADE,
    SHA,
    SIZES,
    Page,
    data_of,
    make_place,
    make_records,
    make_whole,
    our_entries,
)

FIXTURES = make_place, make_records, make_whole
SEEDS = {"82c172d787b6e198": "SW601", "ddc0dd9b4500d875": "SW101", "785b2071474ad1f2": "SW109"}
SEED = json.loads((Path(__file__).parent / "seeds" / "002_a02f24e17699f4b2.txt").read_text())


@pytest.fixture(scope="module")
def own() -> list[Entry]:
    return our_entries()


@pytest.fixture(scope="module")
def bare(own: list[Entry]) -> Catalogue:
    return Catalogue(None, own)


@pytest.fixture(scope="module")
def site(place: Path, whole: Catalogue) -> Path:
    build_site(whole, place / "site", MADE)
    return place / "site"


def page_text(catalogue: Catalogue, entry: Entry) -> str:
    return Renderer(catalogue, MADE).error(entry, catalogue.related(entry), in_files(2))


# -- the envelope


def test_every_envelope_is_valid(whole: Catalogue) -> None:
    CHECK.validate(SEED)
    count = 0
    for entry in whole.entries():
        data = data_of(whole, entry.record.id)
        CHECK.validate(data)
        re.compile(data["record"]["messagePattern"])
        assert data["package"] == {"name": entry.package, "version": entry.version}
        assert data["sites"][:1] == [] or data["sites"][0]["filePath"] == data["record"]["filePath"]
        count += 1
    assert count == len(whole) == len(CODES) + 5


def test_every_code_and_slug_is_a_name(bare: Catalogue, own: list[Entry]) -> None:
    for code, entry in zip(CODES, own, strict=True):
        for name in (code, code.lower(), entry.record.slug, entry.record.id):
            assert bare.entry(name) is entry, name
        assert {code, entry.record.slug} <= set(bare.aliases(entry.record.id))


def test_published_ids_are_names_of_ours(bare: Catalogue, whole: Catalogue) -> None:
    for name, code in SEEDS.items():
        assert data_of(bare, name)["record"]["errorCode"] == code
        assert name in data_of(bare, name)["aliases"]
    # Where vLLM is indexed, its own error has the name; Sizewise's keeps its code.
    for name, template in zip(SEEDS, (CAPTURING, SIZES, BACKEND), strict=True):
        assert data_of(whole, name)["record"]["errorMessage"] == template
        assert name in data_of(whole, name)["aliases"]
        assert data_of(whole, SEEDS[name])["record"]["errorCode"] == SEEDS[name]


@pytest.mark.parametrize("indexed", [False, True])
def test_the_first_published_record_has_all_its_keys(indexed: bool, bare: Catalogue, whole: Catalogue) -> None:
    for name in ("82c172d787b6e198", SEED["record"]["slug"]):
        data = data_of(whole if indexed else bare, name)
        assert set(SEED) <= set(data) and list(SEED["record"]) == [
            key for key in SEED["record"] if key in data["record"]
        ]
        assert data["record"]["slug"] == SEED["record"]["slug"]
        if indexed:
            same = ("repo", "errorMessage", "errorType", "errorClass", "filePath", "schemaVersion")
            assert [data["record"][key] for key in same] == [SEED["record"][key] for key in same]
            # The same expression: `re.escape` escapes spaces too.
            assert data["record"]["messagePattern"].replace("\\ ", " ") == SEED["record"]["messagePattern"]


def test_the_docs_list_what_differs_from_the_published_record(bare: Catalogue) -> None:
    text = (Path(__file__).parent.parent / "docs" / "errors.md").read_text()
    table = text.partition("| key | published | ours | why |")[2].partition("\n\n")[0]
    listed = {key for row in table.splitlines()[2:] for key in re.findall("`(\\w+)`", row.split("|")[1])}
    record = data_of(bare, SEED["record"]["id"])["record"]
    assert listed == {key for key, value in SEED["record"].items() if record[key] != value}


def test_what_was_written_is_merged_in_one_place(
    monkeypatch: pytest.MonkeyPatch, place: Path, records: list[Stored], own: list[Entry]
) -> None:
    def written(stored: Stored) -> dict[str, Any]:
        if stored.template != BACKEND:
            return {}
        return {"documentation": "Only two backends.", "aliases": ["by-hand", "../bad"], "related": ["SW109", "SW101"]}

    monkeypatch.setattr(indexed, "written", written)
    monkeypatch.setattr(catalogue_module, "written", written)
    catalogue = Catalogue(place / "errors.sqlite", own)
    data = data_of(catalogue, "by-hand")
    assert data["record"]["documentation"] == "Only two backends." and "../bad" not in data["aliases"]
    assert [one["why"] for one in data["related"][:3]].count("named by its page") == 2
    entry = catalogue.entry("by-hand")
    assert entry is not None and "Only two backends." in page_text(catalogue, entry)


def test_conditions_of_our_own_sites_are_those_around_them(own: list[Entry]) -> None:
    assert sum(bool(entry.sites[0].condition) for entry in own if entry.sites) > len(own) // 3
    for entry in own:
        for where in entry.sites:
            lines = (Path(errors_site.__file__).parents[2] / where.path).read_text().splitlines()
            assert f"{entry.record.errorClass}(" in lines[where.line - 1]


# -- related errors


def a_face(number: int, message: str, condition: str = "", place: str = "", group: str = "g") -> Face:
    return Face(
        id=f"{number:016x}",
        slug=str(number),
        message=message,
        code=None,
        error_class="E",
        severity="error",
        package="p",
        groups=(group,),
        names=names_in(condition),
        places=frozenset({("file.py", place)} if place else ()),
        words=words_of(message),
    )


def test_related_errors_come_in_the_order_that_is_documented() -> None:
    faces = [
        a_face(0, "the frobnicator of {x} is bent", "frob_angle > limit_angle", "straighten", "g0"),
        a_face(1, "quite another thing", group="g0"),
        a_face(2, "a frobnicator that is bent", group="g2"),
        a_face(3, "nothing of the kind", place="straighten", group="g3"),
        a_face(4, "some text", "limit_angle", group="g4"),
        a_face(5, "more text", "limit_angle and frob_angle", group="g5"),
        a_face(6, "the frobnicator of {y.z} is bent", group="g6"),
        a_face(7, "unlike all others, named", group="g7"),
    ]
    kin = Kinship(faces)
    found = kin.related(faces[0].id)
    assert [int(one.face.id, 16) for one in found] == [6, 5, 4, 3, 2]
    assert [one.why for one in found] == [
        "same message",
        "same condition: frob_angle, limit_angle",
        "same condition: limit_angle",
        "same function: straighten",
        "words: frobnicator, bent" if found[4].why.startswith("words: frob") else "words: bent, frobnicator",
    ]
    named = kin.related(faces[0].id, [faces[7].id, faces[0].id, "unknown", faces[7].id])
    assert [int(one.face.id, 16) for one in named] == [7, 6, 5, 4, 3] and named[0].why == "named by its page"
    assert [int(one.face.id, 16) for one in kin.related(faces[1].id)] == [0]
    assert kin.related(faces[7].id) == []


def test_every_error_of_ours_has_five_related_ones(bare: Catalogue, own: list[Entry]) -> None:
    for entry in own:
        found = bare.related(entry)
        assert len(found) == COUNT == len({one.face.id for one in found})
        assert entry.record.id not in {one.face.id for one in found}
        assert all(0 < len(one.face.title) <= 60 for one in found)
        page = page_of(entry.record.errorCode or "")
        if page:
            assert [one.face.code for one in found][: len(page.related)] == page.related[:COUNT]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("not cudagraph_capturing_enabled", {"cudagraph_capturing_enabled"}),
        ("isinstance(self.size, str) and x > 3", {"size"}),
        ("owner.startswith('other_word')", {"owner"}),
        ("not closed (", {"closed"}),
        ("mode in ('quoted", {"mode", "quoted"}),
        ("", set()),
    ],
)
def test_names_of_a_condition(condition: str, names: set[str]) -> None:
    assert names_in(condition) == names


def test_search_finds_codes_words_and_messages(bare: Catalogue) -> None:
    def first(query: str) -> str | None:
        return next((face.code for face in find(bare.faces, query)), None)

    assert first("sw401") == "SW401" and first("SizeOutOfRange") is not None
    assert first("inappropriate CAPTURING") == "SW601"
    assert first(CAPTURING) == "SW601"
    assert first("Traceback inappropriate time capturing") == "SW601"
    assert first("zzz qqq") is None and first("zzz qqq capturing") is None
    assert len(find(bare.faces, "  ")) == len(bare) == len(find(bare.faces, "sizewise"))


# -- the files


def test_every_page_is_sound_and_every_link_leads_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 2 * len(CODES)
    for path in pages:
        page = Page(path.read_text())
        assert not page.open, path
        assert page.of("html")[0]["lang"] == "en" and len(page.of("title")) == len(page.of("h1")) == 1
        assert len(page.of("main")) == len(page.of("header")) == len(page.of("footer")) == 1
        assert page.of("meta")[1]["name"] == "viewport"
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        for attributes in [a for _, a in page.tags]:
            for key in ("aria-labelledby", "aria-controls", "for", "data-copies"):
                assert attributes.get(key) is None or attributes[key] in ids
        assert all(a.get("role") == "region" and a.get("aria-label") for a in page.of("pre"))
        for address in page.addresses():
            if address.startswith(("https://", "data:,", "#")):
                continue
            target = (path.parent / address.partition("?")[0]).resolve()
            assert target.is_file() and target.is_relative_to(site.resolve()), f"{path}: {address}"


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path in sorted(site.rglob("*.html")):
        page = Page(path.read_text())
        loaded = [
            a.get("src") or a.get("href")
            for a in page.of("script", "link", "img", "iframe")
            if "rel" in a or "src" in a
        ]
        assert all(not str(one).startswith(("http", "//")) for one in loaded)
        assert not [a for _, a in page.tags if any(key == "style" or key.startswith("on") for key in a)]
    for path in ASSETS.iterdir():
        assert not re.search(r"https?:|url\(|@import|eval|innerHTML", path.read_text())


def test_the_data_of_an_error_stands_under_all_its_names(site: Path, whole: Catalogue) -> None:
    for entry in whole.entries():
        text = (site / "api/errors" / entry.record.id).read_text()
        assert json.loads(text) == data_of(whole, entry.record.id)
        for name in (entry.record.id, *whole.aliases(entry.record.id)):
            assert (
                (site / "api/errors" / name).read_text() == (site / "api/errors" / f"{name}.json").read_text() == text
            )
            assert (site / "errors" / name / "index.html").is_file()
    assert json.loads((site / "api/error-record.schema.json").read_text())["$id"] == "error-record-v2"
    rows = json.loads((site / "search.js").read_text().removeprefix("window.sizewiseErrors = ").rstrip(";\n"))
    assert len(rows) == len(whole)


def test_a_page_of_ours_has_every_element(bare: Catalogue) -> None:
    entry = bare.entry("SW401")
    assert entry is not None
    record, page = entry.record, Page(page_text(bare, entry))
    assert page.text.startswith(f"SW401: {entry.title}") and "sizewise · error · SizeOutOfRange" in page.text
    heads = [
        "Error message", "What it means", "Solutions", "Example fix", "Validation code", "Catch pattern",
        "When it happens", "How to prevent it", "Source", "Related errors", "All sites", "Tags",
    ]  # fmt: skip
    # In the order of the page; words such as "Source" stand in other texts as well.
    positions = [page.heads.index(head) for head in heads]
    assert positions == sorted(positions) and "Type guard" not in page.heads
    assert page.heads[0] == f"SW401: {entry.title}"
    texts = (record.errorMessage, record.documentation, record.triggerScenarios, record.commonSituations)
    assert all(text and " ".join(text.split()) in page.text for text in texts)
    assert all(solution in page.text for solution in [*record.solutions, *record.preventionTips])
    assert f"Thrown at {record.filePath}:{record.lineNumber}" in page.text
    assert len(page.of("mark")) == 1 and "SizeOutOfRange( (this line)" in page.text
    assert "GitHub" not in page.text and "sizewise explain SW401" in page.text
    assert page.text.count("{argument}") >= 2 and f"Data as JSON: /api/errors/{record.id}." in page.text
    assert "sizewise@" in page.text and f"({MADE[:10]})" in page.text and "Report an issue" in page.text
    written = page_of("SW401")
    assert written is not None and page.text.count("named by its page") == len(written.related[:COUNT])


def test_empty_sections_are_left_out_and_a_commit_is_linked(whole: Catalogue, records: list[Stored]) -> None:
    entry = whole.entry(records[2].id)
    assert entry is not None
    page = Page(page_text(whole, entry))
    assert "vllm-project/vllm · error · ValueError" in page.text
    assert "What it means" in page.text  # somebody wrote about it
    assert "in Config.check, where self.mode == Mode.VLLM" in page.text
    assert "vllm/compilation/monitor.py:7 in again" in page.text
    assert (
        f"View on GitHub (pinned to {SHA[:10]})" in page.text
        and f"vllm-project/vllm@{SHA[:10]} (2026-08-14)" in page.text
    )
    link = next(a for a in page.of("a") if str(a["href"]).startswith("https://github.com"))
    assert link["href"] == f"https://github.com/vllm-project/vllm/blob/{SHA}/vllm/compilation/sizes.py#L42-L78"
    gone = whole.entry(records[4].id)
    assert gone is not None
    page = Page(page_text(whole, gone))
    written = ("What it means", "Solutions", "Example fix", "When it", "How to")
    assert not [text for text in written if text in page.text] and "Nobody has written advice" in page.text
    assert "Thrown at other/gone.py:12" in page.text and not page.of("mark") and "GitHub" not in page.text
    assert "other@1.0 (2026-08-14)" in page.text and f"sizewise explain {gone.record.id}" in page.text


def test_everything_shown_is_escaped(whole: Catalogue, records: list[Stored], site: Path) -> None:
    entry = whole.entry(records[3].id)
    assert entry is not None
    texts = {field.name: HOSTILE for field in fields(Record) if field.type in ("str", "str | None")}
    lists = {field.name: [HOSTILE] for field in fields(Record) if field.type == "list[str]"}
    worst = replace(
        entry,
        record=replace(entry.record, **texts, **lists),
        package=HOSTILE,
        version=HOSTILE,
        remedy=HOSTILE,
        fields={HOSTILE: HOSTILE},
    )
    text = Renderer(whole, MADE).error(worst, whole.related(entry), in_files(2))
    page = Page(text)
    assert "<script>alert" not in text and "<b>" not in text and "alert(1)" in page.text
    assert len(page.of("script")) == 1 and not page.open
    assert "alert(1)" not in Page((site / "index.html").read_text()).text
    for path in (site / "errors" / entry.record.id / "index.html", site / "index.html"):
        assert "<script>alert" not in path.read_text()


def test_holes_are_marked_and_doubled_braces_are_not() -> None:
    assert holes("a {b!r} <c> {{d}}") == 'a <var class="hole">{b!r}</var> &lt;c&gt; {{d}}'


def test_a_site_is_replaced_and_nothing_else_is(tmp_path: Path, bare: Catalogue) -> None:
    build_site(bare, tmp_path / "deep" / "out", MADE)
    (tmp_path / "deep/out/errors/old").mkdir()
    (tmp_path / "deep/out/mine.txt").write_text("kept")
    built = build_site(bare, tmp_path / "deep" / "out", MADE)
    assert not (tmp_path / "deep/out/errors/old").exists() and (tmp_path / "deep/out/mine.txt").read_text() == "kept"
    files = [path for path in (tmp_path / "deep/out").rglob("*") if path.is_file()]
    assert built.errors == len(CODES) and built.files == len(files) - 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(CannotWrite, match="not a site"):
        build_site(bare, tmp_path / "other", MADE)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]
    with pytest.raises(CannotWrite):
        build_site(bare, tmp_path / "other" / "thesis.txt", MADE)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_of_aa(theme: int) -> None:
    found = re.findall(r"--(\w+): (#[0-9a-f]{6})", (ASSETS / "site.css").read_text())
    half = len(found) // 2
    colours = dict(found[theme * half : (theme + 1) * half])
    assert len(colours) == half == 9
    pairs = [(one, ground) for one in ("text", "soft", "link", "hole") for ground in ("back", "card")]
    for one, ground in [*pairs, ("text", "marked"), ("soft", "marked"), ("edge", "back")]:
        light, dark = sorted((luminance(colours[one]), luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= (3 if one == "edge" else 4.5), (one, ground)


def test_trackers_come_from_metadata() -> None:
    assert tracker("torch") == "https://github.com/pytorch/pytorch/issues"
    assert tracker("no-such-package-here") is None
