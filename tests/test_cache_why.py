"""`sizewise cache why`: in the words, and with the names, of `sizewise cache ls`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .command_line import sizewise

TARGETS = """
import torch
from torch import nn
from sizewise import Dim


class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.lin = nn.Linear(4, width)

    def forward(self, x):
        return self.lin(x).sin()


class Renamed(Net):
    pass


class Stranger(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.scale


def of(model, most=8):
    return model.eval(), {"x": torch.randn(3, 4)}, {"x": {0: Dim("batch", 1, most)}}


def net():
    return of(Net())


def wide():
    return of(Net(5))


def more():
    return of(Net(), 16)


def renamed():
    return of(Renamed())


def stranger():
    return of(Stranger())
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SIZEWISE_DISABLE_COMPILE_CACHE", "0")
    path = tmp_path / "cache_why_targets.py"
    path.write_text(TARGETS)
    return path


def test_why_speaks_of_the_programs_that_ls_lists(file: Path) -> None:
    def why(factory: str, exit_code: int) -> str:
        done = sizewise("cache", "why", f"{file}:{factory}")
        assert done.exit_code == exit_code, done.stdout
        return str(done.stdout)

    assert "the cache is empty" in why("net", 1)
    assert "built here" in sizewise("compile", f"{file}:net").stdout
    again = sizewise("compile", f"{file}:net").stdout
    assert "the cache, built 20" in again and "1 compiled when it was built" in again
    (entry,) = json.loads(sizewise("cache", "ls", "--json").stdout)["entries"]
    shown = entry["id"][:12]
    assert sizewise("cache", "ls").stdout.splitlines()[2].split()[0] == shown
    assert f"in the cache: {shown} Net, batch 1 to 8" in why("net", 0)
    told = json.loads(sizewise("cache", "why", f"{file}:net", "--json").stdout)
    (call,) = told["calls"]
    assert call["program"] == entry["id"] and call["key"] == entry["key"] and call["nearest"] is None
    for factory, factor in (("wide", "tensors"), ("more", "dims"), ("renamed", "class")):
        text = why(factory, 1)
        assert f"The nearest program there is {shown} Net, batch 1 to 8" in text and factor in text
    (call,) = json.loads(sizewise("cache", "why", f"{file}:more", "--json").stdout)["calls"]
    assert call["program"] is None and call["nearest"] == entry["id"]
    assert {one["factor"] for one in call["differences"]} == {"dims"}

    # What was never built is not compared with a stranger.
    text = why("stranger", 1)
    assert "what differs" not in text and "nothing like it was built: no program of " in text
    assert "cache_why_targets.Stranger is there, but 1 program of other classes: " in text
    (call,) = json.loads(sizewise("cache", "why", f"{file}:stranger", "--json").stdout)["calls"]
    assert call == {"key": call["key"], "hit": False, "program": None, "nearest": None, "differences": []}
