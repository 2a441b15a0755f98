"""The written part of Sizewise's errors: complete, true to the classes, and its code runs."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from sizewise.errors import SizewiseError
from sizewise.errors.page import PAGES, page_of, read_page
from sizewise.errors.registry import errors_by_code

ERRORS = errors_by_code()
WRITTEN = sorted(path.stem for path in PAGES.glob("*.toml"))
STRATEGIES = {"validation", "configuration", "fallback", "retry", "refresh", "fix-the-module", "environment"}


def run(setup: str, snippet: str) -> str:
    """Run a snippet behind its setup in a child: "" if it ran to its end, else the error's code or traceback."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        answer = ""
        try:
            with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
                os.chdir(folder)
                os.dup2(nowhere.fileno(), 1)
                answer = _outcome(setup, snippet)
        finally:
            os.write(writer, answer.encode()[:60000])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def _outcome(setup: str, snippet: str) -> str:
    # A real module: torch's tracing looks globals up by the name of theirs.
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    names: dict[str, Any] = vars(main)
    torch.manual_seed(0)
    try:
        exec(compile(setup, "<setup>", "exec"), names)
    except BaseException:
        return f"the setup fails: {traceback.format_exc()}"
    try:
        exec(compile(snippet, "<snippet>", "exec"), names)
    except SizewiseError as problem:
        return problem.code
    except BaseException:
        return traceback.format_exc()
    return ""


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_has_a_page_and_every_page_a_code(code: str) -> None:
    assert page_of(code) is not None
    assert set(WRITTEN) <= set(ERRORS)


@pytest.mark.parametrize("code", WRITTEN)
def test_a_page_is_complete_and_true_to_its_class(code: str) -> None:
    page, error = read_page(PAGES / f"{code}.toml"), ERRORS[code]
    for text in (page.documentation, page.trigger, page.common_situations):
        assert len(text) > 60, text
    assert page.solutions and all(len(solution) > 15 for solution in page.solutions)
    assert page.prevention_tips
    assert page.handling_strategy in STRATEGIES
    assert page.severity in ("error", "warning")
    assert set(page.fields) == error.field_names()
    assert all(re.match(r"[a-z][\w\[\], |.]*: .", text, re.IGNORECASE) for text in page.fields.values())
    assert set(page.related) <= set(ERRORS) - {code} and page.related
    assert page.tags and all(re.fullmatch(r"[a-z0-9-]+", tag) for tag in page.tags)


@pytest.mark.parametrize("code", WRITTEN)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_code_of_a_page_does_what_it_says(code: str) -> None:
    page = read_page(PAGES / f"{code}.toml").code
    assert run(page.setup, page.bad) == code
    for name in ("fixed", "validation", "catch", "type_guard"):
        snippet = getattr(page, name)
        assert snippet or name == "type_guard"
        assert run(page.setup, snippet) == "", name


def test_a_record_has_the_line_that_raises() -> None:
    record = ERRORS["SW401"](argument="x", axis=0, seen=9, dim="batch", min=1, max=8, todo="").record
    lines = (Path(sizewise_root()) / record.filePath).read_text().splitlines()
    assert "SizeOutOfRange(" in lines[record.lineNumber - 1]
    assert record.sourceCode.splitlines()[record.lineNumber - record.sourceCodeStart] == lines[record.lineNumber - 1]
    assert record.errorCode == "SW401" and record.documentation and record.exampleFix
    assert re.fullmatch(record.messagePattern, "x.shape[0] is 9, outside dim 'batch' (1 to 8).")


def sizewise_root() -> str:
    import sizewise

    return str(Path(sizewise.__file__).parent.parent)
