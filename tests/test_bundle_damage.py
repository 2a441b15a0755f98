"""Damaged and hostile bundles: refused before anything in them is run; saving that is cut short, and many at once."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import socket
import stat
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import sizewise
from sizewise import Dim
from sizewise.errors.bundle import BundleDiffers, CannotSave, NotABundle
from sizewise.saved import bundle

from .bundle_support import PRELUDE, ROOT, bare, members, python, rewritten, write_sources
from .command_line import environment

pytestmark = pytest.mark.slow


class Small(nn.Module):
    """With a constant tensor and programs for two ranges of sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.scale = nn.Linear(4, 4), [2.0, 3.0]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.lin(x).sin() * self.scale[1] + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return {"y": y, "sum": y.sum(-1)}


def small() -> Small:
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    fast = sizewise.compile(small(), dynamic_shapes={"x": {0: Dim("batch", 1, 16)}}, compile_sizes=[8])
    fast.warmup(torch.randn(3, 4))
    path: Path = fast.save(tmp_path_factory.mktemp("damage") / "small.sizewise")
    return path


def serves(path: Path) -> bool:
    """Whether the bundle loads and gives what the module gives."""
    model = small()
    fast = sizewise.load(path, model)
    for rows in (1, 8, 16):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            seen, wanted = fast(x), model(x)
        assert all(torch.allclose(seen[key], wanted[key], atol=1e-5) for key in wanted)
    return True


def refused(path: Path) -> str:
    with pytest.raises(NotABundle) as caught:
        sizewise.load(path, small())
    return str(caught.value)


def test_a_whole_one_serves(saved: Path, tmp_path: Path) -> None:
    assert serves(saved)
    assert serves(rewritten(tmp_path / "again.sizewise", members(saved)))
    assert serves(Path(shutil.copy(saved, tmp_path / "no suffix")))


def test_one_that_is_cut_short(saved: Path, tmp_path: Path) -> None:
    data, path = saved.read_bytes(), tmp_path / "cut.sizewise"
    for length in [*range(0, len(data), len(data) // 60), *range(len(data) - 30, len(data))]:
        path.write_bytes(data[:length])
        refused(path)


def test_a_byte_that_is_flipped(saved: Path, tmp_path: Path) -> None:
    data, path = bytearray(saved.read_bytes()), tmp_path / "flipped.sizewise"
    around_entries = [place for name in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06") for place in found(data, name)]
    places = [*range(7, len(data), len(data) // 250), *(p + more for p in around_entries for more in range(0, 46, 3))]
    for place in places:
        if place >= len(data):
            continue
        changed = bytearray(data)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        with contextlib.suppress(NotABundle, BundleDiffers):
            serves(path)  # some bytes say nothing: times, and who made the archive


def found(data: bytearray, words: bytes) -> list[int]:
    places, start = [], data.find(words)
    while start >= 0:
        places.append(start)
        start = data.find(words, start + 1)
    return places


def test_each_file_deleted_swapped_cut_or_changed(saved: Path, tmp_path: Path) -> None:
    whole, path = members(saved), tmp_path / "changed.sizewise"
    names = list(whole)
    assert len(names) >= 6
    for index, name in enumerate(names):
        other = names[(index + 1) % len(names)]
        changes: list[dict[str, bytes]] = [
            {key: value for key, value in whole.items() if key != name},
            {**whole, name: whole[other]},
            {**whole, name: whole[name][:-1]},
            {**whole, name: whole[name] + b"\0"},
            {**whole, name: b""},
            {**whole, name: bytes([whole[name][0] ^ 1]) + whole[name][1:]},
            {**whole, name: whole[other], other: whole[name]},
        ]
        for contents in changes:
            refused(rewritten(path, contents))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/evil",
        "../evil",
        "a/b",
        "..",
        ".",
        ".hidden",
        "a\\b",
        "C:evil",
        "a b",
        "é",
        "x" * 200,
        "con\n",
        "-",
        "folder/",
    ],
)
def test_names_that_are_no_plain_ones(saved: Path, tmp_path: Path, name: str) -> None:
    assert "no plain" in refused(rewritten(tmp_path / "named.sizewise", {**members(saved), name: b"x"}))


def test_a_stranger_and_one_listed_that_is_not_there(saved: Path, tmp_path: Path) -> None:
    whole = members(saved)
    assert "without listing" in refused(rewritten(tmp_path / "more.sizewise", {**whole, "more.py": b"import os"}))
    manifest = json.loads(whole[bundle.MANIFEST])
    manifest["files"]["ghost.py"] = {"sha256": "0" * 64, "size": 1}
    assert "without holding" in refused(resealed(tmp_path / "ghost.sizewise", whole, manifest))


def test_two_files_of_one_name(saved: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(saved, tmp_path / "twice.sizewise"))
    name = next(name for name in members(saved) if name.endswith(".py"))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(name, b"import os")
    assert "two files of one name" in refused(path)


def entry_change(**fields: Any) -> Callable[[zipfile.ZipInfo], None]:
    def change(entry: zipfile.ZipInfo) -> None:
        for name, value in fields.items():
            setattr(entry, name, value)

    return change


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"external_attr": 0o120777 << 16}, "no plain file"),
        ({"external_attr": 0o040755 << 16}, "no plain file"),
        ({"external_attr": 0o010644 << 16}, "no plain file"),
        ({"compress_type": zipfile.ZIP_DEFLATED}, "compressed"),
        ({"compress_type": zipfile.ZIP_BZIP2}, "compressed"),
        ({"compress_type": zipfile.ZIP_LZMA}, "compressed"),
    ],
)
def test_links_folders_pipes_and_compressed_files(saved: Path, tmp_path: Path, fields: Any, words: str) -> None:
    assert words in refused(rewritten(tmp_path / "odd.sizewise", members(saved), entry_change(**fields)))


