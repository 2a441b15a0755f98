"""The cache steps of tests/cases/modules/27_cache_steps.md, each in real processes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sizewise.cache import open_store

from .cache_support import all_files
from .processes import run, started

pytestmark = pytest.mark.slow

CASE = Path(__file__).parent / "cases" / "modules" / "27_constant_not_in_cache_key.py"
VARIANTS = range(4)
STRICT = {"SIZEWISE_REQUIRE_WARM": "1"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Step A1 up to the fourth process: every variant once, in order."""
    folder = tmp_path_factory.mktemp("filled")
    for variant in VARIANTS:
        told = run(folder, path=str(CASE), argument=variant)
        assert (told["right"], told["hit"], told["traces"], told["warnings"]) == (True, False, 1, [])
    return folder


@pytest.fixture
def copied(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "copied"))


def test_a1_the_variants_do_not_share_and_the_first_is_found_again(filled: Path) -> None:
    assert len(open_store(filled).entries()) == len(VARIANTS)
    for variant in VARIANTS:
        told = run(filled, path=str(CASE), argument=variant, variables=STRICT)
        assert (told["right"], told["hit"], told["traces"], told["compilations"]) == (True, True, 0, 0)


def test_a2_the_order_does_not_matter(tmp_path: Path) -> None:
    for variant in reversed(VARIANTS):
        told = run(tmp_path / "new", path=str(CASE), argument=variant)
        assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)


def test_a3_other_weights_are_a_hit_and_are_used(filled: Path) -> None:
    told = run(filled, path=str(CASE), seed=random.randrange(1 << 30), variables=STRICT)
    assert (told["right"], told["hit"], told["traces"]) == (True, True, 0)


def edited(folder: Path, *edits: tuple[str, str], name: str = CASE.name, text: str = "") -> str:
    """The path of a copy of the case, or of ``text``, with edits."""
    folder.mkdir(exist_ok=True)
    text = text or CASE.read_text()
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    (folder / name).write_text(text)
    return str(folder / name)


def test_a4_an_edit_of_the_class_is_a_miss(copied: Path, tmp_path: Path) -> None:
    path = edited(tmp_path / "edited", ("torch.relu(y)", "torch.nn.functional.gelu(y)"))
    told = run(copied, path=path)
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)
    assert "the source of 27_constant_not_in_cache_key was" in told["why"]
    (line,) = told["warnings"]
    assert line.startswith("Source code has changed since the last compilation. Recompiling the model.")
    # The one from before is still there, and the new one is found as well.
    for source in (str(CASE), path):
        assert run(copied, path=source, variables=STRICT)["right"]


HELPER = "import torch\n\n\ndef activate(y):\n    return torch.relu(y)\n"


def test_a4_an_edit_of_a_helper_in_another_file_is_a_miss(tmp_path: Path) -> None:
    path = edited(
        tmp_path / "app", ("torch.relu(y)", "helper.activate(y)"), ("import torch\n", "import torch, helper\n")
    )
    edited(tmp_path / "app", name="helper.py", text=HELPER)
    told = run(tmp_path / "cache", path=path)
    assert (told["right"], told["hit"]) == (True, False)
    edited(tmp_path / "app", ("relu", "tanh"), name="helper.py", text=HELPER)
    told = run(tmp_path / "cache", path=path)
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)
    assert "the source of helper was" in told["why"]


def test_a5_a_comment_gives_the_right_answer(copied: Path, tmp_path: Path) -> None:
    told = run(copied, path=edited(tmp_path / "edited", ("    def forward", "    # A comment.\n    def forward")))
    assert told["right"] and told["cache_hits"] + told["cache_misses"] == 1


# -- damage


def cut(size: Callable[[int], int]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[: max(0, size(path.stat().st_size))])


def flip(place: float) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(place * (len(data) - 1))] ^= 0x10
        path.write_bytes(data)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut to 0 bytes": cut(lambda size: 0),
    "cut to 1 byte": cut(lambda size: 1),
    "cut to half": cut(lambda size: size // 2),
    "cut by one byte": cut(lambda size: size - 1),
    "a byte at 25 %": flip(0.25),
    "a byte at 50 %": flip(0.5),
    "a byte at 75 %": flip(0.75),
    "deleted": lambda path: path.unlink(),
}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with variant 0 alone."""
    folder = tmp_path_factory.mktemp("one") / "cache"
    assert not run(folder, path=str(CASE))["hit"]
    return folder


def names(folder: Path) -> dict[str, Path]:
    """The program's files by what they are."""
    (entry,) = open_store(folder).entries()
    found = {"manifest": entry.layout.manifest(entry.key, entry.id)}
    found |= {name.partition("-")[0]: entry.layout.blob(fact.sha256) for name, fact in entry.facts.items()}
    found |= {path.suffix[1:]: path for path in all_files(folder / "programs-1" / "locks")}
    assert len(found) == len(all_files(folder))
    return found


