"""Writing the static site: pages, the same as JSON, a search that needs no server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import command as errors
from .catalogue import Catalogue
from .entry import Entry
from .envelope import SCHEMA, envelope
from .links import in_files
from .render import ASSETS, Renderer, search_script

MARK = ".sizewise-errors"
"""A file in every site that was written here, so that nothing else is ever replaced."""
_OURS = ("api", "assets", "errors", "report")


@dataclass(frozen=True)
class Built:
    """What a build wrote."""

    errors: int
    files: int


def build_site(catalogue: Catalogue, out: Path, made: str, progress: Callable[[int], None] | None = None) -> Built:
    """Write the whole site into ``out``, one error at a time; ``progress`` hears how many are done.

    ``out`` is made if need be; an earlier site in it is replaced. ``made``: now, as RFC 3339 has it.

    Raises:
        CannotWrite (SW704): it holds anything else, or a file cannot be written.
    """
    try:
        _prepare(out)
        writer = _Writer(catalogue, out, made)
        writer.common()
        for number, entry in enumerate(catalogue.entries(), 1):
            writer.error(entry)
            if progress is not None:
                progress(number)
    except errors.CannotWrite:
        raise  # it is an OSError as well
    except OSError as problem:
        raise errors.CannotWrite(path=problem.filename or out, problem=problem.strerror or str(problem)) from problem
    return Built(len(catalogue), writer.files)


def _prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()) and not (out / MARK).is_file():
        raise errors.CannotWrite(path=out, problem="the folder holds files that are not a site of this command")
    (out / MARK).touch()
    for name in _OURS:
        if (out / name).is_dir() and not (out / name).is_symlink():
            shutil.rmtree(out / name)


class _Writer:
    def __init__(self, catalogue: Catalogue, out: Path, made: str) -> None:
        self._catalogue, self._out, self._made = catalogue, out, made
        self._renderer = Renderer(catalogue, made)
        self.files = 0

    def common(self) -> None:
        self._write("index.html", self._renderer.home(in_files(0)))
        self._write("report/index.html", self._renderer.report(in_files(1)))
        self._write("search.js", search_script(self._catalogue))
        self._write("api/error-record.schema.json", SCHEMA.read_text(encoding="utf-8"))
        for asset in sorted(ASSETS.iterdir()):
            self._write(f"assets/{asset.name}", asset.read_text(encoding="utf-8"))

    def error(self, entry: Entry) -> None:
        """The page and the data of an error, under its id and its other names."""
        target = entry.record.id
        aliases = self._catalogue.aliases(target)
        related = self._catalogue.related(entry)
        page = self._write(f"errors/{target}/index.html", self._renderer.error(entry, related, in_files(2)))
        text = json.dumps(envelope(entry, related, aliases, self._made), indent=1) + "\n"
        data = self._write(f"api/errors/{target}", text)
        self._again(data, f"api/errors/{target}.json")
        for alias in aliases:
            self._again(page, f"errors/{alias}/index.html")
            self._again(data, f"api/errors/{alias}")
            self._again(data, f"api/errors/{alias}.json")

    def _write(self, name: str, text: str) -> Path:
        path = self._out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.files += 1
        return path

    def _again(self, first: Path, name: str) -> None:
        """The same file under another name; as a link where the file system has them."""
        path = self._out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files += 1
        try:
            os.link(first, path)
        except OSError:
            shutil.copyfile(first, path)
