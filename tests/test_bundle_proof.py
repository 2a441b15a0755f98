"""Before a bundle is written a fresh process proves what is in it."""

from __future__ import annotations

import importlib
import json
import logging
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim
from sizewise.errors.bundle import NotSavable
from sizewise.ops import attention_overload
from sizewise.saved import loader, manifest, proof
from sizewise.saved.proof import Disproved, Proof, prove

pytestmark = pytest.mark.slow

SHAPES = {"x": {0: Dim("batch", 1, 16)}}


class Counts(nn.Module):
    """Pieces around products, of which some are alike, and a buffer that every call writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.products = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        for product in self.products:
            x = product(x).relu().softmax(-1)
        return x.sin() + self.calls


@pytest.fixture(scope="module")
def fast() -> Any:
    torch.set_num_threads(1)
    compiled: Any = sizewise.compile(Counts().eval(), dynamic_shapes=SHAPES, splitting_ops=["aten::linear"])
    return compiled.warmup(torch.randn(4, 16))


@pytest.fixture
def written(fast: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    built = fast.built
    return manifest.make("Counts", fast.__wrapped__, "__call__", built.entries, built.outcomes, built.config())


def test_what_is_saved_was_proved(fast: Any, tmp_path: Path) -> None:
    before = fast.calls.clone()
    with zipfile.ZipFile(fast.save(tmp_path / "counts.sizewise")) as archive:
        told = json.loads(archive.read("manifest.json"))
    assert told["proof"] == {"verdict": "equal", "why": ""}
    assert torch.equal(fast.calls, before), "proving ran the module"
    loaded = sizewise.load(tmp_path / "counts.sizewise", Counts().eval())
    x = torch.randn(7, 16)
    assert torch.equal(loaded(x) - loaded.calls, fast(x) - fast.calls)


def test_nothing_is_proved_where_that_is_asked(fast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_ask", lambda folder: pytest.fail("a process was started"))
    with zipfile.ZipFile(fast.save(tmp_path / "counts.sizewise", proved=False)) as archive:
        assert "proof" not in json.loads(archive.read("manifest.json"))


def test_every_range_is_run(fast: Any) -> None:
    settings: dict[str, Any] = {"compile_sizes": [2, 9], "compile_ranges_endpoints": [8]}
    ranged: Any = sizewise.compile(
        Counts().eval(), dynamic_shapes=SHAPES, config=sizewise.CompilationConfig(**settings)
    ).warmup(torch.randn(4, 16))
    built = ranged.built
    assert len(built.entries[0].program.variants) == 4
    description, files = manifest.make("m", ranged.__wrapped__, "__call__", built.entries, [], built.config())
    assert len(description["pieces"]) > 1
    assert prove(description, files, ranged.__wrapped__, built.entries) == Proof("equal")


class Attends(nn.Module):
    """A piece makes room that the operator behind it fills."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x.sin() + 1).reshape(-1, 1, 4, 4)
        out = y.new_empty(y.shape[0], 4, 1, 4)
        torch.ops.sizewise.attention(y, y, y, None, None, False, False, out)
        return out.cos()


def test_a_result_that_nobody_has_written_yet_is_not_compared(tmp_path: Path) -> None:
    attention_overload()
    fast: Any = sizewise.compile(Attends().eval(), dynamic_shapes=SHAPES, splitting_ops=["sizewise::attention"])
    fast.warmup(torch.randn(4, 16))
    (entry,) = fast.built.entries[0].program.backends[0].range_entries.values()
    scope = entry.artifact.runnable.__globals__
    before, allocate = dict(scope), scope["empty_strided_cpu"]
    # What malloc hands out is whatever was there; here it surely is not what a fresh process finds.
    scope["empty_strided_cpu"] = lambda *layout: allocate(*layout).fill_(7.0)
    try:
        with zipfile.ZipFile(fast.save(tmp_path / "attends.sizewise")) as archive:
            told = json.loads(archive.read("manifest.json"))
    finally:
        scope["empty_strided_cpu"] = allocate
    assert told["proof"]["verdict"] == "equal"
    assert scope == before, "another allocator stayed"
    module, x = Attends(), torch.randn(3, 16)
    assert torch.allclose(sizewise.load(tmp_path / "attends.sizewise", module.eval())(x), module(x))


NOISY = """
import enum
import subprocess
import torch

subprocess.run(["true"], check=True)


class Kind(enum.Enum):
    SINE = 1


class Net(torch.nn.Module):
    def forward(self, x):
        return {"y": x.sin() + 1, "kind": Kind.SINE}
"""


