"""The second path: pieces without a source of their own, saved as torch's artifacts and loaded without a compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .bundle_support import bare, members, python, rewritten

pytestmark = pytest.mark.slow

MODULES = """
import sizewise
import torch
from sizewise import Dim
from torch import nn


class Views(nn.Module):
    "Gives a view of its input, a parameter and a size, and writes a buffer."

    def __init__(self, views=True):
        super().__init__()
        self.views = views
        self.lin = nn.Linear(4, 6)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x, y):
        self.calls.add_(1)
        hidden = self.lin(x).relu() + y[:, None]
        rest = {"weight": self.lin.weight, "sum": hidden.sum(0) + self.calls.sum(), "size": x.shape[0] * 3}
        return {"hidden": hidden, "index": hidden.argmax(-1), **rest, **({"view": x[:, 1:]} if self.views else {})}


class Overlaps(nn.Module):
    "The second piece gets two views of one buffer, and writes through one of them."

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("state", torch.zeros(6, 4))

    def forward(self, x, y):
        first, second = self.state[:4], self.state[2:]
        between = x.cos()
        first.add_(1)
        return self.lin(x).sin() * second.sum() + between + y[:, None], first, second.sin()


cpp = {"inductor_compile_config": {"cpp_wrapper": True}}
profiled = {"inductor_compile_config": {"profiler_mark_wrapper_call": True}}
CASES = {
    "C++ around the kernels": (lambda: Views(False), cpp),
    "a profiler's mark": (Views, profiled),
    "inputs that overlap": (Overlaps, {"splitting_ops": ["aten::cos"]}),
    "the first path": (Views, {}),
}


def make(name):
    torch.manual_seed(3)
    return CASES[name][0]().eval()


def warm(name):
    rows = Dim("rows", 1, 16)
    options = {"config": sizewise.CompilationConfig(**CASES[name][1])}
    fast = sizewise.compile(make(name), dynamic_shapes={"x": {0: rows}, "y": {0: rows}}, **options)
    return fast.warmup(torch.randn(3, 4), torch.randn(3))


def answers(fast, bits):
    "At sizes from the smallest to the largest: results, which memory they share, and what was written."
    found = []
    for rows in (1, 16, 2, 5, 11):
        generator = torch.Generator().manual_seed(rows)
        x, y = torch.randn(rows, 4, generator=generator), torch.randn(rows, generator=generator)
        result = fast(x, y)
        shared = []
        if isinstance(result, dict):
            pairs = (result.get("view", x), x), (result["weight"], fast.lin.weight)
            shared = [one.data_ptr() - other.data_ptr() for one, other in pairs]
        found.append([bits(result), shared, bits(list(fast.state_dict().values()))])
    return found
"""
WATCH = """
from modules import *

started = []
events = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")
sys.addaudithook(lambda event, args: started.append(f"{event} {args}") if event in events else None)


def loaded(name, model):
    "What a bundle, or the cache, gives."
    before, known = compiler_modules(), len(started)
    try:
        fast = sizewise.load(f"{name}.sizewise", make(model)) if name else warm(model)
    except sizewise.SizewiseError as problem:
        return {"error": problem.code, "text": str(problem)}
    told = {"answers": answers(fast, bits), "imports": sorted({*compiler_modules()} - {*before})}
    report, counters = fast.report(), fast.counters
    return {**told, "second": report.cache["second_path"], "hit": report.cache["hit"], "printed": str(report),
            "built": counters.traces + counters.compilations, "started": started[known:]}
"""
BUILD = """
import pickle
from pathlib import Path
from modules import *
from sizewise.saved import bundle
from sizewise.saved.files import _Writer

for name in CASES:
    fast = warm(name)
    # Proving takes seconds.
    path = fast.save(f"{name}.sizewise", proved=name == "inputs that overlap")
    proof = bundle.read(path)[0].get("proof")
    fast.load_state_dict(make(name).state_dict())
    cache = fast.report().cache
    tell(name=name, answers=answers(fast, bits), second=cache["second_path"], hit=cache["hit"], proof=proof)

# The last one is saved by its source: here with an artifact beside it, and with a source that does not load.
program = fast._sw_generation.built.entries[0].program
manifest, files = bundle.read(Path(f"{name}.sizewise"))
writer, backend, sizes = _Writer(), program.backends[0], program.variants[0].sizes
(piece,) = manifest["pieces"]
packed = writer._artifact(backend, sizes, backend.range_entries[sizes].artifact, "no reason")
manifest["pieces"][piece]["artifact"] = writer.pieces[packed]["artifact"]
manifest["libraries"] |= writer.libraries
files |= writer.files
broken = files | {piece: b"import no_such_module", manifest["pieces"][piece]["bytecode"]: b""}
bundle.write(Path("both forms.sizewise"), manifest, files)
bundle.write(Path("a source that does not load.sizewise"), manifest, broken)
bundle.write(Path("neither loads.sizewise"), manifest, broken | {packed: b"nothing"})


