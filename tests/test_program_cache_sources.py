"""The source a program was traced through: what was edited is built again, wherever the code comes from."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sizewise.traced import files, places

from .command_line import environment

pytestmark = pytest.mark.slow

SERVE = """
import sys
import torch
import sizewise
from torch import nn

torch.set_num_threads(1)


def serve(make, between=lambda: None):
    model = make().eval()
    fast = sizewise.compile(model, dynamic_shapes={"x": {0: sizewise.Dim("batch", 1, 8)}})
    between()
    fast.warmup(torch.randn(4, 8))
    for rows in (1, 3, 8):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x))
    print("hit" if fast.counters.cache_hits else "built", fast.report().cache["why"])
"""
HELPER = "class Helper:\n    def run(self, x):\n        return x * {number}\n"


def run(folder: Path, main: str) -> str:
    """The first word, hit or built, for each model that ``main`` serves."""
    (folder / "main.py").write_text(SERVE + textwrap.dedent(main))
    variables = {
        **environment(),
        "SIZEWISE_CACHE_DIR": str(folder / "cache"),
        "SIZEWISE_DISABLE_COMPILE_CACHE": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run([sys.executable, "main.py"], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return " ".join(line.split()[0] for line in done.stdout.splitlines())


USES_HELPER = """
    sys.path.insert(0, {path!r})
    import helper
    class Net(nn.Module):
        def forward(self, x):
            return helper.Helper().run(x.sin())
    serve(Net)
