"""Advice on errors without a record: what torch raises in C++, and graph breaks by their id."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from sizewise.cli.explain_shown import pieces_of
from sizewise.reference.advice import Written, advice_for, entries
from sizewise.reference.advice.graph_breaks import graph_break, id_in, id_of
from sizewise.reference.explain import Answer, explain, named
from sizewise.reference.store import Distribution, Site, Store

from .explain_support import fill, stored

ENTRIES = entries()
RUN = [entry for entry in ENTRIES if entry.code.before and not entry.code.needs]
REGISTRY = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
SAID = [
    # what torch says on a CUDA device
    ("RuntimeError", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
    ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB"),
    ("torch.cuda.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("torch.AcceleratorError", "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronous"),
    ("RuntimeError", "CUDA error: device-side assert triggered"),
    ("RuntimeError", "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"),
    ("RuntimeError", "expected m1 and m2 to have the same dtype, but got: float != double"),
]


def name_of(entry: Written) -> str:
    return re.sub(r"[^a-z0-9]+", "-", entry.pattern.lower())[:40]


def execute(*texts: str) -> None:
    scope: dict[str, object] = {}
    for text in texts:
        exec(text, scope)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with fill(Store(":memory:")) as made:
        yield made


def shown(answer: Answer) -> str:
    return "\n".join(text for text, _ in pieces_of(answer))


# -- what is written


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_form(entry: Written) -> None:
    assert entry.package == "torch C++" and entry.read_in == "2.13.0"
    assert entry.classes and entry.documentation.endswith(".") and len(entry.solutions) >= 2
    assert all(text.endswith((".", ")")) for text in entry.solutions)
    assert entry.code.needs in ("", "cuda") and (entry.code.needs or entry.code.before)
    assert bool(entry.code.before) == bool(entry.code.after)
    for text in (entry.code.setup, entry.code.before, entry.code.after):
        ast.parse(text)


@pytest.mark.parametrize("entry", RUN, ids=name_of)
def test_the_code_before_raises_what_the_pattern_says_and_the_code_after_runs(entry: Written, store: Store) -> None:
    if version("torch").split("+")[0] != entry.read_in:
        pytest.skip(f"written for torch {entry.read_in}")
    with pytest.raises(Exception) as caught:
        execute(entry.code.setup, entry.code.before)
    error = caught.value
    assert entry.says(type(error).__name__, str(error)), str(error)
    assert [one for one in ENTRIES if one.says(type(error).__name__, str(error))] == [entry]
    # It is no record: no Python line raised it.
    answer = explain(f"{type(error).__name__}: {error}", store)
    assert (answer.match, answer.looks_like) == (None, "cpp"), str(error)
    assert answer.advice is not None and answer.advice.documentation == entry.documentation
    execute(entry.code.setup, entry.code.after)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.code.needs], ids=name_of)
def test_the_code_for_a_device(entry: Written) -> None:
    if not torch.cuda.is_available() or not entry.code.before:
        pytest.skip("needs a CUDA device, or would leave it unusable")
    with pytest.raises(Exception) as caught:
        execute(entry.code.setup, entry.code.before)
    assert entry.says(type(caught.value).__name__, str(caught.value)), str(caught.value)
    execute(entry.code.setup, entry.code.after)


@pytest.mark.parametrize(("error_class", "message"), SAID)
def test_messages_of_a_device_have_advice(error_class: str, message: str, store: Store) -> None:
    answer = explain(f"{error_class}: {message}", store)
    assert answer.match is None and answer.looks_like == "cpp" and answer.advice is not None
    assert answer.advice.why.startswith("pattern") and answer.advice.title == message.split("\n")[0]


@pytest.mark.parametrize(
    ("error_class", "message"),
    [
        ("ValueError", "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ("RuntimeError", "we got: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        ("RuntimeError", "something else"),
        ("RuntimeError", ""),
    ],
)
def test_no_advice_for_other_messages(error_class: str, message: str) -> None:
    assert advice_for(error_class, message) is None


def test_facts_that_the_advice_states() -> None:
    def message(call: str) -> str:
        with pytest.raises((RuntimeError, IndexError)) as caught:
            execute("import torch", call)
        return str(caught.value)

    assert "(14x5 and 3x4)" in message("torch.nn.Linear(3, 4)(torch.zeros(2, 7, 5))")
    assert "tensor a (2)" in message("torch.zeros(2) + torch.zeros(4, 3)")
    assert "dimension 1" in message("torch.zeros(2) + torch.zeros(4, 3)")
    assert (
        message("torch.nn.functional.embedding(torch.tensor([-1]), torch.zeros(3, 2))") == "index out of range in self"
    )
    assert message("torch.zeros(3).index_select(0, torch.tensor([5]))") == "index out of range in self"
    assert "ambiguous" in message("torch.zeros(2) in [torch.zeros(2)]")
    assert "ambiguous" in message("max(torch.zeros(2), torch.zeros(2))")
    execute("import torch", "torch.nn.functional.cross_entropy(torch.randn(2, 3), torch.tensor([1, -100]))")


def test_an_error_from_cpp_is_told_as_such_with_the_line_that_called(store: Store) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/me/mm.py", line 3, in net\n    return x @ w\n'
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n"
    )
    answer = explain(text, store)
    lines = shown(answer)
    assert "Your line:  /home/me/mm.py:3, in net\n            return x @ w" in lines and "# after\n" in lines
    assert "Origin:     torch's C++ code" in lines and "Raised at" not in lines
    data = json.loads(json.dumps(answer.to_json()))
    assert data["match"] is None and data["advice"]["package"] == {"name": "torch C++", "version": "2.13.0"}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "CUDA_LAUNCH_BLOCKING=1"),
        (
            '  File "/me/a.py", line 1, in f\n    x.exp_()\nRuntimeError: "exp" not implemented for \'Int\'',
            "Print shape",
        ),
        ("peft.errors.PeftError: odd", "`sizewise errors index peft`"),
        (
            '  File "/me/a.py", line 1, in f\n    a, b = c\nValueError: too many values to unpack (expected 2)',
            "your line",
        ),
        (
            '  File "/me/a.py", line 1, in f\n    raise ValueError("x")\nValueError: my own',
            "Your own line above raises it",
        ),
        ("all is well", "Give the whole traceback"),
    ],
)
def test_a_next_step_is_said(text: str, step: str, store: Store) -> None:
    answer = explain(text, store)
    assert answer.match is None and step in shown(answer).partition("\nNext\n")[2]


# -- graph breaks


@pytest.mark.parametrize(
    ("name", "key"), [("GB0170", "GB0170"), ("gb0170", "GB0170"), ("GB-0170", "GB0170"), ("GB17", ""), ("xGB0170", "")]
)
def test_ids(name: str, key: str) -> None:
    assert id_of(name) == key


def test_the_registry_of_the_indexed_torch_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "_dynamo"
    folder.mkdir(parents=True)
    wordings = [
        {"Gb_type": "Bent", "Explanation": '"It " + x', "Hints": []},
        {"Gb_type": "Bent", "Explanation": "It is bent.", "Hints": ["Make it  straight.", "hint_name"]},
    ]
    (folder / "graph_break_registry.json").write_text(json.dumps({"GB9998": wordings, "GB9997": [3]}))
    origin = Distribution("torch", "9.9", str(tmp_path), "", None, "2026-01-01T00:00:00Z")
    record = stored(
        60, ("graph-break", "torch._dynamo.exc.Unsupported", "Bent\n  Explanation: {x}", "torch/b.py", "f", "")
    )
    sites = [Site("torch/b.py", n, "f", "", {"gbid": "GB9998"}) for n in (1, 2)]
    with Store(":memory:") as store:
        store.replace(origin, [type(record)(**{**vars(record), "sites": tuple(sites), "distribution": origin})])
        found = graph_break("GB9998", store)
        assert found and (found.title, found.documentation, found.read_in) == ("Bent", "It is bent.", "9.9")
        assert found.solutions == ("Make it straight.",) and found.link and found.link.endswith("/gb/gb9998.html")
        assert [one.record.errorMessage for one in named("gb9998", store)] == ["Bent\n  Explanation: {x}"]
        assert graph_break("GB9996", store) is graph_break("GB9997", store) is graph_break("", store) is None
        (folder / "graph_break_registry.json").write_text("[")
        assert graph_break("GB9998", store) is None
        # A link in a text that no record fits.
        text = "torch._dynamo.exc.Unsupported: new words\n visit: https://meta-pytorch.github.io/x/gb/gb0170.html"
        assert id_in(text) == "GB0170" and id_in("https://example.com/gb") == ""


@pytest.mark.skipif(not REGISTRY.is_file(), reason="this torch has no registry")
def test_the_registry_of_the_installed_torch_is_read_without_an_index() -> None:
    found = graph_break("GB0170", None)
    assert found is not None and found.title == "Data-dependent branching" and "torch.cond" in " ".join(found.solutions)
    known = json.loads(REGISTRY.read_text())
    told = [graph_break(key, None) for key in list(known)[:40]]
    assert all(one is not None and one.title for one in told)
