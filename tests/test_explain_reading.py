"""Explaining pasted errors: what is read out of a text, and how messages are compared."""

from __future__ import annotations

import pytest

from sizewise.reference.explain.lines import read_lines
from sizewise.reference.explain.wording import Said, fit

from .explain_support import ends, told

# -- reading a text


@pytest.mark.parametrize(
    "raw",
    [
        "ValueError: no",
        "(EngineCore_DP0 pid=1) ERROR 12-15 18:57:10 [core.py:918] ValueError: no",
        "(RayWorkerWrapper pid=1, ip=10.0.0.1) ValueError: no",
        "[rank0]: ValueError: no",
        "[1,0]<stderr>:ValueError: no",
        "\x1b[31m\x1b[1mValueError: no\x1b[0m",
        "2024-01-01 10:00:00,123 - vllm.engine - ERROR - ValueError: no",
        "[2024-01-01 10:00:00,123] torch._dynamo: [ERROR] ValueError: no",
        "[rank0]:E0227 18:27:10.123000 12345 torch/_dynamo/x.py:123] [0/0] ValueError: no",
        "server-1  | ValueError: no",
        "Jan 01 10:00:00 host serve[12]: ValueError: no",
        "  | ValueError: no",
        "> ValueError: no",
        "E       ValueError: no",
    ],
)
def test_prefixes_are_taken_off(raw: str) -> None:
    assert [line.text for line in read_lines(raw)] == ["ValueError: no"]
    assert [(one.error_class, one.message) for one in told(raw)] == [("ValueError", "no")]


def test_a_log_line_keeps_its_level_and_file() -> None:
    (line,) = told("INFO 02-01 10:00:00 selector.py:144] Cannot use it.")
    assert (line.kind, line.level, line.file, line.line, line.message) == (
        "log",
        "INFO",
        "selector.py",
        144,
        "Cannot use it.",
    )


def test_a_traceback_with_its_frames() -> None:
    (error,) = told(
        "Traceback (most recent call last):\n"
        '  File "C:\\env\\Lib\\site-packages\\torch\\a.py", line 12, in outer\n    inner(\n    ^^^^^^\n'
        '  File "/app/b.py", line 3, in inner\n    raise ValueError(\n'
        "        x\n    )\nValueError: first line\n  second line"
    )
    assert [(frame.parts[-1], frame.line, frame.function) for frame in error.frames] == [
        ("a.py", 12, "outer"),
        ("b.py", 3, "inner"),
    ]
    assert error.frames[0].package == "torch"
    assert error.adjacent and error.raises and error.message == "first line\n  second line"


def test_chains_and_groups() -> None:
    chain = (
        "KeyError: 'a'\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 3, in f\n    raise X\nRuntimeError: second\n'
    )
    assert [(one.error_class, one.relation) for one in told(chain)] == [
        ("KeyError", "cause"),
        ("RuntimeError", "alone"),
    ]
    group = (
        '  + Exception Group Traceback (most recent call last):\n  |   File "a.py", line 1, in f\n  |     raise g\n'
        "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | ValueError: one\n    +---------------- 2 ----------------\n    | TypeError: two\n    +----------------\n"
    )
    assert [one.error_class for one in told(group)] == ["ExceptionGroup", "ValueError", "TypeError"]


def test_errors_inside_messages() -> None:
    double = told("torch._inductor.exc.InductorError: AssertionError: vr is None")
    assert [one.short_class for one in double] == ["InductorError", "AssertionError"]
    listed = told(
        "pydantic.ValidationError: 1 validation error for Config\n  Value error, no [type=value_error, input_value=1]"
    )
    assert [(one.short_class, one.relation) for one in listed] == [
        ("ValidationError", "alone"),
        ("ValueError", "inside"),
    ]
    assert listed[1].message == "no"


def test_processes_are_read_apart() -> None:
    text = (
        "(A pid=1) Traceback (most recent call last):\n(B pid=2) Traceback (most recent call last):\n"
        '(A pid=1)   File "a.py", line 1, in fa\n(B pid=2)   File "b.py", line 2, in fb\n'
        "(B pid=2)     raise T\n(A pid=1)     raise V\n(A pid=1) ValueError: a\n(B pid=2) TypeError: b\n"
    )
    assert [(one.error_class, one.frames[0].function) for one in told(text)] == [
        ("ValueError", "fa"),
        ("TypeError", "fb"),
    ]


def test_a_notebooks_traceback() -> None:
    (error,) = told(
        "ValueError                                Traceback (most recent call last)\n"
        "File /env/site-packages/vllm/utils.py:1022, in deprecate.<locals>.inner(*args)\n"
        "   1015     x\n-> 1022 raise ValueError(y)\n\nValueError: no"
    )
    assert error.frames[-1].line == 1022 and error.frames[-1].source == "raise ValueError(y)" and error.message == "no"


def test_a_warning_has_its_file() -> None:
    (warning,) = told("/env/torch/lr.py:12: UserWarning: slow\n  warnings.warn(")
    assert (warning.kind, warning.error_class, warning.message) == ("warning", "UserWarning", "slow")


# -- comparing words


@pytest.mark.parametrize(
    ("message", "form"),
    [
        ("Model x does not fit into 3 GiB.", "whole"),
        ("Sorry: Model x does not fit into 3 GiB. Buy more.", "longer"),
        ("Model x does not fit", "shorter"),
        ("The model does not fit into memory", "words"),
        ("Something else entirely", None),
    ],
)
def test_forms_of_a_fit(message: str, form: str | None) -> None:
    found = fit("Model {name} does not fit into {size} GiB.", Said.of(message))
    assert (found.form if found else None) == form


def test_doubled_braces_are_literal() -> None:
    found = fit("pass `{{'key': ...}}` to {name}", Said.of("pass `{'key': ...}` to f"))
    assert found and found.form == "whole"


def test_no_template_takes_long() -> None:
    template = "{a}" + " a{b}" * 400 + "x"
    assert ends(lambda: fit(template, Said.of("a " * 3000)))
