"""What is written about errors of the installed stack: its form, that torch still says it, and that its code runs."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from sizewise.errors.record import Record, holes_emptied, pattern_of
from sizewise.reference.overlay import FOLDER, MATCHES, Written, entries, entry_for, read_file, written_for
from sizewise.reference.site.written import written
from sizewise.reference.store import Distribution, Site, Stored

ENTRIES = entries()
TORCH = [entry for entry in ENTRIES if entry.package == "torch"]
RUN = [entry for entry in TORCH if entry.code.runs]
ROOT = Path(torch.__file__).parent.parent
READ_IN = {"torch": "2.13.0", "vllm": "0.32.0"}
SEEDS = {
    "82c172d787b6e198": "CUDA graph capturing detected at an inappropriate time. This",
    "ddc0dd9b4500d875": "cudagraph_capture_sizes not supported in compile_sizes.This",
    "785b2071474ad1f2": "Invalid backend for piecewise compilation: {self.backend}",
}
RELATED = [
    "vLLM failed to compile the model. The most likely reason for",
    "Attribute {key} not exists in the runnable of cudagraph wrap",
    "Source code has changed since the last compilation. Recompil",
    "CUDA graph capturing detected at an inappropriate time. This",
    "Input {arg} to maybe_inplace node {node} is used again after",
]


def name_of(entry: Written) -> str:
    return f"{entry.error_class}-{re.sub(r'[^a-z0-9]+', '-', entry.template.lower())[:40]}"


def texts_of(entry: Written) -> list[str]:
    code = entry.code
    return [
        text for text in (code.setup, code.before, code.after, code.validation, code.type_guard, code.catch) if text
    ]


# -- form


def test_there_are_enough_and_no_two_are_alike() -> None:
    assert len(ENTRIES) >= 40
    keys = Counter((entry.package, entry.error_class, entry.template) for entry in ENTRIES)
    assert not [key for key, count in keys.items() if count > 1]
    aliases = Counter(alias for entry in ENTRIES for alias in entry.aliases)
    assert not [alias for alias, count in aliases.items() if count > 1]


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_form(entry: Written) -> None:
    assert entry.match in MATCHES
    assert entry.read_in == READ_IN[entry.package]
    assert entry.file.startswith(f"{entry.package}/") and entry.file.endswith(".py")
    assert entry.function and entry.documentation and entry.trigger and entry.literals and entry.solutions
    assert entry.handling_strategy in {"validation", "configuration", "code-change", "environment", "catch"}
    # Whole, or with words enough to be no other error's; an empty one stands for a class that says one thing.
    assert entry.match == "whole" or len(entry.template) >= 16 or not entry.template
    assert entry.tags and all(re.fullmatch(r"[a-z0-9-]+", tag) for tag in entry.tags)
    assert len(set(entry.tags)) == len(entry.tags)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}", alias) for alias in entry.aliases)
    said = [entry.documentation, entry.trigger, entry.common_situations, *entry.solutions, *entry.prevention_tips]
    assert all(text.endswith((".", ")", "?")) or not text for text in said), said


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_code_is_python_and_short(entry: Written) -> None:
    for text in texts_of(entry):
        ast.parse(text)
        assert len(text.strip().splitlines()) <= 12
    assert bool(entry.code.before) == bool(entry.code.after)
    assert not entry.code.runs or entry.code.before


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_fields_are_those_of_a_record(entry: Written) -> None:
    fields = entry.fields()
    assert set(fields) - {"aliases", "setup"} <= set(Record.__dataclass_fields__)
    assert all(fields.values())


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text((FOLDER / "inductor.toml").read_text().replace("\ndocumentation", '\nnope = "x"\ndocumentation', 1))
    with pytest.raises(TypeError, match="nope"):
        read_file(path)


# -- looking up


def test_the_seeds_and_their_related_errors_are_there() -> None:
    of_vllm = [entry for entry in ENTRIES if entry.package == "vllm"]
    for alias, title in SEEDS.items():
        (entry,) = [entry for entry in of_vllm if alias in entry.aliases]
        assert holes_emptied(entry.template).startswith(holes_emptied(title))
    for title in RELATED:
        # A title that ends in a hole's middle has none there.
        start = holes_emptied(title)
        assert any(entry.template.startswith(start) for entry in of_vllm), title


def test_looking_up_is_by_package_class_and_template() -> None:
    template = "Invalid backend for piecewise compilation: {self.backend}"
    found = written_for("vllm", "ValueError", template)
    assert found["aliases"] == ["785b2071474ad1f2"]
    assert written_for("vllm", "some.module.ValueError", template.replace("self.backend", "name")) == found
    assert not written_for("torch", "ValueError", template)
    assert not written_for("vllm", "RuntimeError", template)
    assert not written_for("vllm", "ValueError", template + ".")
    assert not written_for("vllm", None, template)


def test_a_start_matches_no_longer_name() -> None:
    assert entry_for("torch", "torch._dynamo.exc.Unsupported", "Data-dependent branching\n  Explanation: {...}")
    assert not entry_for(
        "torch", "torch._dynamo.exc.Unsupported", "Data-dependent branching with non-constant __bool__\n"
    )


def test_the_site_uses_it() -> None:
    origin = Distribution("vllm", "0.32.0", "/x", "", None, "2026-01-01T00:00:00Z")
    site = Site("vllm/config/compilation.py", 1, "f", "")
    template = "Invalid backend for piecewise compilation: {self.backend}"
    stored = Stored("0" * 16, "raise", "ValueError", template, ".*", "x", 40, (site,), origin)
    assert "inductor" in written(stored)["documentation"]


# -- torch says it


@pytest.mark.parametrize("entry", TORCH, ids=name_of)
def test_the_literals_stand_in_the_installed_file(entry: Written) -> None:
    if version("torch").split("+")[0] != entry.read_in:
        pytest.skip(f"written for torch {entry.read_in}")
    text = (ROOT / entry.file).read_text()
    for literal in entry.literals:
        assert literal in text
    assert re.search(rf"(def|class) {entry.function.rpartition('.')[2]}\b", text)


# -- its code runs


def chain(problem: BaseException) -> list[BaseException]:
    found = [problem]
    while (before := found[-1].__cause__ or found[-1].__context__) is not None and before not in found:
        found.append(before)
    return found


def execute(*texts: str) -> None:
    torch._dynamo.reset()
    exec(compile("\n".join(texts), "<overlay>", "exec"), {"__name__": "overlay"})


def says(problem: BaseException, entry: Written) -> bool:
    classes = {entry.error_class, entry.code.raises} - {""}
    named = {one.__name__ for one in type(problem).__mro__}
    # What the template says, wherever it stands in the message: some classes put words around it.
    return bool(classes & named) and bool(re.search(pattern_of(entry.template), str(problem)))


def message_of_class_raised(entry: Written, problem: BaseException) -> bool:
    texts = [str(one) for one in chain(problem)]
    if entry.code.raises:
        words = holes_emptied(entry.template).split("{}")[0].strip()
        return type(problem).__name__ == entry.code.raises and any(words in text for text in texts)
    return any(says(one, entry) for one in chain(problem))


@pytest.mark.parametrize("entry", RUN, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_the_code_before_raises_the_error(entry: Written) -> None:
    if version("torch").split("+")[0] != entry.read_in:
        pytest.skip(f"written for torch {entry.read_in}")
    with pytest.raises(BaseException) as caught:
        execute(entry.code.setup, entry.code.before)
    assert message_of_class_raised(entry, caught.value), repr(caught.value)


@pytest.mark.parametrize("entry", RUN, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_the_other_code_runs(entry: Written) -> None:
    code = entry.code
    if code.validation:
        execute(code.setup, code.validation)
    if code.needs == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for text in (code.after, code.type_guard, code.catch):
        if text:
            execute(code.setup, text)


def test_validation_code_without_an_example_runs() -> None:
    for entry in TORCH:
        if entry.code.validation and not entry.code.runs:
            execute(entry.code.setup, entry.code.validation)


def test_the_seed_s_validation_reads_the_flag_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM is not installed where tests run: a module of its name that holds the flag stands for it."""
    package, compilation, monitor = (ModuleType(f"vllm{tail}") for tail in ("", ".compilation", ".compilation.monitor"))
    monitor.__dict__["cudagraph_capturing_enabled"] = True
    compilation.__dict__["monitor"] = monitor
    for module in (package, compilation, monitor):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    (entry,) = [entry for entry in ENTRIES if "82c172d787b6e198" in entry.aliases]
    scope: dict[str, Any] = {}
    exec(entry.code.validation, scope)
    assert scope["may_capture"]() is True
    monitor.__dict__["cudagraph_capturing_enabled"] = False
    assert scope["may_capture"]() is False