def test_what_a_class_starts_when_it_is_imported_is_not_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers asks ldconfig for a library, say."""
    (tmp_path / "noisy_classes.py").write_text(NOISY.replace('"true"', repr(shutil.which("true"))))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("noisy_classes").Net().eval()
    fast = sizewise.compile(module, dynamic_shapes=SHAPES).warmup(torch.randn(4, 16))
    with zipfile.ZipFile(fast.save(tmp_path / "noisy.sizewise")) as archive:
        assert json.loads(archive.read("manifest.json"))["proof"]["verdict"] == "equal"


def last_piece(description: dict[str, Any]) -> str:
    found: str = description["programs"][0]["variants"][0]["pieces"][-1]
    return found


def changed(description: dict[str, Any], files: dict[str, bytes], name: str, added: str) -> dict[str, bytes]:
    """The files with something ``added`` to a piece, also to its bytecode."""
    source = files[name].decode() + added
    bytecode = loader.compiled_piece(source, Path(name).stem)
    return {**files, name: source.encode(), description["pieces"][name]["bytecode"]: bytecode}


TAMPERED: dict[str, tuple[str, str]] = {
    "other bits": ("return tuple(one * 1.0000001 for one in inner(args))", "bit for bit"),
    "one result less": ("return inner(args)[1:]", "results and inputs instead of"),
    "a child": ("import subprocess; subprocess.run(['/bin/true']); return inner(args)", "it started"),
    "the compiler": ("import torch._dynamo; return inner(args)", "it imports torch._dynamo"),
    "a signal": ("import os; os.kill(os.getpid(), 9)", "ended with -9"),
}


@pytest.mark.parametrize("line, words", TAMPERED.values(), ids=TAMPERED)
def test_a_piece_that_is_not_what_was_built(fast: Any, written: Any, line: str, words: str) -> None:
    description, files = written
    name = last_piece(description)
    added = f"\ninner = call\ndef call(args):\n    {line}\n"
    with pytest.raises(Disproved, match=words):
        prove(description, changed(description, files, name, added), fast.__wrapped__, fast.built.entries)


def test_a_library_that_cannot_be_loaded(fast: Any, written: Any) -> None:
    description, files = written
    kernels = description["pieces"][last_piece(description)]["kernels"]
    name = next(library for library, _ in kernels.values())
    with pytest.raises(Disproved, match=r"loading it raised ImportError|ended with -\d+"):
        prove(description, {**files, name: files[name][:200]}, fast.__wrapped__, fast.built.entries)


def test_what_is_disproved_is_saved_as_torchs_artifacts(
    fast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tamper(monkeypatch)
    path = fast.save(tmp_path / "counts.sizewise")
    loaded = sizewise.load(path, Counts().eval())
    loaded.calls.copy_(fast.calls)
    x = torch.randn(7, 16)
    assert torch.equal(loaded(x), fast(x))
    lines = loaded.report().cache["second_path"]
    assert lines and all("is not proved: in a fresh process piece" in line for line in lines)
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("manifest.json"))
    assert told["proof"]["verdict"] == "equal"
    assert {piece["form"] for piece in told["pieces"].values()} == {"artifact"}


def test_what_is_disproved_twice_is_not_written(fast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, artifact=b"no artifact")
    with pytest.raises(NotSavable, match=r"in a fresh process .* torch's artifact of it does not load"):
        fast.save(tmp_path / "counts.sizewise")
    assert not any(tmp_path.iterdir())


def tamper(monkeypatch: pytest.MonkeyPatch, artifact: bytes = b"") -> None:
    """From now on the last piece of what is saved is not what was built; with ``artifact`` also that of torch."""
    original = manifest.write_programs

    def tampered(entries: Any, disproved: str = "") -> Any:
        description, files = original(entries, disproved)
        name = last_piece(description)
        if not disproved:
            added = "\ninner = call\ndef call(args):\n    return inner(args)[1:]\n"
            return description, changed(description, files, name, added)
        return description, {**files, name: artifact or files[name]}

    monkeypatch.setattr(manifest, "write_programs", tampered)


@torch.library.custom_op("proof_tests::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operator_that_a_fresh_process_does_not_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubled(x.sin()).cos()

    compiled: Any = sizewise.compile(Doubles().eval(), dynamic_shapes=SHAPES)
    compiled.warmup(torch.randn(4, 16))
    with caplog.at_level(logging.WARNING, "sizewise"):
        path = compiled.save(tmp_path / "doubles.sizewise")
    assert "proof_tests::doubled is not registered" in caplog.text
    x = torch.randn(3, 16)
    assert torch.equal(sizewise.load(path, Doubles().eval())(x), compiled(x))


def test_values_that_are_not_legal_at_another_size(tmp_path: Path) -> None:
    class Gathers(nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return x.sin().gather(0, index).cos()

    batch = Dim("batch", 1, 16)
    settings: dict[str, Any] = {"compile_sizes": [2]}
    compiled: Any = sizewise.compile(
        Gathers().eval(),
        dynamic_shapes={"x": {0: batch}, "index": {0: batch}},
        config=sizewise.CompilationConfig(**settings),
    )
    compiled.warmup(torch.randn(9, 4), torch.randint(0, 1, (9, 4)))
    with zipfile.ZipFile(compiled.save(tmp_path / "gathers.sizewise")) as archive:
        assert json.loads(archive.read("manifest.json"))["proof"]["verdict"] == "equal"