def test_an_encrypted_one(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[found(data, b"PK\x01\x02")[0] + 8] |= 1
    (tmp_path / "secret.sizewise").write_bytes(data)
    assert "encrypted" in refused(tmp_path / "secret.sizewise")


@pytest.mark.parametrize("size", [10_000_000, 0xFFFF_FFF0])
def test_sizes_that_are_not_true(saved: Path, tmp_path: Path, size: int) -> None:
    data = bytearray(saved.read_bytes())
    for place in found(data, b"PK\x01\x02")[:2]:
        data[place + 20 : place + 28] = struct.pack("<II", size, size)
    (tmp_path / "large.sizewise").write_bytes(data)
    assert "bytes" in refused(tmp_path / "large.sizewise")


def test_entries_that_lie_in_one_another(tmp_path: Path) -> None:
    """A small archive whose directory names one large file many times."""
    path = tmp_path / "bomb.sizewise"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (bundle.MANIFEST, bundle.DIGEST):
            archive.writestr(name, b"{}")
        archive.writestr("first", bytes(1_000_000))
        first = archive.infolist()[-1]
        for number in range(500):
            again = copy.copy(first)
            again.filename = again.orig_filename = f"more{number}"
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    assert "lie in one another" in refused(path)


def test_more_files_than_anybody_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MOST_FILES", 20)
    contents = {f"file{number}": b"" for number in range(25)}
    assert "20 at most" in refused(rewritten(tmp_path / "many.sizewise", contents))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"1", b'"text"', b"null", b"\xff\xfe", b"{}", b'{"files": []}', b'{"files": {"a": 1}}']
    + [b'{"files": {"a": {"sha256": 1, "size": "x"}}}', b"[" * 100_000, b'{"files": {}, "programs": ' + b"[" * 90_000]
    + [b'{"files": {}}', b'{"files": {}, "versions": 1}', b'{"files": {"manifest.json": {"sha256": "", "size": 0}}}'],
)
def test_manifests_that_are_none(tmp_path: Path, text: bytes) -> None:
    contents = {bundle.MANIFEST: text, bundle.DIGEST: bundle._digest_line(text)}
    assert "manifest" in refused(rewritten(tmp_path / "none.sizewise", contents))


