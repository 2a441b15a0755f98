"""Bundles: which differences between building and loading matter, and which do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .bundle_support import HELPER, MODEL, case, python, served, write_sources

pytestmark = pytest.mark.slow

BUILD = """
import operator_of_others
import sizewise
from model import Calls, Net, Tied
from sizewise import Dim

made = {
    "net": lambda: Net(),
    "tied": lambda: Tied(True),
    "untied": lambda: Tied(False),
    "calls": lambda: Calls(),
}
for name, make in made.items():
    torch.manual_seed(0)
    options = {"splitting_ops": ["bundle_test::twice"]} if name == "calls" else {}
    fast = sizewise.compile(make().eval(), dynamic_shapes={"x": {0: Dim("batch", 1, 16)}}, **options)
    fast.warmup(torch.randn(3, 4))
    fast.save(f"{name}.sizewise")
    answers = []
    for rows in (1, 2, 5, 16):
        torch.manual_seed(rows)
        answers.append(bits(fast(torch.randn(rows, 4))))
    tell(name=name, answers=answers)
"""
NET = "from model import Net\nmodel = Net().eval()\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder with sources and bundles, and what the building process computed."""
    folder = write_sources(tmp_path_factory.mktemp("built"))
    return folder, {told["name"]: told["answers"] for told in python(BUILD, folder=folder)}


