"""Explaining pasted errors: what stands in front of every line, how a text was written down, chains of errors."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator

import pytest

from sizewise.errors.registry import errors_by_code
from sizewise.reference.explain import explain
from sizewise.reference.explain.chains import finals
from sizewise.reference.explain.escapes import unescaped
from sizewise.reference.explain.margins import without_margins
from sizewise.reference.store import Store

from .explain_support import LORA, NO_ADAPTER, VLLM_FRAME, ends, fill, template, told

HEAD = "Traceback (most recent call last):\n"
CALLED = '  File "/home/me/a.py", line 3, in <module>\n    main()\n'
FULL = f"{HEAD}{CALLED}{VLLM_FRAME}\n    raise ValueError(\n{NO_ADAPTER}\n"
MINE = f"{HEAD}  File \"/home/me/a.py\", line 5, in <module>\n    int('x')\nValueError: invalid literal for int()\n"
OTHER = FULL.replace("vllm/lora", "other/lora")
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with fill(Store(":memory:")) as made:
        yield made


def every(margin: str | Callable[[int], str]) -> Callable[[str], str]:
    def put(text: str) -> str:
        lines = enumerate(text.rstrip("\n").split("\n"))
        return "".join(f"{margin if isinstance(margin, str) else margin(number)}{line}\n" for number, line in lines)

    return put


def docker_json(text: str) -> str:
    return "".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in text.split("\n"))


FORMS: dict[str, Callable[[str], str]] = {
    "docker": every("app-1  | "),
    "kubernetes": every("2026-11-30T10:00:00.123456789Z stderr F "),
    "github": every("2026-11-30T10:00:00.1234567Z "),
    "mail": every("> "),
    "spaces": every("    "),
    "tab": every("\t"),
    "comment": every("# "),
    "directive": every(".. "),
    "slurm": every("3: "),
    "kubectl": every("[pod/app-7c/ctr] "),
    "heroku": every("2026-11-30T10:00:00.123456+00:00 app[web.1]: "),
    "cloudwatch": every(lambda number: f"2026-11-30T10:00:{number:02}.123Z 1-abc-def "),
    "clock": every(lambda number: f"12:00:{number:02} | "),
    "airflow": every("[2026-11-30, 10:00:00 UTC] {subprocess.py:93} INFO - "),
    "celery": every("[2026-11-30 10:00:00,123: ERROR/ForkPoolWorker-1] "),
    "logging": every("2026-11-30 10:00:00,123 ERROR app: "),
    "numbers": every(lambda number: f"{number + 1:6}\t"),
    "nested": every("> app-1  | "),
    "json": lambda text: json.dumps({"level": "error", "message": "failed", "exc_info": text}) + "\n",
    "json, deeper": lambda text: json.dumps({"a": [{"stack": text}], "message": "failed"}),
    "json, cut": lambda text: json.dumps({"message": "failed", "exc_info": text})[:-2],
    "json in json": lambda text: json.dumps({"log": json.dumps({"exc_info": text})}),
    "json lines": docker_json,
    "one line": lambda text: text.replace("\n", "\\n"),
    "repr": lambda text: f"it failed: {text!r}",
    "html": html.escape,
    "table": lambda text: 'id,text\n1,"' + text.replace('"', '""') + '"\n',
    "spaces of a page": lambda text: text.replace(" ", "\xa0"),
    "quotes of a mail": lambda text: text.replace('File "', "File \u201c").replace('", line', "\u201d, line"),
    "carriage returns": lambda text: text.replace("\n", "\r"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_traceback(form: str, store: Store) -> None:
    answer = explain(FORMS[form](FULL), store)
    assert template(answer) == LORA and answer.match and answer.match.confidence > 0.9
    assert any(reason.startswith("frame") for reason in answer.match.why)
    other = explain(FORMS[form](OTHER), store)
    assert (other.match, other.looks_like) == (None, "third-party")


@pytest.mark.parametrize("margins", [("web-1     | ", "worker-12 | "), ("0: ", "1: "), ("[a] ", "[b] ")])
def test_processes_with_margins_are_read_apart(margins: tuple[str, str], store: Store) -> None:
    pairs = zip(FULL.split("\n")[:-1], MINE.split("\n") + ["still on"] * 3, strict=False)
    text = "".join(f"{margins[0]}{one}\n{margins[1]}{two}\n" for one, two in pairs)
    assert [(one.error_class, len(one.frames)) for one in told(text)] == [("ValueError", 2), ("ValueError", 1)]
    assert template(explain(text, store)) == LORA


def test_lines_without_the_margin_stay_as_they_are() -> None:
    lines = [
        "a: b",
        "0: Traceback (most recent call last):",
        '0:   File "a.py", line 3',
        "0:     x",
        "ValueError: 0: y",
    ]
    found = without_margins(lines)
    assert [text for _, text in found] == ["a: b", HEAD.strip(), '  File "a.py", line 3', "    x", "ValueError: 0: y"]
    plain = ["it was so: Traceback (most recent call last):", "  and no frame", 'in File "a.py", line 3 is it']
    assert [text for _, text in without_margins(plain)] == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a &lt; b &amp;&amp; c", "a < b && c"),
        ("R&D; &c", "R&D; &c"),
        ('{"level": "error", "message": "ValueError: no"}', "ValueError: no"),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": "b" is no JSON}', '{"a": "b" is no JSON}'),
        ("C:\\new\\table", "C:\\new\\table"),
        ("\ufeffa\u200bb", "ab"),
        ("", ""),
    ],
)
def test_texts_as_they_were(text: str, said: str) -> None:
    assert unescaped(text) == said


@pytest.mark.parametrize(
    "text",
    [
        '{"' * 40_000,
        '{"a": ' * 3000 + "1" + "}" * 3000,
        ('"' + "\\" * 3999 + " Traceback (most recent call last)\n") * 40,
        "Traceback (most recent call last) \\n" * 8000,
        "&quot;" * 60_000,
        "".join(f"x{number} Traceback (most recent call last):\n" for number in range(6000)),
        "".join(f'{"a" * (number % 90)}:   File "a.py", line 3\n' for number in range(6000)),
    ],
)
def test_no_text_takes_long_to_read(text: str, store: Store) -> None:
    assert ends(lambda: explain(text, store))
    assert explain(text, store).match is None


def test_a_report_of_pytest_names_the_place(store: Store) -> None:
    place = "/env/lib/python3.12/site-packages/vllm/lora/worker_manager.py"
    long = f"E       {NO_ADAPTER}\n\n{place}:101: ValueError\n=== short test summary info ===\nFAILED t.py::t - x\n"
    short = f"t.py:3: in test\n    f()\n{place}:101: in _load_adapter\n    raise ValueError(\nE   {NO_ADAPTER}\n"
    for text in (long, short):
        answer = explain(text, store)
        assert template(answer) == LORA and answer.match and answer.match.confidence > 0.9
        assert explain(text.replace("/vllm/", "/other/"), store).match is None


# -- chains


def test_the_last_error_of_a_chain_is_the_one(store: Store) -> None:
    for between in (CAUSE, DURING):
        answer = explain(f"{FULL}{between}{MINE}", store)
        assert (answer.match, answer.looks_like) == (None, "interpreter")
        assert [one.record.errorMessage for one in answer.alternatives][:1] == [LORA]
        assert template(explain(f"{MINE}{between}{FULL}", store)) == LORA


def test_an_error_that_points_to_its_cause_leaves_it_the_answer(store: Store) -> None:
    pointing = (
        f'{HEAD}  File "/home/me/a.py", line 9, in f\n    raise RuntimeError(\nRuntimeError: it failed. See above.\n'
    )
    stopped = f'{HEAD}  File "/home/me/a.py", line 9, in f\n    wait()\nKeyboardInterrupt\n'
    for last in (pointing, stopped):
        assert template(explain(f"{FULL}{DURING}{last}", store)) == LORA


def test_an_error_that_a_pool_raises_again_is_the_same(store: Store) -> None:
    again = f'{HEAD}  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get\n    raise self._value\n'
    text = f'multiprocessing.pool.RemoteTraceback: \n"""\n{FULL}"""\n{CAUSE}{again}{NO_ADAPTER}\n'
    assert template(explain(text, store)) == LORA


def test_what_is_named_in_a_message_goes_with_it() -> None:
    inner = f"{HEAD}  File \"a.py\", line 1, in f\n    raise A\ntorch._inductor.exc.InductorError: KeyError: 'a'\n"
    errors = told(f"{inner}{CAUSE}{MINE}")
    assert [(one.short_class, one.relation) for one in errors] == [
        ("InductorError", "cause"),
        ("KeyError", "inside"),
        ("ValueError", "alone"),
    ]
    assert finals(errors) == errors[2:]
    assert finals(errors[:2]) == errors[:2]


# -- codes


def own_error() -> str:
    found = errors_by_code()["SW401"]
    return f"sizewise.errors.call.{found.__name__}: {found(**dict.fromkeys(found.field_names(), 9))}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[SW401]", "SW401"),
        ("what was said\n  [SW401] sizewise explain SW401\n", "SW401"),
        ("2026-01-01 10:00:00 ERROR app: no [SW401] sizewise explain SW401", "SW401"),
        ("SizeOutOfRange: cut off [SW401]", "SW401"),
        ("the switch [SW102] failed\nValueError: x", None),
        ("RuntimeError: port [SW401] is down", None),
        ("numpy.linalg.LinAlgError: switch port [SW401] is down", None),
        ("x [SW401] y [SW101]", None),
        ("[SW999] sizewise explain SW999", None),
    ],
)
def test_codes_that_are_meant(text: str, code: str | None) -> None:
    answer = explain(text, None)
    assert (answer.match.record.errorCode if answer.match else None) == code


def test_a_code_before_another_error_is_not_the_answer() -> None:
    mine = f'{HEAD}  File "a.py", line 1, in f\n    g()\n{own_error()}\n'
    assert explain(f"{MINE}{CAUSE}{mine}", None).match is not None
    assert explain(f"{mine}{DURING}{MINE}", None).match is None
    assert explain(f"{mine}\nlater\n{MINE}", None).match is None