class Marks:
    "Leaves a file behind when it is unpickled."

    def __reduce__(self):
        return open, ("unpickled", "w")


from torch._inductor.codecache import torch_key
from torch.utils._appending_byte_serializer import BytesWriter

bomb = BytesWriter()
for part in (b"AOTCompiledArtifact", torch_key(), pickle.dumps(Marks())):
    bomb.write_bytes(part)
Path("bomb").write_bytes(bomb.to_bytes())
bundle.write(Path("a bomb.sizewise"), manifest, broken | {packed: bomb.to_bytes()})
tell(name="packed", file=packed)
"""
LOAD = f"""{WATCH}
FIRST = "the first path"
odd = ["both forms", "a source that does not load", "neither loads", "swapped", "a bomb"]
# What imports no compiler has to come before what does.
for name in ("both forms", FIRST):
    told = answers(sizewise.load(f"{{name}}.sizewise", make(FIRST)), bits)
    tell(name=f"{{name}}, alone", answers=told, compilers=compiler_modules())
for name in [*CASES, *odd]:
    told = loaded(name, name if name in CASES else FIRST)
    tell(name=name, **told, unpickled=os.path.exists("unpickled"))
for name in CASES:
    tell(name=f"{{name}}, cached", **loaded("", name))
    sizewise.load(f"{{name}}.sizewise", make(name)).save("again.sizewise")
    tell(name=f"{{name}}, again", **loaded("again", name))
"""
WRAPPER, OVERLAP, FIRST = "C++ around the kernels", "inputs that overlap", "the first path"
REASONS = {
    WRAPPER: "generated code that needs CppWrapperCodeCache",
    "a profiler's mark": "generated code that needs record_function",
    OVERLAP: "torch's wrapper around it: inputs were merged",
    FIRST: "",
}
Told = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("second")
    (found / "modules.py").write_text(MODULES)
    return found


def told_by(code: str, folder: Path, **changes: str) -> Told:
    cache = {"SIZEWISE_CACHE_DIR": str(folder / "cache"), "SIZEWISE_DISABLE_COMPILE_CACHE": "0"}
    return {each.pop("name"): each for each in python(code, folder=folder, **{**cache, **changes})}


@pytest.fixture(scope="module")
def built(folder: Path) -> Told:
    """What the process that built the bundles told; it filled a cache, too."""
    return told_by(BUILD, folder)


@pytest.fixture(scope="module")
def loaded(folder: Path, built: Told) -> Told:
    """What a process without a compiler told, where everything that would have to be built is an error."""
    contents = members(folder / "both forms.sizewise")
    swapped = contents | {built["packed"]["file"]: (folder / "bomb").read_bytes()}
    rewritten(folder / "swapped.sizewise", swapped)
    return told_by(LOAD, folder, **bare(folder), SIZEWISE_REQUIRE_WARM="1")


@pytest.mark.parametrize("way", ["", ", cached", ", again"])
@pytest.mark.parametrize("name", REASONS)
def test_a_program_gives_the_same_bits_without_a_compiler(built: Told, loaded: Told, name: str, way: str) -> None:
    told, reason = loaded[name + way], REASONS[name]
    assert "error" not in told, told
    assert len(told["answers"]) == 5 and told["answers"] == built[name]["answers"]
    assert (told["started"], told["built"], told["hit"]) == ([], 0, way == ", cached")
    assert len(told["second"]) == bool(reason) and all(reason in line for line in told["second"])
    assert all(line in told["printed"] for line in told["second"])
    assert (built[name]["second"], built[name]["hit"]) == (told["second"], False)


def test_an_artifact_is_proved_as_a_source_is(built: Told) -> None:
    assert built[OVERLAP]["proof"] == {"verdict": "equal", "why": ""}


def test_the_first_path_imports_no_compiler_also_where_there_is_a_second(built: Told, loaded: Told) -> None:
    for name in ("both forms", FIRST):
        alone = loaded[f"{name}, alone"]
        assert (alone["compilers"], loaded[name]["second"]) == ([], [])
        assert alone["answers"] == loaded[name]["answers"] == built[FIRST]["answers"]
    assert loaded[WRAPPER]["imports"] != []


def test_an_artifact_stands_in_for_a_source_that_does_not_load(built: Told, loaded: Told) -> None:
    told, neither = loaded["a source that does not load"], loaded["neither loads"]
    assert told["answers"] == built[FIRST]["answers"] and told["started"] == []
    assert ["no_such_module" in line for line in told["second"]] == [True]
    assert neither["error"] == "SW611"
    assert "no_such_module" in neither["text"] and "torch's artifact of it does not load" in neither["text"]


def test_nothing_is_unpickled_before_its_digest_is_checked(loaded: Told) -> None:
    refused, taken = loaded["swapped"], loaded["a bomb"]
    assert refused["error"] == "SW611" and "another digest" in refused["text"] and not refused["unpickled"]
    # Whoever writes the digests as well is trusted.
    assert taken["error"] == "SW611" and taken["unpickled"]
