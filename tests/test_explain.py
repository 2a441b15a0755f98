"""Explaining pasted errors: what is read out of a text, what is an answer, and what is none."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sizewise.cli import explaining
from sizewise.cli.explain import explain as explain_command
from sizewise.cli.output import guarded
from sizewise.errors.record import pattern_of, slug_of
from sizewise.errors.registry import errors_by_code
from sizewise.reference.explain import Answer, explain, named, read_bounded
from sizewise.reference.explain.lines import read_lines
from sizewise.reference.explain.paste import read
from sizewise.reference.explain.told import Told
from sizewise.reference.explain.wording import Said, fit
from sizewise.reference.store import Distribution, Site, Store, Stored

from .command_line import environment

LORA = "Loading lora {name} failed: No adapter found for {path}"
MEMORY = (
    "To serve at least one request with the model's max seq len ({a}), ({b} GiB KV cache is needed, which is larger "
    "than the available KV cache memory ({c} GiB). Try increasing `gpu_memory_utilization` (which also controls CPU "
    "memory) or decreasing `max_model_len` when initializing the engine. See the documentation for more details."
)
STATES = "expected to be in states {states} but current state is {state}"
RECORDS = [
    # kind, class, template, path, function, condition
    ("raise", "RuntimeError", "Engine core failed to start. See root cause above.", "vllm/v1/utils.py", "wait", "died"),
    ("raise", "ValueError", LORA, "vllm/lora/worker_manager.py", "Manager._load_adapter", "path is None"),
    ("raise", "ValueError", MEMORY, "vllm/v1/core/kv.py", "check", "needed > available"),
    ("raise", "ValueError", STATES, "torch/fsdp.py", "_assert_in", "state not in states"),
    ("raise", "ValueError", "{a} does not support {b}", "vllm/x.py", "check", ""),
    ("raise", "RuntimeError", "mat1 and mat2 must have the same dtype", "torch/_meta.py", "meta_mm", ""),
    ("raise", "AttributeError", "'{a}' object has no attribute '{b}'", "torch/nn/module.py", "Module.__getattr__", ""),
    ("assert", "AssertionError", "vr must not be None for symbol {k}", "torch/_inductor/x.py", "evaluate", "vr"),
    (
        "assert",
        "AssertionError",
        "assert output == other_output",
        "vllm/e.py",
        "_run_workers",
        "output == other_output",
    ),
    (
        "raise",
        "torch._dynamo.exc.Unsupported",
        "Data-dependent branching\n  Explanation: {x}",
        "torch/_dynamo/s.py",
        "j",
        "",
    ),
    ("raise", "torch.fake.DataDependentOutputException", "{func}", "torch/fake_impls.py", "data_dep", ""),
    ("raise", "RuntimeError", "stack expects each tensor to be equal size", "torch/_refs/__init__.py", "check", ""),
    ("log", None, "Cannot use FlashAttention-2 backend for head size {size}.", "vllm/selector.py", "choose", ""),
    ("warn", "UserWarning", "Detected call of `step()` before `optimizer.step()`.", "torch/lr.py", "step", ""),
]
VLLM_FRAME = '  File "/env/lib/python3.12/site-packages/vllm/lora/worker_manager.py", line 138, in _load_adapter'
LOGGED = "(EngineCore_DP0 pid=1) ERROR 12-15 18:57:10 [core.py:918] "
NO_ADAPTER = "ValueError: Loading lora adapter failed: No adapter found for /data/checkpoint-57"


def stored(number: int, row: tuple[Any, ...]) -> Stored:
    kind, error_class, template, path, qualname, condition = row
    package = Distribution(path.split("/")[0], "1.0", "/nowhere", "", None, "2026-01-01T00:00:00Z")
    site = Site(path, 100 + number, qualname, condition)
    pattern, slug = pattern_of(template), slug_of(template)
    return Stored(f"{number:016x}", kind, error_class, template, pattern, slug, len(template), (site,), package)


def fill(store: Store) -> Store:
    records = [stored(number, row) for number, row in enumerate(RECORDS)]
    for name in ("torch", "vllm"):
        mine = [record for record in records if record.distribution.name == name]
        store.replace(mine[0].distribution, mine)
    return store


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with fill(Store(":memory:")) as made:
        yield made


def told(text: str) -> list[Told]:
    return list(read(text).told)


def template(answer: Answer) -> str | None:
    return answer.match.record.errorMessage if answer.match else None


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
    started = time.perf_counter()
    fit(template, Said.of("a " * 3000))
    assert time.perf_counter() - started < 1


# -- answers


def test_the_record_of_a_traceback(store: Store) -> None:
    text = f"{LOGGED}{VLLM_FRAME}\n{LOGGED}    raise ValueError(\n{LOGGED}{NO_ADAPTER}"
    answer = explain(text, store)
    assert answer.match and template(answer) == LORA and answer.match.confidence > 0.9
    assert answer.match.site.qualname == "Manager._load_adapter" and answer.match.site.condition == "path is None"
    assert [reason.split(":")[0] for reason in answer.match.why] == ["pattern", "class", "frame"]
    assert answer.looks_like is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NO_ADAPTER, LORA),
        (NO_ADAPTER.removeprefix("ValueError: "), LORA),
        (f"{NO_ADAPTER}. Check the path.", LORA),
        ("ValueError: expected to be in states [1, 2] but current state is IDLE", STATES),
        ("torch._inductor.exc.InductorError: AssertionError: vr must not be None for symbol q3", RECORDS[7][2]),
        ("torch._dynamo.exc.Unsupported: Data-dependent branching", RECORDS[9][2]),
        ("INFO 02-01 10:00:00 selector.py:144] Cannot use FlashAttention-2 backend for head size 72.", RECORDS[12][2]),
        (
            "/e/torch/lr.py:1: UserWarning: Detected call of `step()` before `optimizer.step()`.\n  warnings.warn(",
            RECORDS[13][2],
        ),
        (
            '  File "/x/vllm/e.py", line 7, in _run_workers\n    assert output == other_output\nAssertionError',
            RECORDS[8][2],
        ),
        (
            '  File "/x/torch/fake_tensor.py", line 3, in data_dep\n    raise DataDependentOutputException(func)\n'
            "torch.fake.DataDependentOutputException: aten.equal.default",
            "{func}",
        ),
        (
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored "
            "in KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine.",
            MEMORY,
        ),
        ("'M' object has no attribute 'fc'", None),
        ("AttributeError: 'M' object has no attribute 'fc'", None),
        (
            '  File "/x/torch/nn/module.py", line 7, in __getattr__\n    raise AttributeError(\n'
            "AttributeError: 'M' object has no attribute 'fc'",
            RECORDS[6][2],
        ),
        ("RuntimeError: mat1 and mat2 must have the same dtype", None),
        ("ValueError: This model does not support images", None),
        ("KeyError: vr must not be None for symbol 3", None),
        ('  File "/x/vllm/x.py", line 7, in check\n    raise ValueError(\nValueError: nothing like it', None),
        ('  File "/x/site-packages/peft/m.py", line 1, in f\n    raise ValueError(\n' + NO_ADAPTER, None),
        ("", None),
    ],
)
def test_answers(text: str, expected: str | None, store: Store) -> None:
    assert template(explain(text, store)) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: mat1 and mat2 must have the same dtype", "cpp"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "cpp"),
        ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0", "cpp"),
        ("terminate called after throwing an instance of 'c10::Error'\n  what():  bad", "cpp"),
        ('  File "/app/m.py", line 1, in f\n    return x @ w\nRuntimeError: odd sizes', "cpp"),
        ("ValueError: too many values to unpack (expected 2)", "interpreter"),
        ("AttributeError: 'NoneType' object has no attribute 'x'", "interpreter"),
        ("KeyError: 'model.weight'", "interpreter"),
        ("triton.runtime.errors.OutOfResources: out of resource", "third-party"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "third-party"),
        ("ValueError: unheard of in any source", "unknown"),
        ("all is well", "no-error"),
        ("INFO 02-01 10:00:00 a.py:1] Loading weights took 3 s", "no-error"),
        ("", "no-error"),
        ("\x00\xff\x07" * 100, "no-error"),
    ],
)
def test_what_no_match_looks_like(text: str, kind: str, store: Store) -> None:
    answer = explain(text, store)
    assert (answer.match, answer.looks_like) == (None, kind)


def test_the_cause_and_not_what_points_to_it(store: Store) -> None:
    text = f"{LOGGED}{NO_ADAPTER}\n(APIServer pid=2) RuntimeError: Engine core failed to start. See root cause above."
    answer = explain(text, store)
    assert template(answer) == LORA
    assert [one.record.errorClass for one in answer.alternatives][:1] == ["RuntimeError"]


@pytest.mark.parametrize("with_index", [True, False])
def test_own_errors_are_known_by_their_code(with_index: bool, store: Store) -> None:
    error = errors_by_code()["SW401"](argument="x", axis=0, seen=9, dim="batch", min=1, max=8)
    for text in (f"sizewise.errors.call.SizeOutOfRange: {error}", "[SW401]", "sizewise.errors.call.SizeOutOfRange: x"):
        answer = explain(text, store if with_index else None)
        assert answer.match and answer.match.record.errorCode == "SW401" and answer.match.site.condition
        assert answer.indexed is with_index
    assert explain("[SW401]", None, own=False).match is None


def test_json_has_the_three_keys(store: Store) -> None:
    answer = json.loads(json.dumps(explain(NO_ADAPTER, store).to_json()))
    assert set(answer) == {"match", "alternatives", "looksLike"}
    assert {"record", "confidence", "why"} <= set(answer["match"])
    assert answer["match"]["record"]["errorMessage"] == LORA and answer["looksLike"] is None
    assert explain("nothing", store).to_json() == {"match": None, "alternatives": [], "looksLike": "no-error"}


@pytest.mark.parametrize("name", ["SW401", "sw-401", "sw401"])
def test_names_of_own_errors(name: str) -> None:
    (match,) = named(name, None)
    assert match.record.errorCode == "SW401"
    assert "SW401" in [one.record.errorCode for one in named("SizeOutOfRange", None)]
    assert [one.record.id for one in named(match.record.id, None)] == [match.record.id]
    assert [one.record.id for one in named(match.record.slug, None)] == [match.record.id]


def test_names_of_indexed_errors(store: Store) -> None:
    assert [one.record.errorMessage for one in named(f"{1:016x}", store)] == [LORA]
    assert [one.record.errorMessage for one in named(slug_of(LORA), store)] == [LORA]
    assert named("82c172d787b6e198", None)[0].record.errorCode == "SW601"
    assert named("SW999", store) == named("0" * 16, None) == named("no-such-slug", store) == []


# -- bad input


FRAGMENTS = [
    "Traceback (most recent call last):",
    VLLM_FRAME,
    "    raise ValueError(",
    "    ^^^^^^",
    NO_ADAPTER,
    "The above exception was the direct cause of the following exception:",
    "  + Exception Group Traceback (most recent call last):",
    "  +-+---------------- 1 ----------------",
    "    | TypeError: x",
    "[SW401] [SW999] sizewise explain",
    LOGGED,
    "File a.py:1, in f()",
    "-> 12 x",
    "torch._inductor.exc.InductorError: AssertionError: " * 3,
    "\x1b[31m",
    "[rank0]: " * 5,
    "```",
    "a.py:1: UserWarning: x",
    "{" * 50 + "}" * 50,
    "(" * 200,
    "\ud800",
]


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=80)), max_size=30),
    between=st.sampled_from(["\n", "", " "]),
)
def test_any_text_gets_an_answer(parts: list[str], between: str, store: Store) -> None:
    answer = explain(between.join(parts), store)
    assert (answer.match is None) is (answer.looks_like is not None)
    json.dumps(answer.to_json())
    assert all(isinstance(text, str) for text, _ in explaining.pieces_of(answer))


@settings(max_examples=80, deadline=None)
@given(
    unit=st.text(alphabet=" |+-[](){}<>'\".:;,=\\/^~#aZ_1\n", min_size=1, max_size=6),
    before=st.sampled_from(["", "ValueError: ", '  File "', "INFO 01-01 10:00:00 [", "[rank", "a.b.", " ", "    | "]),
    after=st.sampled_from(["", "Error: x", ".py:1: UserWarning: x", "\nTypeError"]),
)
def test_no_text_takes_long(unit: str, before: str, after: str, store: Store) -> None:
    started = time.process_time()
    explain("\n".join([f"{before}{unit * 1000}{after}"] * 20), store)
    assert time.process_time() - started < 2


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_get_an_answer(content: bytes) -> None:
    assert explain(read_bounded(io.BytesIO(content)), None).match is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_with_a_mark(encoding: str, store: Store) -> None:
    assert template(explain(read_bounded(io.BytesIO(NO_ADAPTER.encode(encoding))), store)) == LORA


@pytest.mark.parametrize("where", ["start", "middle", "end"])
def test_a_log_of_fifty_megabytes(where: str, store: Store, tmp_path: Path) -> None:
    noise = b"INFO 02-01 10:00:00 a.py:1] step took 0.1 s and all is well with it\n" * 380_000
    error = f"Traceback (most recent call last):\n{VLLM_FRAME}\n    raise ValueError(\n{NO_ADAPTER}\n".encode()
    path = tmp_path / "log"
    with path.open("wb") as out:
        out.writelines(
            {"start": (error, noise, noise), "middle": (noise, error, noise), "end": (noise, noise, error)}[where]
        )
    tracemalloc.start()
    started = time.process_time()
    with path.open("rb") as stream:
        text = read_bounded(stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert template(explain(text, store)) == LORA
    assert time.process_time() - started < 5
    assert peak < 16e6 and len(text) < 500_000
    assert template(explain(path.read_text(), store)) == LORA


@pytest.mark.parametrize(
    "text",
    [
        "x" * 3_000_000,
        "\n" * 500_000,
        "ValueError: " + "a b " * 500_000,
        "a." * 100_000 + "Error: x",
        "'" * 100_000,
        "[" * 100_000,
    ],
)
def test_long_lines_take_no_long_time(text: str, store: Store) -> None:
    started = time.process_time()
    assert explain(text, store).match is None
    assert time.process_time() - started < 3


def test_a_truncated_traceback(store: Store) -> None:
    assert template(explain(f"_adapter\n    raise ValueError(\n{NO_ADAPTER}", store)) == LORA
    assert explain(f"Traceback (most recent call last):\n{VLLM_FRAME}\n    raise Val", store).match is None


# -- the command


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Store(tmp_path / "errors.sqlite") as store:
        fill(store)
    return tmp_path


def command(*arguments: str, text: str | None = None) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("explain")(guarded(explain_command))
    return CliRunner().invoke(app, ["explain", *arguments], input=text, catch_exceptions=False)


def test_the_command_explains_codes_files_texts_and_stdin(index: Path) -> None:
    (index / "log.txt").write_text(NO_ADAPTER)
    shown = [command("SW401"), command("log.txt"), command(NO_ADAPTER), command("-", text=NO_ADAPTER)]
    assert [one.exit_code for one in shown] == [0, 0, 0, 0]
    assert "SizeOutOfRange" in shown[0].stdout and "Solutions" in shown[0].stdout
    for one in shown[1:]:
        assert "vllm/lora/worker_manager.py:101, in Manager._load_adapter" in one.stdout
        assert "When:       path is None" in one.stdout and "Confidence: 0.95 (pattern:" in one.stdout


def test_the_command_has_exit_code_1_without_an_answer(index: Path) -> None:
    done = command("-", text="RuntimeError: CUDA error: no")
    assert done.exit_code == 1 and "C++" in done.stdout
    done = command("SW999", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout) == {"match": None, "alternatives": [], "looksLike": None}
    assert command("no/such/file").exit_code == 2
    assert command(".").exit_code == 2


def test_without_an_index_own_errors_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "none"))
    done = command("SW401", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["match"]["record"]["errorCode"] == "SW401"
    assert "sizewise errors index" in done.stderr and not (tmp_path / "none").exists()
    assert command("-", text=NO_ADAPTER).exit_code == 1


def test_a_damaged_index_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    (tmp_path / "errors.sqlite").write_bytes(b"no database" * 1000)
    done = command("SW401")
    assert done.exit_code == 0 and "cannot be read" in done.stderr


def test_the_plain_forms_are_run_without_the_application(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explaining.quick(["explain", "SW401", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["match"]["record"]["errorCode"] == "SW401"
    assert explaining.quick(["explain", NO_ADAPTER]) == 0
    assert explaining.quick(["explain", "RuntimeError: CUDA error: no"]) == 1
    for other in (
        [],
        ["doctor"],
        ["explain"],
        ["explain", "--help"],
        ["explain", "a", "b"],
        ["explain", "no/such/file"],
    ):
        assert explaining.quick(other) is None


def test_explaining_imports_no_torch(index: Path) -> None:
    code = (
        "import sys\nfrom sizewise.cli.explaining import quick\n"
        f"quick(['explain', 'SW401']); quick(['explain', {NO_ADAPTER!r}])\nprint('modules', *sys.modules)"
    )
    changed = environment(SIZEWISE_CACHE_DIR=str(index))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=changed)
    modules = set(done.stdout.partition("modules ")[2].split())
    assert not {"torch", "pydantic", "transformers", "jinja2"} & modules