OPENS = """
import sys
import sizewise

for path in sys.argv[1:]:
    try:
        sizewise.load(path, torch.nn.Linear(4, 4).eval())
    except sizewise.SizewiseError as problem:
        tell(path=path, code=problem.code, problem=problem.fields["problem"])
"""


def test_what_is_no_file(tmp_path: Path) -> None:
    """Refused at once: each of them would keep a reader waiting for ever, or never end."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
    wanted = {
        "missing": "no such file",
        "folder": "it is a directory",
        "pipe": "it is a pipe",
        "to pipe": "it is a pipe",
        "socket": "it is a socket",
        "/dev/zero": "it is a device",
        "/dev/tty": "it is a device",
        "loop": "cannot be read",
        "/proc/self/mem": "no archive at all",
        "x" * 300: "cannot be read",
    }
    told = {each["path"]: each for each in python(OPENS, *wanted, folder=tmp_path)}
    assert told.keys() == wanted.keys()
    for path, words in wanted.items():
        assert told[path]["code"] == "SW611" and words in told[path]["problem"]


LOADS = """
import sys
import sizewise
from tests.test_bundle_damage import small

try:
    sizewise.load(sys.argv[1], small())
except sizewise.SizewiseError as problem:
    tell(code=problem.code, text=str(problem))
"""


def test_a_folder_for_temporary_files_that_allows_no_code(saved: Path, tmp_path: Path) -> None:
    """As in a container whose /tmp is mounted noexec."""
    (tmp_path / "tmp").mkdir()
    mount = f"mount -t tmpfs -o noexec none {tmp_path / 'tmp'}"
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode
    ):
        pytest.skip("no mount can be made here")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    variables = environment(PYTHONPATH=path, TMPDIR=str(tmp_path / "tmp"))
    code = f"{PRELUDE}{LOADS}"
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "-", sys.executable, "-c", code, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=100)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == "SW611" and "TMPDIR" in told["text"] and "noexec" in told["text"]
    assert "failed to map" in told["text"] and "manifest is not" not in told["text"]


# -- manifests


def resealed(path: Path, whole: dict[str, bytes], manifest: Any) -> Path:
    text = json.dumps(manifest).encode()
    return rewritten(path, {**whole, bundle.MANIFEST: text, bundle.DIGEST: bundle._digest_line(text)})


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places_in(item, (*path, key)))]


def changed(manifest: Any, place: tuple[Any, ...], new: Any, how: str) -> Any:
    result = copy.deepcopy(manifest)
    owner = result
    for key in place[:-1]:
        owner = owner[key]
    if not place:
        return new
    if how == "delete":
        del owner[place[-1]]
    elif how == "double" and isinstance(owner, list):
        owner.insert(place[-1], owner[place[-1]])
    elif how == "swap" and isinstance(owner, list):
        owner.reverse()
    else:
        owner[place[-1]] = new
    return result


NEW = (
    st.sampled_from(
        [None, True, False, 0, 1, -1, 7, 2**70, "", "x", "torch:load", "sizewise", [], {}, [[]], ["tuple", []]]
    )
    | st.sampled_from(
        [["class", "os:system"], ["enum", "x", "y"], ["dtype", "torch.load"], ["float", "0x1p9999"], "forward"]
    )
    | st.text(max_size=3)
    | st.integers()
    | st.floats()
)
HOW = st.sampled_from(["set", "set", "delete", "double", "swap"])
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@QUICK
@given(data=st.data())
def test_a_changed_manifest_is_refused(saved: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = members(saved)
    manifest = json.loads(whole[bundle.MANIFEST])
    new = changed(manifest, data.draw(st.sampled_from(places_in(manifest))), data.draw(NEW), data.draw(HOW))
    if json.dumps(new) == json.dumps(manifest):
        return
    text = json.dumps(new, indent=1).encode()
    assert "another digest" in refused(rewritten(tmp_path / "new.sizewise", {**whole, bundle.MANIFEST: text}))


@QUICK
@given(data=st.data())
def test_a_manifest_of_somebody_elses_making_is_no_crash(saved: Path, tmp_path: Path, data: st.DataObject) -> None:
    """With a digest that fits it: what it says may be wrong, but loading ends in an answer."""
    whole = members(saved)
    manifest = json.loads(whole[bundle.MANIFEST])
    place = data.draw(st.sampled_from([place for place in places_in(manifest) if place[:1] != ("processor",)]))
    new = changed(manifest, place, data.draw(NEW), data.draw(HOW))
    try:
        sizewise.load(resealed(tmp_path / "new.sizewise", whole, new), small())
    except (NotABundle, BundleDiffers) as problem:
        assert len(str(problem)) < 3000


# -- many at once, and an end in the middle

THREADS = """
import threading
from model import Net, Tied, Writes
import sizewise