"""


def plain(folder: Path, number: str) -> None:
    (folder / "helper.py").write_text(HELPER.format(number=number))


def zipped(folder: Path, number: str) -> None:
    with zipfile.ZipFile(folder / "app.zip", "w") as archive:
        archive.writestr("helper.py", HELPER.format(number=number))


def bytecode(folder: Path, number: str) -> None:
    source = folder / "elsewhere.txt"
    source.write_text(HELPER.format(number=number))
    py_compile.compile(str(source), cfile=str(folder / "helper.pyc"), doraise=True)


def dataclass_default(folder: Path, number: str) -> None:
    (folder / "numbers_of_others.py").write_text(f"NUMBER = {number}\n")
    (folder / "helper.py").write_text(
        "from dataclasses import dataclass\nfrom numbers_of_others import NUMBER\n\n\n"
        "@dataclass\nclass Settings:\n    number: float = NUMBER\n\n\n"
        "class Helper:\n    def run(self, x):\n        return x * Settings().number\n"
    )


def named_tuple_default(folder: Path, number: str) -> None:
    (folder / "helper.py").write_text(
        "import os\nfrom collections import namedtuple\n"
        "with open('number') as file:\n    number = float(file.read())\n"
        "Pair = namedtuple('Pair', ['first', 'second'], defaults=[number])\n\n\n"
        "class Helper:\n    def run(self, x):\n        return x * Pair(1.0).second\n"
    )
    (folder / "number").write_text(number)


@pytest.mark.parametrize(
    "write, path",
    [(plain, "."), (zipped, "app.zip"), (bytecode, "."), (dataclass_default, ".")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_edit_is_noticed_and_nothing_else_is(write: Callable[[Path, str], None], path: str, tmp_path: Path) -> None:
    main = USES_HELPER.format(path=path)
    seen = []
    for number in ("2.0", "2.0", "3.0"):
        write(tmp_path, number)
        seen.append(run(tmp_path, main))
    assert seen == ["built", "hit", "built"], seen


def test_what_cannot_be_told_is_not_kept(tmp_path: Path) -> None:
    for number in ("2.0", "3.0"):
        named_tuple_default(tmp_path, number)
        assert run(tmp_path, USES_HELPER.format(path=".")) == "built"


HIDDEN = {
    "a base class": (
        "class Fast: pass\nclass Slow: pass\nclass Kind({base}): pass\n",
        {"base": "Fast"},
        {"base": "Slow"},
        "x.sin() * (2.0 if isinstance(hidden.Kind(), hidden.Fast) else 3.0)",
    ),
    "the value of an IntEnum": (
        "import enum\nclass Mode(enum.IntEnum):\n    A = {value}\n",
        {"value": 2},
        {"value": 3},
        "x.sin() * hidden.Mode.A",
    ),
    "a composite operator": (
        "import torch\nlibrary = torch.library.Library('cache_tests', 'FRAGMENT')\n"
        "library.define('scaled(Tensor x) -> Tensor')\n"
        "library.impl('scaled', lambda x: x * {value}, 'CompositeImplicitAutograd')\n",
        {"value": 2.0},
        {"value": 3.0},
        "torch.ops.cache_tests.scaled(x.sin())",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_nothing_compares_shows_in_the_result(name: str, tmp_path: Path) -> None:
    """A hit is compared with eager mode for the example before it serves."""
    source, first, second, expression = HIDDEN[name]
    main = f"""
    import hidden
    class Net(nn.Module):
        def forward(self, x):
            return {expression}
    serve(Net)
    """
    (tmp_path / "hidden.py").write_text(source.format(**first))
    assert run(tmp_path, main) == "built"
    (tmp_path / "hidden.py").write_text(source.format(**second))
    assert run(tmp_path, main) == "built"


def test_cells_of_a_notebook(tmp_path: Path) -> None:
    main = """
        cell = "class Net(nn.Module):\\n    def forward(self, x):\\n        return x.sin() * {number}\\n"
        for count, number in enumerate((2.0, 3.0, 2.0)):
            exec(compile(cell.format(number=number), f"/tmp/cell_{count}.py", "exec"))
            serve(Net)
    """
    assert run(tmp_path, main) == "built built hit"
    assert run(tmp_path, main) == "hit hit hit"


def test_code_that_no_name_leads_to_is_not_kept(tmp_path: Path) -> None:
    main = """
        def make():
            names = {"nn": nn}
            exec("class Net(nn.Module):\\n    def forward(self, x):\\n        return x.sin() * 2\\n", names)
            return names["Net"]()
        serve(make)
    """
    assert run(tmp_path, main) == "built"
    assert run(tmp_path, main) == "built"


def test_a_file_that_is_edited_under_a_process(tmp_path: Path) -> None:
    """The process goes on with what it imported, which is no longer what the file holds."""
    plain(tmp_path, "2.0")
    main = (
        USES_HELPER.format(path=".")
        + """
    def edit():
        with open("helper.py", "w") as file:
            file.write({helper!r})
    serve(Net, edit)
    """.format(helper=HELPER.format(number="3.0"))
    )
    assert run(tmp_path, main) == "built built"
    assert run(tmp_path, USES_HELPER.format(path=".")) == "built"
    assert run(tmp_path, USES_HELPER.format(path=".")) == "hit"


def test_an_attribute_read_through_vars_in_a_folder_called_torch(tmp_path: Path) -> None:
    folder = tmp_path / "torch_projects" / "torch"
    folder.mkdir(parents=True)
    main = """
        class Settings:
            number = None
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.settings = Settings()
                self.settings.number = {number}
            def forward(self, x):
                return x.sin() * vars(self.settings)["number"]
        serve(Net)
    """
    for number in ("2.0", "3.0"):
        assert run(folder, main.format(number=number)) == "built"


# -- finding functions


def test_functions_are_found_behind_what_wraps_them() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(
        "import functools\nclass Wraps:\n    @staticmethod\n    def static(): pass\n"
        "    @classmethod\n    def cls(cls): pass\n"
        "    @property\n    def own(self): pass\n    @functools.cached_property\n    def kept(self): pass\n"
        "    def plain(self, k=1, *, j=(2, 'a')): pass\n",
        names,
    )
    cls = globals()["Wraps"] = names["Wraps"]
    try:
        for name in ("static", "cls", "own", "kept", "plain"):
            assert places.function_at(__name__, f"Wraps.{name}") is not None, name
        function = cls.plain
        before = places.digest_of(function)
        found = places.places_of([function.__code__])
        assert found == {f"{places.FUNCTION}{__name__}:Wraps.plain": before}
        function.__kwdefaults__ = {"j": (2, "b")}
        assert places.seen_at(next(iter(found))) != before
    finally:
        del globals()["Wraps"]
    assert places.seen_at(next(iter(found))) == places.GONE
    assert places.function_at("no_such_module", "x") is None


def test_a_file_written_now_was_written_later(tmp_path: Path) -> None:
    assert not files._was_written_later(os.stat(__file__).st_ctime)
    new = tmp_path / "new.py"
    new.write_text("")
    assert files._was_written_later(new.stat().st_ctime)
