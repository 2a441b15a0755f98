"""Explaining what is given as an argument: codes, classes, ids of graph breaks, words, folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sizewise.cli.explain import explain as explain_command
from sizewise.cli.output import guarded
from sizewise.errors.own import raise_sites
from sizewise.errors.registry import errors_by_code
from sizewise.reference.explain import named
from sizewise.reference.explain.own import PLACES
from sizewise.reference.store import Store

from .explain_support import fill


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Store(tmp_path / "errors.sqlite") as store:
        fill(store)
    yield tmp_path


def command(*arguments: str, text: str | None = None) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("explain")(guarded(explain_command))
    return CliRunner().invoke(app, ["explain", *arguments], input=text, catch_exceptions=False)


def test_a_name_of_several_errors_lists_them_and_chooses_none() -> None:
    done = command("SizeOutOfRange")
    assert done.exit_code == 1 and "2 errors have this name" in done.stdout
    assert "SW130" in done.stdout and "SW401" in done.stdout
    answer = json.loads(command("SizeOutOfRange", "--json").stdout)
    assert answer["match"] is None and answer["looksLike"] is None
    codes = [(one["record"]["errorCode"], one["confidence"]) for one in answer["alternatives"]]
    assert codes == [("SW130", 0.5), ("SW401", 0.5)]


def test_every_class_is_found_by_its_dotted_name() -> None:
    for code, error in errors_by_code().items():
        dotted = f"{error.__module__}.{error.__name__}"
        if code in ("SW130", "SW401", "SW711"):
            assert [one.record.errorCode for one in named(dotted, None)] == [code]
    done = command("sizewise.errors.call.SizeOutOfRange")
    assert done.exit_code == 0 and done.stdout.startswith("SW401")
    assert command("sizewise.errors.call.NoSuchError").exit_code == 1


def test_of_an_own_error_the_places_are_listed() -> None:
    error = errors_by_code()["SW704"]
    total = sum(1 for _ in raise_sites(error))
    (match,) = named("SW704", None)
    assert match.total == total > 1 and len(match.others) == min(total, PLACES) - 1
    assert f"one of {total} places" in command("SW704").stdout


def test_words_are_explained_as_a_text() -> None:
    done = command("adapter failed")
    assert "code, id, slug" not in done.stdout and done.exit_code == 1
    assert "No match" in command("").stdout
    near = command("expected to be in states")
    assert "these words alone do not tell" in near.stdout and "expected to be in states {states}" in near.stdout


def test_a_folder_is_told_from_a_name(index: Path) -> None:
    (index / "logs").mkdir()
    for name in ("logs", "logs/", "."):
        done = command(name)
        assert done.exit_code == 2 and "is a folder" in done.output, name


def test_a_class_alone_does_not_tell_the_error() -> None:
    done = command("torch._dynamo.exc.Unsupported")
    assert done.exit_code == 1 and "give the text as well" in done.stdout
