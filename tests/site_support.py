"""What the tests of the error reference's site share: a small index, a site in files, a server, a way to ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sizewise.errors.record import pattern_of, record_id, slug_of
from sizewise.errors.registry import errors_by_code
from sizewise.reference.site.catalogue import Catalogue
from sizewise.reference.site.entry import Entry
from sizewise.reference.site.envelope import SCHEMA, envelope
from sizewise.reference.site.own import own_entries
from sizewise.reference.store import Distribution, Site, Store, Stored

SHA = "c794754062d49a8fdb63ab3c5215b488b865030c"
HOSTILE = "</code><script>alert(1)</script> & \"{x['<b>']}\" `tick` {{not a hole}}"
MADE = "2026-08-15T22:17:37.221Z"
TIME = "2026-08-14T21:17:39Z"

CAPTURING = "CUDA graph capturing detected at an inappropriate time. This operation is currently disabled."
SIZES = "cudagraph_capture_sizes not supported in compile_sizes.This should be handled in `post_init_cudagraph_sizes`."
BACKEND = "Invalid backend for piecewise compilation: {self.backend}"

CODES = list(errors_by_code())
CHECK = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


@cache
def our_entries() -> list[Entry]:
    """Sizewise's own errors: read once, which takes seconds."""
    return list(own_entries())


def stored(package: Distribution, error_class: str, template: str, *sites: Site, kind: str = "raise") -> Stored:
    where = sites[0]
    return Stored(
        id=record_id(package.name, where.path, where.qualname, kind, error_class, template, 0),
        kind=kind,
        error_class=error_class,
        template=template,
        pattern=pattern_of(template),
        slug=slug_of(template),
        literals=len(template),
        sites=sites,
        distribution=package,
    )


def fill(index: Path, root: Path, sha: str | None = SHA, at: str = TIME) -> list[Stored]:
    """Write an index of two packages whose sources are files below ``root``."""
    source = "\n".join(f"line {number} of <the file>" for number in range(1, 101)) + "\n"
    for name in ("vllm/compilation/monitor.py", "vllm/compilation/sizes.py", "other/main.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    vllm = Distribution("vllm", "0.32.0", str(root), "", sha, at)
    other = Distribution("other", "1.0", str(root), "", None, at)
    records = [
        stored(
            vllm,
            "RuntimeError",
            CAPTURING,
            Site("vllm/compilation/monitor.py", 40, "validate", "not cudagraph_capturing_enabled"),
        ),
        stored(
            vllm,
            "NotImplementedError",
            SIZES,
            Site("vllm/compilation/sizes.py", 3, "Backend.__init__", "isinstance(size, str)"),
        ),
        stored(
            vllm,
            "ValueError",
            BACKEND,
            Site("vllm/compilation/sizes.py", 60, "Config.check", "self.mode == Mode.VLLM"),
            Site("vllm/compilation/monitor.py", 7, "again", ""),
        ),
    ]
    strange = [
        stored(other, "KeyError", HOSTILE, Site("other/main.py", 50, "f", "<x> & y")),
        stored(other, "KeyError", "gone: {what}", Site("other/gone.py", 12, "f", "")),
    ]
    with Store(index) as store:
        store.replace(vllm, records)
        store.replace(other, strange)
    return [*records, *strange]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Asks a server for exactly the given path: nothing is cleaned up on the way."""

    port: int

    def __call__(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@contextlib.contextmanager
def running(index: Path | None) -> Iterator[Client]:
    """A server of the real kind on a free port, in a thread."""
    import uvicorn

    from sizewise.cli.errors_site import listening
    from sizewise.reference.site.protocol import config_of
    from sizewise.reference.site.serve import Site

    with listening("127.0.0.1", 0) as listener:
        config = config_of(Site(index, our_entries()))
        config.log_level = "critical"
        config.configure_logging()
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)


def data_of(catalogue: Catalogue, name: str) -> dict[str, Any]:
    entry = catalogue.entry(name)
    assert entry is not None, name
    return envelope(entry, catalogue.related(entry), catalogue.aliases(entry.record.id), MADE)


class Page(HTMLParser):
    """What a page holds, as far as tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.heads: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)
        if tag in ("h1", "h2"):
            self.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"h1", "h2"} & set(self.open):
            self.heads[-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def of(self, *names: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag in names]

    def addresses(self) -> list[str]:
        return [str(a[key]) for _, a in self.tags for key in ("href", "src", "action") if a.get(key) is not None]


# -- fixtures: pytest finds them, under their short names, in the modules that import them


@pytest.fixture(scope="module", name="place")
def make_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the index and what is made of it."""
    return tmp_path_factory.mktemp("reference")


@pytest.fixture(scope="module", name="records")
def make_records(place: Path) -> list[Stored]:
    """What the index holds."""
    return fill(place / "errors.sqlite", place / "root")


@pytest.fixture(scope="module", name="whole")
def make_whole(place: Path, records: list[Stored]) -> Catalogue:
    """Sizewise's own errors and the index's."""
    return Catalogue(place / "errors.sqlite", our_entries())