made = {"net": Net, "tied": lambda: Tied(True), "writes": Writes}
known = {name: json.load(open(f"{name}.json")) for name in made}
start, problems = threading.Barrier(8), []


def work(number):
    name = list(made)[number % len(made)]
    start.wait()
    for _ in range(6):
        try:
            model = made[name]().eval()
            model.load_state_dict(torch.load(f"{name}.pt"))
            fast = sizewise.load(f"{name}.sizewise", model)
            for given, wanted in known[name]:
                if bits(fast(torch.tensor(given))) != wanted:
                    problems.append(f"{name} differs")
        except BaseException as problem:
            problems.append(f"{name}: {type(problem).__name__}: {problem}")


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tell(problems=problems, compilers=compiler_modules())
"""
BUILD = """
import sizewise
from model import Net, Tied, Writes
from sizewise import Dim

for name, make in {"net": Net, "tied": lambda: Tied(True), "writes": Writes}.items():
    model = make().eval()
    torch.save(model.state_dict(), f"{name}.pt")
    fast = sizewise.compile(model, dynamic_shapes={"x": {0: Dim("batch", 1, 16)}}).warmup(torch.randn(3, 4))
    fast.save(f"{name}.sizewise")
    model.load_state_dict(torch.load(f"{name}.pt"))
    inputs = [torch.randn(rows, 4) for rows in (1, 4, 16)]
    json.dump([(x.tolist(), bits(fast(x))) for x in inputs], open(f"{name}.json", "w"))
tell(done=True)
"""


def test_threads_load_the_same_and_others_at_once(tmp_path: Path) -> None:
    python(BUILD, folder=write_sources(tmp_path))
    (told,) = python(THREADS, folder=tmp_path, **bare(tmp_path))
    assert told == {"problems": [], "compilers": []}


def test_loading_twice_gives_two_that_serve(saved: Path) -> None:
    first, second = small(), small()
    second.lin.weight.data.mul_(2)
    one, two, again = (sizewise.load(saved, model) for model in (first, second, first))
    x = torch.randn(5, 4)
    with torch.no_grad():
        for fast, model in ((one, first), (two, second), (again, first)):
            assert torch.allclose(fast(x)["y"], model(x)["y"], atol=1e-5)
    with pytest.raises(sizewise.SizewiseError, match="SW502"):
        one.refresh()


def test_what_was_loaded_can_be_saved_again(saved: Path, tmp_path: Path) -> None:
    fast = sizewise.load(saved, small())
    again = sizewise.load(fast.save(tmp_path / "again.sizewise"), small())
    x = torch.randn(5, 4)
    assert torch.equal(again(x)["y"], fast(x)["y"])


SAVES = """
import sys
from pathlib import Path
from sizewise.saved import bundle

path, data = Path(sys.argv[1]), bytes([int(sys.argv[2])]) * 300_000
names = [f"file{number}" for number in range(20)]
print("ready", flush=True)
while True:
    bundle.write(path, {"owner": sys.argv[2]}, dict.fromkeys(names, data))
