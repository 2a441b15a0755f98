"""Explaining pasted errors: bad input, and the command."""

from __future__ import annotations

import io
import json
import subprocess
import sys
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
from sizewise.reference.explain import explain, read_bounded
from sizewise.reference.store import Store

from .command_line import environment
from .explain_support import LOGGED, LORA, NO_ADAPTER, VLLM_FRAME, ends, fill, template


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with fill(Store(":memory:")) as made:
        yield made


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
    text = "\n".join([f"{before}{unit * 1000}{after}"] * 20)
    assert ends(lambda: explain(text, store))


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
    with path.open("rb") as stream:
        text = read_bounded(stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert template(explain(text, store)) == LORA
    assert ends(lambda: explain(text, store))
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
    assert ends(lambda: explain(text, store))
    assert explain(text, store).match is None


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
    answer = json.loads(done.stdout)
    assert done.exit_code == 1 and answer["match"] is answer["looksLike"] is None and answer["alternatives"] == []
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
