"""Explaining errors of other versions: texts, classes and numbers that changed, and those that are other errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sizewise.errors.record import pattern_of, slug_of
from sizewise.reference.explain import Answer, explain
from sizewise.reference.explain.lines import read_lines
from sizewise.reference.explain.reworded import changes
from sizewise.reference.explain.wording import Said, fit, words_of
from sizewise.reference.store import Distribution, Site, Store, Stored

from .explain_support import template

OVERWRITTEN = (
    "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: {trace}. "
    "To prevent overwriting, clone the tensor outside of torch.compile()."
)
CONSTRAINTS = "Constraints violated ({names})! For more information, run with TORCH_LOGS."
RANGES = "top_p must be in (0, 1], got {self.top_p}."
PYTHON = "Python 3.15+ not yet supported for torch.compile"
SAMPLER = (
    "CUDA out of memory occurred when warming up sampler with {n} dummy requests. Please try lowering `max_num_seqs` "
    "when initializing the engine."
)
FAKE = "Expected all tensors to be on the same device, but found at least two devices, {a} and {b}!"
UNPICKLED = "Weights only load failed. This file can still be loaded, \x1b[1mdo that only if you trust it\x1b[0m."
EVENT = "The log level says that the event is not the toplevel one here. Consider using `{name}` directly."
SIBLING = "The log level says that the event is not the toplevel one here. Consider using `other_method` directly."
GUARD = "Could not guard on data-dependent expression {expr} (unhinted: {unhinted}).  {symbols}\n\nCaused by: {stack}"
RECORDS = [
    # kind, class, template, what else is known of the place
    ("handed-on", None, OVERWRITTEN, {}),
    ("raise", "torch.shapes.ConstraintViolationError", CONSTRAINTS, {}),
    ("raise", "vllm.exceptions.ValidationError", RANGES, {}),
    ("raise", "RuntimeError", PYTHON, {}),
    ("raise", "RuntimeError", SAMPLER, {}),
    ("raise", "torch.fake.DeviceMismatchError", FAKE, {"base": "RuntimeError"}),
    ("raise", "pickle.UnpicklingError", UNPICKLED, {}),
    ("raise", "RuntimeError", EVENT, {}),
    ("raise", "RuntimeError", SIBLING, {}),
    ("raise", "KeyError", "there is no such setting here: {name}", {}),
    ("raise", "torch.exc.TooOld", "The device {name} is too old for this", {"base": "LookupError"}),
    ("raise", "TypeError", "{name} must be contiguous", {}),
    ("raise", "ValueError", "The number of heads of this model has to be divisible by the parallel size {n}", {}),
    ("raise", "torch.shapes.GuardError", GUARD, {}),
]  # fmt: skip


def record(number: int, row: tuple[str, str | None, str, dict[str, str]]) -> Stored:
    kind, error_class, text, extra = row
    origin = Distribution("torch", "1.0", "/nowhere", "", None, "2026-01-01T00:00:00Z")
    site = Site(f"torch/m{number}.py", 10 + number, f"f{number}", "", extra)
    literals = sum(map(len, text.split()))
    return Stored(f"{number:016x}", kind, error_class, text, pattern_of(text), slug_of(text), literals, (site,), origin)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store(":memory:") as made:
        records = [record(number, row) for number, row in enumerate(RECORDS)]
        made.replace(records[0].distribution, records)
        yield made


def answered(text: str, store: Store) -> str | None:
    answer: Answer = explain(text, store, own=False)
    return template(answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # made in Python, raised in C++, wherever that is called from
        (f"RuntimeError: {OVERWRITTEN.format(trace='File a.py, line 3, in f')}", OVERWRITTEN),
        (f'  File "m.py", line 3, in f\n    return x + 1\nRuntimeError: {OVERWRITTEN.format(trace="x")}', OVERWRITTEN),
        (f"RuntimeError: {OVERWRITTEN[:102]} File a.py, line 68, in decode_one_token of it", OVERWRITTEN),
        # another class
        (f"torch._dynamo.exc.UserError: {CONSTRAINTS.format(names='batch, dz')}", CONSTRAINTS),
        ("ValueError: top_p must be in (0, 1], got 0.0.", RANGES),
        ("LookupError: The device X is too old for this", RECORDS[10][2]),
        ("ZeroDivisionError: top_p must be in (0, 1], got 0.0.", None),
        ("TypeError: Python 3.15+ not yet supported for torch.compile", PYTHON),
        ("AssertionError: The number of heads of this model has to be divisible by the parallel size", RECORDS[12][2]),
        # cut right behind what was filled in
        ("torch.shapes.GuardError: Could not guard on data-dependent expression u0 < 0 (unhinted: u0 < 0).", GUARD),
        # other numbers
        ("RuntimeError: Python 3.11+ not yet supported for torch.compile", PYTHON),
        # words of C++ in a text of one's own, and a copy of what C++ says
        (f"RuntimeError: {SAMPLER.format(n=1024)}", SAMPLER),
        (f"RuntimeError: {FAKE.format(a='cuda:0', b='cpu')} (when checking argument mat1)", None),
        # of the standard library; the colours are lost when it is pasted
        ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, do that only if you trust "
         "it.", UNPICKLED),
        # the text with more around it rather than its sibling
        (f"RuntimeError: Failed to start: {EVENT.format(name='add_data')}", EVENT),
        # quoted by Python
        ("KeyError: 'there is no such setting here: a.b'", RECORDS[9][2]),
        ('KeyError: "there is no such setting here: \'a\'"', RECORDS[9][2]),
        # short and general
        ("TypeError: the rank map must be contiguous", None),
        # a word changed; the subject, a name, or what it says changed
        ("ValueError: The number of heads of this model has to be dividable by the parallel size 8", RECORDS[12][2]),
        ("ValueError: The sum of heads of this model has to be divisible by the parallel size 8", None),
    ],
)  # fmt: skip
def test_answers_for_other_versions(text: str, expected: str | None, store: Store) -> None:
    assert answered(text, store) == expected


@pytest.mark.parametrize(
    ("template", "message", "few"),
    [
        ("one two three four five six seven eight nine", "one two three four other six seven eight nine", True),
        ("one two three four five six seven eight nine", "one two three four six seven eight nine", True),
        ("one two three {x} five six seven eight nine ten", "one two three a b five six seven eight nine ten", True),
        ("one two three four five six seven eight nine", "one two 3 four 5 six seven eight nine", False),
        ("one two three four five six seven eight nine", "other two three four five six seven eight nine", False),
        ("one two three four five six seven eight nine", "one two three not four five six seven eight nine", False),
        ("one two three four a_name six seven eight nine", "one two three four b_name six seven eight nine", False),
        ("one two three four", "one two other four", False),
        (" ".join(["word"] * 90), " ".join(["word"] * 90), False),
    ],
)  # fmt: skip
def test_few_words_may_change(template: str, message: str, few: bool) -> None:
    assert (changes(template, words_of(message)) <= 1) is few


def test_a_message_may_end_in_a_hole_behind_much_of_a_template() -> None:
    long, short = "word " * 20 + "{x} and then", "few words {x} and then"
    cut: Sequence[str] = [text.partition("{")[0] + "several words are here" for text in (long, short)]
    found = [fit(text, Said.of(message)) for text, message in zip((long, short), cut, strict=True)]
    assert found[0] and found[0].form == "shorter"
    assert found[1] is None or found[1].form == "words"


@pytest.mark.parametrize(
    "raw",
    [
        "[1;36m(EngineCore_0 pid=1)[0;0m ERROR 08-20 10:00:00 [core.py:700] ValueError: no",
        "\ufffd[36m(RayWorkerWrapper pid=1)\ufffd[0m ValueError: no",
        "2025-05-01T10:00:00.123456789Z stderr F ValueError: no",
        "(EngineCore pid=11) ERROR 04-08 17:50:12 [v1/engine/core.py:1110] ValueError: no",
        "vllm-1  | (APIServer pid=1) ValueError: no",
    ],
)
def test_more_prefixes_are_taken_off(raw: str) -> None:
    assert [line.text for line in read_lines(raw)] == ["ValueError: no"]


def test_a_list_in_a_message_is_no_colour() -> None:
    assert [line.text for line in read_lines("ValueError: got [12] and [3mm]")] == ["ValueError: got [12] and [3mm]"]