"""


def test_a_writer_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Two write to one path all the time; each is killed at a random moment."""
    path, generator = tmp_path / "one.sizewise", random.Random(0)
    seen = set()
    for _ in range(3):
        command = [sys.executable, "-c", SAVES, str(path)]
        writers = [
            subprocess.Popen([*command, number], stdout=subprocess.PIPE, env=environment()) for number in ("1", "2")
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline()
        until = time.monotonic() + 1 + generator.random()
        while time.monotonic() < until:
            if path.exists():
                seen.add(bundle.read(path)[0]["owner"])
        for writer in writers:
            writer.kill()
            writer.communicate()
        manifest, files = bundle.read(path)
        assert {data[0] for data in files.values()} == {int(manifest["owner"])} and len(files) == 20
    assert seen == {"1", "2"}


BEGINS = """
import sys
from pathlib import Path
from sizewise.saved import temporary

handle, path = temporary.create(Path(sys.argv[1]))
print(path.name, flush=True)
sys.stdin.read()
"""
"""A save that has begun: its temporary file is there, and it goes on until it is killed or told to end."""


def begun(path: Path) -> tuple[subprocess.Popen[str], Path]:
    command = [sys.executable, "-c", BEGINS, str(path)]
    pipe = subprocess.PIPE
    writer = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())
    assert writer.stdout is not None
    return writer, path.with_name(writer.stdout.readline().strip())


def test_the_next_save_removes_what_killed_ones_left_and_nothing_else(saved: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "one.sizewise", tmp_path / "other.sizewise"
    manifest, files = bundle.read(saved)
    killed, left = begun(path)
    elsewhere, of_other = begun(other)
    living, kept = begun(path)
    assert str(killed.pid) in left.name and left.name.startswith(".one.sizewise.")
    for writer in (killed, elsewhere):
        writer.kill()  # and not waited for: it stays a zombie, which has a number still
        while b") Z" not in Path(f"/proc/{writer.pid}/stat").read_bytes():
            time.sleep(0.01)
    # The number of a dead writer that another process has by now, and a writer in another container.
    pid, start, place, _ = kept.name.rpartition("writing-")[2].split("-")
    later = path.with_name(f".one.sizewise.writing-{pid}-{int(start) - 1}-{place}-000000000000")
    beyond = path.with_name(f".one.sizewise.writing-999999999-1-{'0' * 8}-000000000000")
    strange = [path.with_name(f".one.sizewise.{end}") for end in ("writing-", "writing-1", "x", "writing-x-1-2-3")]
    for made in (later, beyond, *strange):
        made.write_bytes(b"")
    bundle.write(path, manifest, files)
    assert not left.exists() and not later.exists()
    assert all(made.exists() for made in (kept, of_other, beyond, *strange))
    for writer in (killed, elsewhere, living):
        writer.kill()
        writer.communicate()
    bundle.write(path, manifest, files)
    assert not kept.exists() and of_other.exists() and beyond.exists()


def test_a_link_or_folder_under_the_name_of_a_leftover_is_left_alone(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.sizewise"
    writer, left = begun(path)
    writer.kill()
    writer.communicate()
    left.unlink()
    (tmp_path / "precious").write_text("x")
    left.symlink_to("precious")
    left.with_name(left.name[:-12] + "0" * 12).mkdir()
    bundle.write(path, *bundle.read(saved))
    assert left.is_symlink() and (tmp_path / "precious").read_text() == "x" and len(os.listdir(tmp_path)) == 4


def test_a_file_that_cannot_be_written_leaves_nothing(saved: Path, tmp_path: Path) -> None:
    manifest, files = bundle.read(saved)
    (tmp_path / "folder.sizewise").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, words in {
        tmp_path / "missing" / "x.sizewise": "there is no directory .*missing",
        tmp_path / "folder.sizewise": "it is a directory",
        tmp_path / "pipe": "it is a pipe",
        tmp_path / "pipe" / "x.sizewise": "Not a directory",
        tmp_path / ("x" * 300): "File name too long",
        tmp_path / "zero\0": "null byte",
        Path("/proc/x.sizewise"): "bundle can be written",
        Path("/dev/null"): "it is a device",
    }.items():
        for attempt in (bundle.check_writable, lambda path: bundle.write(path, manifest, files)):
            with pytest.raises(OSError, match=words) as caught:
                attempt(path)
            assert isinstance(caught.value, CannotSave)
    assert sorted(os.listdir(tmp_path)) == ["folder.sizewise", "pipe"] and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    bundle.check_writable(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    bundle.write(tmp_path / "a", manifest, files)
    bundle.write(tmp_path / "b", manifest, files)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
