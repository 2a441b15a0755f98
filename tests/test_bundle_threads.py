"""The number of threads is a matter of memory safety: kernels keep a place for each thread they were built for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim
from sizewise.errors.bundle import BundleDiffers, CannotSave
from sizewise.errors.state import BadOption, NotWarm

from .command_line import sizewise as command

pytestmark = pytest.mark.slow


class Sums(nn.Module):
    """A sum over everything: each thread has a place for its part."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale = nn.Parameter(torch.randn(512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).sin().sum() + x.cos().amax()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def fast() -> Any:
    torch.set_num_threads(2)
    compiled: Any = sizewise.compile(Sums().eval(), dynamic_shapes={"x": {0: Dim("batch", 1, 512)}})
    return compiled.warmup(torch.randn(300, 512))


def serves(path: Path) -> None:
    model = Sums().eval()
    loaded = sizewise.load(path, model)
    for rows in (1, 2, 300, 512):
        x = torch.randn(rows, 512)
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), model(x), rtol=1e-4, atol=1e-2)


def test_built_with_two_threads_and_called_with_eight(fast: Any) -> None:
    torch.set_num_threads(2)
    x = torch.randn(300, 512)
    wanted = fast(x)
    torch.set_num_threads(8)
    with pytest.raises(sizewise.SizewiseError, match="the number of threads"):
        fast(x)
    torch.set_num_threads(2)
    assert torch.equal(fast(x), wanted)


def test_saved_with_two_threads_and_loaded_with_eight(fast: Any, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    path = fast.save(tmp_path / "sums.sizewise", proved=False)
    serves(path)
    torch.set_num_threads(8)
    with pytest.raises(BundleDiffers, match=r"threads was 2 and is 8[^$]*set_num_threads\(2\)[^$]*threads=\[...\]"):
        sizewise.load(path, Sums().eval())


def test_saved_for_several_numbers(fast: Any, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    path = fast.save(tmp_path / "sums.sizewise", threads=[8, 2, 8])
    assert torch.get_num_threads() == 2
    for count in (2, 8):
        torch.set_num_threads(count)
        serves(path)
    torch.set_num_threads(3)
    with pytest.raises(BundleDiffers, match="threads was 2 or 8 and is 3"):
        sizewise.load(path, Sums().eval())
    torch.set_num_threads(8)
    loaded = sizewise.load(path, Sums().eval())
    with pytest.raises(NotWarm, match="for 4 threads an example is needed"):
        loaded.save(tmp_path / "again.sizewise", threads=[4, 8])
    assert not (tmp_path / "again.sizewise").exists()


@pytest.mark.parametrize("threads", [[], [0], [-1, 2], [True], 1.5, "2", [2, "4"], [10**9], range(1, 4098)], ids=repr)
def test_numbers_that_are_none(fast: Any, tmp_path: Path, threads: Any) -> None:
    with pytest.raises(BadOption, match="threads="):
        fast.save(tmp_path / "sums.sizewise", threads=threads)
    assert not any(tmp_path.iterdir())


LIMITED = """
import os, resource, sys
from sizewise.errors import SizewiseError
from sizewise.saved.threads import checked_threads

print(checked_threads([4096, 2]))
page = os.sysconf("SC_PAGE_SIZE")
here = int(open("/proc/self/statm").read().split()[0]) * page
resource.setrlimit(resource.RLIMIT_AS, (here + (256 << 20),) * 2)
try:
    checked_threads([4096, 2])
except SizewiseError as problem:
    print(problem)
assert "torch" not in sys.modules
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_more_threads_than_the_system_starts() -> None:
    """A limit of the process, its user or its container: OpenMP ends the process where a thread does not start."""
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert first == "[2, 4096]"
    assert second.startswith("threads=[4096, 2] is not what this process may start"), done.stdout
    assert "SW510" in done.stdout and "pass at most" in done.stdout


def test_a_file_that_cannot_be_written_is_said_before_anything_is_built(fast: Any, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    with fast.counters.expect(traces=0, compilations=0), pytest.raises(CannotSave, match="there is no directory"):
        fast.save(tmp_path / "missing" / "sums.sizewise", threads=[5])


def test_one_number_is_a_list_of_one(fast: Any, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    serves(fast.save(tmp_path / "sums.sizewise", threads=2, proved=False))


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "threads_target.py"
    source.write_text(
        "import torch\nfrom sizewise import Dim\n\n\ndef make():\n"
        "    model = torch.nn.Linear(4, 4).eval()\n"
        "    return model, {'input': torch.randn(3, 4)}, {'input': {0: Dim('batch', 1, 8)}}\n"
    )
    output = tmp_path / "m.sizewise"
    no_list = "is no list of numbers"
    for given, words in (("1,x", no_list), ("", no_list), ("0", "SW510"), ("1000000000", "SW510")):
        done = command("compile", f"{source}:make", "-o", str(output), "--threads", given)
        assert done.exit_code != 0 and words in done.stderr, done.stderr
        assert "built" not in done.stdout and not output.exists()
    assert "--output" in command("compile", f"{source}:make", "--threads", "1").stderr
    done = command("compile", f"{source}:make", "-o", str(output), "--threads", "3,1")
    assert done.exit_code == 0 and "in processes with 1 or 3 threads" in done.stdout
    for count in (1, 3):
        torch.set_num_threads(count)
        model = torch.nn.Linear(4, 4).eval()
        x = torch.randn(5, 4)
        torch.testing.assert_close(sizewise.load(output, model)(x), model(x).detach())
