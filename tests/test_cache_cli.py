"""`sizewise cache`."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
import typer

from sizewise.cache import Store, open_store
from sizewise.cli.app import CACHE
from sizewise.cli.cache import in_words, parse_size

from .cache_support import FIELDS, FILES, KEY, OTHER_KEY, age, mounted, published, store
from .command_line import environment, sizewise

__all__ = ["store"]
NAMES = [command.__name__ for command in CACHE]


@pytest.fixture(autouse=True)
def folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(store.root))
    return store.root


@pytest.mark.parametrize("command", CACHE, ids=NAMES)
def test_every_command_has_help_with_a_real_example_and_json(command: object) -> None:
    name = command.__name__  # type: ignore[attr-defined]
    done = sizewise("cache", name, "--help")
    text = re.sub(r"\s+", " ", re.sub("[^\x00-\x7f]", " ", done.stdout))
    example = re.search(r"Example: sizewise cache (\S.*?) (?= )?(?:Options|$)", text + " ")
    assert done.exit_code == 0 and "--json" in text and example, text
    assert shlex.split(example[1])[0] == name
    assert "No such option" in sizewise("cache", *shlex.split(example[1]), "--no-such-option").stderr
    for parameter in inspect.signature(command, eval_str=True).parameters.values():  # type: ignore[arg-type]
        assert parameter.annotation.__metadata__[0].help


def test_no_command_imports_torch(store: Store) -> None:
    published(store)
    for name in set(NAMES) - {"why"}:  # it builds the model
        code = (
            f"import sys, runpy\nsys.argv = ['sizewise', 'cache', {name!r}, '--json']\n"
            "try:\n    runpy.run_module('sizewise', run_name='__main__')\n"
            "except SystemExit as stop:\n    print('exit', stop.code)\nprint('modules', *sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
        answer, _, modules = done.stdout.partition("exit 0\nmodules ")
        assert json.loads(answer)["path"] == str(store.folder), done.stderr
        # typer itself imports pydantic where it is installed.
        assert not {"torch", "transformers"} & set(modules.split())


def test_path(store: Store) -> None:
    assert sizewise("cache", "path").stdout == f"{store.folder}\n"
    told = json.loads(sizewise("cache", "path", "--json").stdout)
    assert told == {"path": str(store.folder), "exists": False, "writable": True, "problem": None}
    published(store)
    assert json.loads(sizewise("cache", "path", "--json").stdout)["exists"] is True


def test_a_folder_that_is_refused(store: Store) -> None:
    published(store)
    store.root.chmod(0o777)
    done = sizewise("cache", "path")
    assert done.exit_code == 0 and done.stdout == f"{store.folder}\n" and "chmod go-w" in done.stderr
    told = json.loads(sizewise("cache", "path", "--json").stdout)
    assert told["writable"] is False and "[SW604]" in told["problem"]
    for name in set(NAMES) - {"path"}:
        done = sizewise("cache", name, *["app.py:make"] * (name == "why"), "--json")
        assert done.exit_code == 3 and json.loads(done.stdout)["error"]["code"] == "SW604"


def test_ls(store: Store) -> None:
    assert sizewise("cache", "ls").stdout.startswith("0 programs, 0 bytes of 5.0 GiB in ")
    old = published(store)
    age(store.layout.manifest(KEY, old.id), 500)
    with store.building(OTHER_KEY, timeout=5) as token:
        # Nothing of what the listing shows, or something else than it thinks.
        odd = store.add(OTHER_KEY, {"built": -1e30, "sizes": [[1], None], "torch": {"x": 1}}, {}, token=token)
    done = sizewise("cache", "ls")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["program", "built", "torch", "sizes", "bytes", "last", "used"]
    assert lines[2][0] == odd.id[:12] and lines[3][:2] == [old.id[:12], "Net"]
    local = datetime.fromisoformat(FIELDS["built"]).astimezone().strftime("%Y-%m-%d %H:%M").split()
    assert {"2.13.0", "batch", *local} <= set(lines[3]) and "2 programs, " in done.stdout
    told = json.loads(sizewise("cache", "ls", "--json").stdout)
    assert told["limit"] == 5 << 30 and told["bytes"] == store.size()
    first, second = told["entries"]
    assert first["owner"] is None and first["sizes"] == [[1], None] and first["files"] == 0
    assert second["owner"] == "Net" and second["torch"] == "2.13.0" and second["key"] == KEY
    assert second["bytes"] == old.size and second["files"] == len(FILES)


def test_verify(store: Store) -> None:
    entry = published(store)
    done = sizewise("cache", "verify")
    assert done.exit_code == 0 and "1 program and 2 files" in done.stdout and done.stdout.endswith("0 problems.\n")
    published(store, OTHER_KEY, {"same": FILES["caller.py"]}, owner="Other", sizes={})
    store.layout.blob(entry.facts["caller.py"].sha256).write_bytes(b"")
    store.layout.blob(entry.facts["piece_0.so"].sha256).unlink()
    done = sizewise("cache", "verify")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 1 and "2 problems" in done.stdout and "cache prune" in done.stdout
    assert lines[0][:2] == ["program", "sizes"]
    digest = entry.facts["caller.py"].sha256
    for owner in ("Net", "Other"):
        place = f"blobs/{digest[:2]}/{digest[:12]}..."
        assert any(owner in line and place in line for line in lines), done.stdout
    (missing,) = [line for line in lines if "missing" in line]
    assert missing[:5] == [entry.id[:12], "Net", "batch", "1,", "8"] and "'piece_0.so'" in missing
    told = json.loads(sizewise("cache", "verify", "--json").stdout)
    assert told["healthy"] is False and told["entries"] == 2 and told["blobs"] == 1
    assert len(told["problems"]) == 2 and all(os.path.isabs(problem["path"]) for problem in told["problems"])
    assert {one["owner"] for problem in told["problems"] for one in problem["programs"]} == {"Net", "Other"}
    assert sizewise("cache", "prune").exit_code == 0 and sizewise("cache", "verify").exit_code == 0


def test_verify_of_manifests(store: Store) -> None:
    entry, other = published(store), published(store, OTHER_KEY, owner="Other")
    path = store.layout.manifest(KEY, entry.id)
    path.write_bytes(path.read_bytes().replace(b"2.13.0", b"2.13.1"))
    store.layout.manifest(OTHER_KEY, other.id).write_text("{")
    done = sizewise("cache", "verify")
    rows = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if "entries/" in line}
    assert rows == {entry.id[:12]: "Net", other.id[:12]: "unknown"}, done.stdout
    store.layout.manifest(OTHER_KEY, other.id).unlink()
    told = json.loads(sizewise("cache", "prune", "--json").stdout)
    assert told["removed"]["entries"] == 1 and store.entries() == []


def test_prune_and_clear(store: Store) -> None:
    published(store, files={"a": os.urandom(40_000)})
    age(store.layout.manifest(KEY, store.entries()[0].id), 500)
    published(store, OTHER_KEY, files={"a": os.urandom(40_000)})
    assert json.loads(sizewise("cache", "prune", "--json").stdout)["removed"]["entries"] == 0
    told = json.loads(sizewise("cache", "prune", "--to", "50kB", "--json").stdout)
    assert told["removed"]["entries"] == told["removed"]["blobs"] == 1 and 40_000 < told["bytes"] < 45_000
    assert [entry.key for entry in store.entries()] == [OTHER_KEY]
    done = sizewise("cache", "clear")
    assert done.exit_code == 0 and done.stdout.startswith("Removed 1 program and 1 file, 39.")
    assert open_store(store.root).entries() == []


def test_a_disk_that_says_no_is_a_named_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk", "mode=700") as folder:
        monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(folder))
        published(open_store(folder))
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        done = sizewise("cache", "clear", "--json")
    assert done.exit_code == 3 and json.loads(done.stdout)["error"]["code"] == "SW606"


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("123", 123), ("500MB", 500_000_000), ("2GiB", 2 << 30), ("1.5 gb", 1_500_000_000), ("7k", 7000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "x", "5 XB", "1e3", "NaN", "1,5GB", "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_size(text)
    assert sizewise("cache", "prune", f"--to={text}").exit_code == 2


def test_sizes_in_words() -> None:
    assert [in_words(size) for size in (0, 1023, 1024, 5 << 30, 3 << 42)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "5.0 GiB",
        "12.0 TiB",
    ]
