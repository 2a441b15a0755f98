"""How tests of the command line run it: in this process for what it prints, in its own for how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sizewise.cli.app import make_app

APP = """
import torch
from torch import nn
from sizewise import Dim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def make():
    print("printed by the factory")
    return Net().eval(), {"x": torch.randn(3, 16)}, {"x": {0: Dim("batch", 1, 16)}}


def make_positional():
    return Net().eval(), (torch.randn(3, 16),), {}, {"x": {0: Dim("batch", 1, 16)}}


def make_function():
    return (lambda x: x * 2), {"x": torch.randn(3)}, {"x": {0: Dim("n", 1, 8)}}


def training():
    return Net(), {"x": torch.randn(3, 16)}, {"x": {0: Dim("batch", 1, 16)}}


def wrong_width():
    return Net().eval(), {"x": torch.randn(3, 15)}, {"x": {0: Dim("batch", 1, 16)}}


def needs_size(size, *rest, other=1):
    return None


def fails():
    return helper()


def helper():
    raise ValueError("no [weights] here\\nand a second line")


def imports_what_is_missing():
    import not_installed


def leaves():
    raise SystemExit(2)


def bad_dim():
    return Dim("batch", 3, 1)


NET = Net()
NUMBER = 3
"""
"""A user's file; every failure a factory can have."""


def line_of(text: str) -> int:
    """The number of the first line of `APP` that holds ``text``."""
    return next(number for number, line in enumerate(APP.splitlines(), 1) if text in line)


@contextmanager
def project_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make ``directory`` the current one, with app.py in it; what is imported from it is forgotten after."""
    (directory / "app.py").write_text(APP)
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield directory
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(directory):
            del sys.modules[name]


def sizewise(*arguments: str) -> Any:
    """The result of one command: ``exit_code``, ``stdout``, ``stderr``."""
    return CliRunner().invoke(make_app(), arguments, catch_exceptions=False)


def process(
    *arguments: str, python: tuple[str, ...] = (), changes: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own; ``changes`` are of its variables."""
    command = [sys.executable, *python, "-m", "sizewise", *arguments]
    variables = environment(**(changes or {}))
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, **options)


def environment(**changes: str) -> dict[str, str]:
    source = str(Path(__file__).resolve().parent.parent / "src")
    return {**os.environ, "PYTHONPATH": source, "COLUMNS": "80", **changes}


def interrupts_are_heard() -> None:
    """For ``preexec_fn``: a shell starts what it runs in the background with interrupts ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