FILES = ("manifest", "program", "piece", "bytecode", "kernels", "guards", "values", "lock")
LAZY = ("guards", "values", "lock")
"""Not read where nothing differs: a warm-up is a hit without them."""


def test_the_files_of_a_program(one: Path) -> None:
    assert set(names(one)) == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_b_damage_is_named_to_who_loads_only(name: str, one: Path, tmp_path: Path) -> None:
    """Steps B1 to B3, strict: nothing is built, and what is wrong is said."""
    for number, (what, damage) in enumerate(DAMAGE.items()):
        folder = Path(shutil.copytree(one, tmp_path / str(number)))
        damage(names(folder)[name])
        told = run(folder, path=str(CASE), variables=STRICT)
        if name in LAZY:
            assert told["right"] and told["hit"] and not told["warnings"], (what, told)
            assert told["guards"] == 1 if name == "guards" else told["guards"] > 1
            continue
        assert told["code"] == "SW502", (what, told)
        if (name, what) != ("manifest", "deleted"):
            (line,) = told["warnings"]
            assert "It is ignored" in line and "damaged file" in told["error"], (what, told)


@pytest.mark.parametrize("name", [name for name in FILES if name not in LAZY])
def test_b_damage_is_ignored_said_and_mended(name: str, one: Path, tmp_path: Path) -> None:
    """The same for who may build: one line, the right answer, and whole again for the next."""
    what, damage = random.choice(list(DAMAGE.items())[:-1])
    folder = Path(shutil.copytree(one, tmp_path / "damaged"))
    path = names(folder)[name]
    damage(path)
    told = run(folder, path=str(CASE))
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1), (what, told)
    (line,) = told["warnings"]
    shown = str(path) if name == "manifest" else f"the cached file '{name}-"
    assert shown in line and "It is ignored; what is missing is built again." in line
    again = run(folder, path=str(CASE), variables=STRICT)
    assert (again["right"], again["hit"], again["warnings"]) == (True, True, [])
    named = {fact.sha256 for entry in open_store(folder).entries() for fact in entry.facts.values()}
    assert not {problem.path.name for problem in open_store(folder).verify().problems} & named


def test_b_everything_is_damaged_at_once(one: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(one, tmp_path / "damaged"))
    for path in all_files(folder):
        random.choice(list(DAMAGE.values()))(path)
    told = run(folder, path=str(CASE))
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)
    assert run(folder, path=str(CASE), variables=STRICT)["hit"]


def test_b_folders_lie_where_the_files_should(one: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(one, tmp_path / "damaged"))
    for path in all_files(folder):
        path.unlink()
        (path / "folder").mkdir(parents=True)
        (path / "file").write_text("x")
    told = run(folder, path=str(CASE))
    assert (told["right"], told["hit"], told["traces"]) == (True, False, 1)
    assert len(told["warnings"]) == 1 and "It is ignored" in told["warnings"][0], told
    assert run(folder, path=str(CASE), variables=STRICT)["hit"] and not open_store(folder).verify().problems


def test_b_what_only_a_report_reads_is_mended_after_a_report(one: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(one, tmp_path / "damaged"))
    flip(0.5)(names(folder)["guards"])
    told = run(folder, path=str(CASE))
    assert told["right"] and told["hit"] and told["guards"] == 1
    again = run(folder, path=str(CASE))
    assert again["right"] and not again["hit"] and again["guards"] > 1
    assert not open_store(folder).verify().problems


def test_b4_a_writer_is_killed_at_random_ten_times(tmp_path: Path) -> None:
    folder, killed = tmp_path / "cache", 0
    for number in range(10):
        with started(folder, path=str(CASE), tells="publish.start") as writer:
            writer.go()
            told = writer.told()
            if "stage" not in told:
                # The one before was killed when it had published: found, right, and all begins anew.
                assert told["right"] and told["hit"], told
                shutil.rmtree(folder)
                continue
            time.sleep(random.uniform(0, 0.01 * number))
            writer.process.kill()
            writer.process.join()
            killed += writer.process.exitcode == -9
        assert open_store(folder).verify().problems == [], number
    assert killed >= 1
    told = run(folder, path=str(CASE))
    assert told["right"] and not told["warnings"]
    assert run(folder, path=str(CASE), variables=STRICT)["right"]