@pytest.fixture(scope="module")
def seen(built: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return served(list(all_cases(built[0], tmp_path_factory.mktemp("served"))), built[0])


# name -> (bundle, code that makes the module, words that the error has)
DIFFERENCES = {
    "an attribute that is read": (
        "net",
        NET + "model.config.scale = 3.0",
        ["config.scale", "2.0", "3.0"],
    ),
    "another object": ("net", NET + "model.config = __import__('helper').Config(3.0)", ["config.scale"]),
    "a forward hook": (
        "net",
        NET + "model.second.register_forward_hook(lambda *_: None)",
        ["hook", "second", "0", "1"],
    ),
    "a hook before forward": (
        "net",
        NET + "model.second.register_forward_pre_hook(lambda *_: None)",
        ["hook", "second"],
    ),
    "a hook on every module": (
        "net",
        NET + "torch.nn.modules.module.register_module_forward_hook(lambda *_: None)",
        ["_global_forward_hooks"],
    ),
    "a global": ("net", NET + "import model as m\nm.FACTOR = 3.0", ["FACTOR", "2.0", "3.0"]),
    "a default of a helper": ("net", NET + "import helper\nhelper.shaped.__defaults__ = (2.0,)", ["shaped", "2.0"]),
    "a helper put in another's place": (
        "net",
        NET + "import model as m\nm.shaped = lambda x, shift=1.0: x.cos()",
        ["shaped"],
    ),
    "code put in place": (
        "net",
        NET + "import helper\nhelper.shaped.__code__ = (lambda x, shift=1.0: x.cos()).__code__",
        ["shaped"],
    ),
    "a forward of its own": (
        "net",
        NET + "model.forward = lambda x: x",
        ["forward"],
    ),
    "a method put in the class": ("net", NET + "Net.forward = lambda self, x: x", ["forward"]),
    "a part in another's place": ("net", NET + "model.drop = torch.nn.Identity().eval()", ["drop"]),
    "another width": ("net", "from model import Net\nmodel = Net(16).eval()", ["8", "16"]),
    "another dtype": ("net", NET + "model.double()", ["float32", "float64"]),
    "no bias": ("net", "from model import Net\nmodel = Net(bias=False).eval()", ["first.bias"]),
    "a config of another scale": (
        "net",
        "from model import Net\nmodel = Net(scale=4.0).eval()",
        ["config.scale", "4.0"],
    ),
    "a class of another name": ("net", "from model import Other\nmodel = Other().eval()", ["class", "Net", "Other"]),
    "a weight that is transposed": (
        "net",
        NET + "model.first.weight = torch.nn.Parameter(torch.randn(4, 8).t())",
        ["first.weight"],
    ),
    "weights that are not tied": ("tied", "from model import Tied\nmodel = Tied(False).eval()", ["b.weight"]),
    "weights that are tied": ("untied", "from model import Tied\nmodel = Tied(True).eval()", ["b.weight"]),
    "threads": ("net", NET + "torch.set_num_threads(2)", ["threads", "1", "2"]),
    "a default dtype": ("net", NET + "torch.set_default_dtype(torch.float64)", ["dtype", "float32", "float64"]),
    "deterministic algorithms": ("net", NET + "torch.use_deterministic_algorithms(True)", ["deterministic"]),
    "an operator that nobody defined": ("calls", "from model import Calls\nmodel = Calls().eval()", ["bundle_test"]),
}
TRAINING = {
    "a fresh module": ("from model import Net\nmodel = Net()\n", "the module itself"),
    "a part": (NET + "model.drop.train()", "drop: Dropout"),
}
CHANGED_SOURCES = {
    "a helper in another file": ({"helper": HELPER.replace("x.sin()", "x.cos()")}, "helper"),
    "the class": ({"model": MODEL.replace("torch.relu(self.first(x))", "torch.tanh(self.first(x))")}, "model"),
}
ALIKE = {
    "as it was": NET,
    "other weights": NET + "model.second.weight.data.normal_()",
    "an attribute that is not read": NET + "model.note = 'other'\nmodel.config.other = 2",
    "an attribute more": NET + "model.more = 1",
    "an attribute more of a part": NET + "model.first.more = [1, 2]",
    "another class of the module beside it": NET + "import model as m\nm.Fresh = type('Fresh', (Net,), {})",
    "requires_grad": NET + "model.requires_grad_(False)",
}


def all_cases(folder: Path, places: Path) -> Any:
    for name, (bundle, code, _) in DIFFERENCES.items():
        yield case(name, folder, folder / f"{bundle}.sizewise", code)
    for name, (code, _) in TRAINING.items():
        yield case(name, folder, folder / "net.sizewise", code)
    for name, (changed, _) in CHANGED_SOURCES.items():
        yield case(name, write_sources(places / name, **changed), folder / "net.sizewise", NET)
    for name, code in ALIKE.items():
        yield case(name, folder, folder / "net.sizewise", code)
    yield case("another place", write_sources(places / "another place"), folder / "net.sizewise", NET)
    import_operator = "import operator_of_others\nfrom model import Calls\nmodel = Calls().eval()"
    yield case("the operator", folder, folder / "calls.sizewise", import_operator)
    yield case("tied", folder, folder / "tied.sizewise", "from model import Tied\nmodel = Tied(True).eval()")
    elsewhere = places / "elsewhere"
    elsewhere.mkdir()
    yield case("another folder to work in", elsewhere, folder / "net.sizewise", NET, path=[str(folder)])


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_refused_by_name(seen: dict[str, dict[str, Any]], name: str) -> None:
    told = seen[name]
    assert told.get("error") == "SW612", told
    difference = told["difference"]
    assert (" was " in difference and " is " in difference) or "not registered" in difference
    for word in DIFFERENCES[name][2]:
        assert word in difference


@pytest.mark.parametrize("name", TRAINING)
def test_training_mode_is_refused_when_it_is_loaded(seen: dict[str, dict[str, Any]], name: str) -> None:
    told = seen[name]
    assert told.get("error") == "SW214" and TRAINING[name][1] in told["text"], told


@pytest.mark.parametrize("name", CHANGED_SOURCES)
def test_changed_source_is_refused(seen: dict[str, dict[str, Any]], name: str) -> None:
    told, (_, module) = seen[name], CHANGED_SOURCES[name]
    assert told.get("error") == "SW612" and f"the source of {module} was" in told["difference"], told


@pytest.mark.parametrize("name", [*ALIKE, "another place", "another folder to work in", "the operator", "tied"])
def test_what_does_not_matter(built: tuple[Path, dict[str, Any]], seen: dict[str, dict[str, Any]], name: str) -> None:
    told = seen[name]
    assert told.get("right") is True, told
    assert told["compilers"] == []
    bundle = {"the operator": "calls", "tied": "tied"}.get(name, "net")
    assert (told["answers"] == built[1][bundle]) is (name != "other weights")
