"""The README's container: both stages' commands, each stage in a folder of its own, the second without a compiler."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sizewise

from .command_line import environment

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(heading: str) -> dict[str, str]:
    """The code blocks below a heading, by their file's name or else their language."""
    text = README.read_text().partition(f"### {heading}\n")[2]
    section = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^```(\w+)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    return {_file_of(code) or language: code for language, code in found}


def _file_of(code: str) -> str:
    named = re.match(r"# (\w+\.py)\n", code)
    return named[1] if named else ""


class Stage:
    """One stage of a Dockerfile: its folder, its variables; commands run in it with what it would have on its PATH."""

    def __init__(self, folder: Path, context: Path, path: str) -> None:
        self.folder, self.context = folder, context
        (folder / "cache").mkdir(parents=True)
        caches = {name: str(folder / "cache") for name in ("SIZEWISE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
        self.variables = {"PATH": path, "SIZEWISE_DISABLE_COMPILE_CACHE": "0", "CXX": "g++", **caches}

    def obey(self, word: str, rest: str, stages: dict[str, Stage]) -> str:
        if word == "ENV":
            self.variables |= dict(each.split("=", 1) for each in shlex.split(rest))
        elif word == "COPY":
            self._copy(shlex.split(rest), stages)
        elif word == "RUN" and not rest.startswith("pip "):
            return self._run(shlex.split(rest))
        elif word == "CMD":
            return self._run(json.loads(rest))
        return ""

    def _copy(self, words: list[str], stages: dict[str, Stage]) -> None:
        source = stages[words.pop(0).partition("=")[2]].folder if words[0].startswith("--from=") else self.context
        for name in words[:-1]:
            found = list(source.glob(Path(name).name))
            assert found, f"{name} is not in {source}"
            for path in found:
                shutil.copy(path, self.folder)

    def _run(self, command: list[str]) -> str:
        programs = {"sizewise": [sys.executable, "-m", "sizewise"], "python": [sys.executable]}
        words = [*programs[command[0]], *command[1:]]
        variables = environment(**self.variables)
        done = subprocess.run(words, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.slow
def test_the_readmes_container_builds_and_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = blocks("Build in a container, serve without a compiler")
    context, nothing = tmp_path / "context", tmp_path / "nothing"
    context.mkdir()
    nothing.mkdir()
    for name in ("app.py", "serve.py"):
        (context / name).write_text(files[name])
    wheel = f"sizewise-{sizewise.__version__}-py3-none-any.whl"
    assert f"`./{wheel}`" in README.read_text()
    (context / "requirements.txt").write_text(f"torch\n./{wheel}\n")
    (context / wheel).write_bytes(b"")
    monkeypatch.syspath_prepend(str(context))
    scope: dict[str, object] = {}
    exec(files["app.py"], scope)
    torch.save(scope["Net"]().state_dict(), context / "weights.pt")  # type: ignore[operator]

    stages: dict[str, Stage] = {}
    said = []
    for line in files["dockerfile"].splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.partition(" AS ")[2]
            path = environment()["PATH"] if name == "build" else str(nothing)
            stages[name] = Stage(tmp_path / f"stage{len(stages)}", context, path)
        elif word and word != "#":
            said.append(list(stages.values())[-1].obey(word, rest, stages))
    assert "for sizewise.load" in "".join(said[:-1])
    assert said[-1] == "torch.Size([5, 4])\n"
    served = stages[""]
    assert not (served.folder / "cache").exists() or not list((served.folder / "cache").rglob("*.so"))
    # What the second stage has is all it takes: without the bundle, the same command is refused.
    (served.folder / "model.sizewise").unlink()
    with pytest.raises(AssertionError, match="SW611"):
        served._run(["python", "serve.py"])
