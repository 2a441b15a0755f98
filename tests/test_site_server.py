"""The error reference as a server and the commands that make it: they answer, and they refuse what they should."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sizewise.cli import errors_site
from sizewise.cli.output import guarded
from sizewise.reference.site import protocol
from sizewise.reference.site.catalogue import Catalogue
from sizewise.reference.store import Stored
from sizewise.reference.titles import title_of

from .command_line import environment, interrupts_are_heard
from .site_support import (
    CAPTURING,
    CHECK,
    CODES,
    MADE,
    SHA,
    Client,
    Page,
    data_of,
    fill,
    make_place,
    make_records,
    make_whole,
    running,
)

FIXTURES = make_place, make_records, make_whole
APP = (
    "import typer; from sizewise.cli.errors_site import build, serve; from sizewise.cli.output import guarded; "
    "app = typer.Typer(); app.command('build')(guarded(build)); app.command('serve')(guarded(serve)); app()"
)


@pytest.fixture(scope="module")
def ask(place: Path, records: list[Stored]) -> Iterator[Client]:
    with running(place / "errors.sqlite") as client:
        yield client


def test_the_server_answers(ask: Client, records: list[Stored], whole: Catalogue) -> None:
    kinds = {
        "/": "text/html; charset=utf-8",
        "/?q=capturing": "text/html; charset=utf-8",
        "/report": "text/html; charset=utf-8",
        "/errors/SW401": "text/html; charset=utf-8",
        f"/errors/{records[0].id}": "text/html; charset=utf-8",
        "/api/errors": "application/json",
        "/api/errors/SW401": "application/json",
        "/api/errors/sw401.json": "application/json",
        "/api/errors/82c172d787b6e198": "application/json",
        "/api/error-record.schema.json": "application/schema+json",
        "/search.js": "text/javascript; charset=utf-8",
        "/assets/site.css": "text/css; charset=utf-8",
        "/assets/site.js": "text/javascript; charset=utf-8",
        "/health": "application/json",
    }
    for path, kind in kinds.items():
        answer = ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, kind), path
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    health = ask("/health").json
    assert health["status"] == "ok" and health["packages"] == whole.packages() and health["errors"] == len(whole)
    for name in (records[0].id, "82c172d787b6e198", "SW401"):
        data = ask(f"/api/errors/{name}").json
        CHECK.validate(data)
        assert {**data, "datasetVersion": MADE} == data_of(whole, name)


def test_the_servers_pages_link_to_what_it_serves(ask: Client, records: list[Stored]) -> None:
    for path in ("/", "/?q=capturing", "/report", "/errors/SW601", f"/errors/{records[2].id}"):
        for address in Page(ask(path).body.decode()).addresses():
            if not address.startswith(("https://", "data:", "#")):
                assert address.startswith("/") and ask(address).status == 200, address


def test_a_list_is_cut_and_searched(ask: Client, whole: Catalogue) -> None:
    first = ask("/api/errors").json
    assert first["total"] == len(whole) and len(first["errors"]) == first["limit"] == 20
    second = ask("/api/errors?limit=2&offset=1").json
    assert second["errors"] == first["errors"][1:3]
    assert ask("/api/errors?offset=999999").json["errors"] == []
    found = ask("/api/errors?q=capturing%20inappropriate").json
    assert found["total"] == 2 and {one["package"] for one in found["errors"]} == {"sizewise", "vllm"}
    assert ask("/api/errors?q=%00zzzzz").json["total"] == 0
    page = Page(ask("/?q=capturing+inappropriate").body.decode())
    assert "2 found" in page.text and title_of(CAPTURING) in page.text


def test_caching_and_head(ask: Client) -> None:
    for path, keep in (
        ("/errors/SW401", "no-cache"),
        ("/api/errors/SW401", "no-cache"),
        ("/assets/site.css", "public, max-age=3600"),
    ):
        answer = ask(path)
        tag = answer.headers["etag"]
        assert answer.headers["cache-control"] == keep and re.fullmatch('"[0-9a-f]{32}"', tag)
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = ask(path, if_none_match=known)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert ask(path, if_none_match='"x"').status == 200
        head = ask(path, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(answer.body)) and head.headers["etag"] == tag
    assert ask("/health").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nowhere", 404, "not-found"),
        ("/errors/SW999", 404, "not-found"),
        ("/errors/", 404, "not-found"),
        ("/api/errors/0123456789abcdef", 404, "not-found"),
        ("/api/errors/..%2f..%2fetc%2fpasswd", 404, "not-found"),
        ("/errors/../../../etc/passwd", 404, "not-found"),
        ("/assets/../serve.py", 404, "not-found"),
        ("/assets/..%2fserve.py", 404, "not-found"),
        ("/assets/%2e%2e/serve.py", 404, "not-found"),
        ("/assets/%00", 404, "not-found"),
        ("/errors/%ff%fe", 404, "not-found"),
        ("/api/errors?limit=0", 400, "bad-request"),
        ("/api/errors?limit=101", 400, "bad-request"),
        ("/api/errors?limit=-1", 400, "bad-request"),
        ("/api/errors?limit=%D9%A3", 400, "bad-request"),
        ("/api/errors?offset=1e3", 400, "bad-request"),
        ("/api/errors?offset=", 400, "bad-request"),
        ("/api/errors?page=2", 400, "bad-request"),
        ("/api/errors?q=a&q=b", 400, "bad-request"),
        ("/api/errors/SW401?x=1", 400, "bad-request"),
        ("/errors/SW401?q=1", 400, "bad-request"),
        ("/health?x", 400, "bad-request"),
        ("/errors/SW401/", 404, "not-found"),
        ("/api/errors/", 404, "not-found"),
        ("/api/errors/SW401/", 404, "not-found"),
        ("/api/errors?q=" + "x" * 201, 400, "bad-request"),
        ("/?q=" + "x" * 201, 400, "bad-request"),
        ("/api/errors?q=" + "x" * 2001, 414, "address-too-long"),
        ("/errors/" + "x" * 2001, 414, "address-too-long"),
    ],
)
def test_what_the_server_refuses(ask: Client, path: str, status: int, code: str) -> None:
    answer = ask(path)
    assert (answer.status, answer.json["error"]["code"], answer.json["error"]["status"]) == (status, code, status)
    assert answer.headers["content-type"] == "application/json" and answer.headers["cache-control"] == "no-store"
    assert len(answer.body) < 400 and b"root:" not in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_allowed(ask: Client, method: str) -> None:
    answer = ask("/api/errors/SW401", method)
    assert (answer.status, answer.json["error"]["code"]) == (405, "method-not-allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_changed_index_is_seen_and_a_broken_one_is_named(tmp_path: Path) -> None:
    index = tmp_path / "errors.sqlite"
    with running(index) as ask:
        assert ask("/health").json["errors"] == len(CODES)
        old = fill(index, tmp_path / "root")
        assert ask("/health").json["errors"] == len(CODES) + 5
        assert ask(f"/api/errors/{old[0].id}").json["record"]["analyzedSha"] == SHA
        fill(index, tmp_path / "root", sha=None, at="2027-01-01T00:00:00Z")
        record = ask(f"/api/errors/{old[0].id}").json["record"]
        assert record["analyzedSha"] is None and record["githubUrl"] is None
        index.write_bytes(b"no database at all" * 100)
        answer = ask(f"/api/errors/{old[0].id}")
        assert (answer.status, answer.json["error"]["code"]) == (503, "index-unavailable")
        assert ask("/api/errors/SW401").status == 200
        sick = ask("/health")
        assert (sick.status, sick.json["error"]["code"]) == (503, "index-unavailable")
        index.unlink()
        assert ask("/health").json["status"] == "ok"
        assert ask(f"/api/errors/{old[0].id}").status == 404


def test_what_breaks_inside_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(None) as ask:
        monkeypatch.setattr(Catalogue, "related", lambda *_: 1 / 0)
        answer = ask("/api/errors/SW401")
        assert (answer.status, answer.json["error"]["code"]) == (500, "failed") and b"division" not in answer.body


def test_damage_in_the_middle_of_an_index_is_named(tmp_path: Path) -> None:
    index = tmp_path / "errors.sqlite"
    fill(index, tmp_path / "root")
    with running(index) as ask:
        assert ask("/health").status == 200
        content = bytearray(index.read_bytes())
        content[len(content) // 2 :] = b"\xa5" * (len(content) - len(content) // 2)
        index.write_bytes(content)
        assert ask("/health").status == 503 and ask("/errors/SW401").status == 200


# -- what is no request, or none that ends


def talk(ask: Client, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", ask.port), 20) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /?q=a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000,
        b"GET /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_json(ask: Client, sent: bytes) -> None:
    head, _, body = talk(ask, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"content-type: application/json" in head
    assert b"x-content-type-options: nosniff" in head and b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "bad-request"


def test_an_upgrade_is_left_out_of_account(ask: Client) -> None:
    answer = ask("/health", connection="upgrade", upgrade="websocket", sec_websocket_version="13")
    assert answer.status == 200 and answer.json["status"] == "ok"


def test_a_slash_too_many_sends_nobody_elsewhere(ask: Client) -> None:
    answer = ask("/errors/SW401/", host="elsewhere.example")
    assert answer.status == 404 and "location" not in answer.headers and b"elsewhere" not in answer.body


def test_slow_clients_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 0.6)
    with running(None) as ask:
        started = time.monotonic()
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-"):
            head, _, body = talk(ask, sent).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ") and json.loads(body)["error"]["code"] == "too-slow"
        whole = b"GET /health HTTP/1.1\r\nHost: a\r\n"
        assert talk(ask, whole + b"\r\nGET /h").startswith(b"HTTP/1.1 200 ")
        # A body that never comes, behind an answer that has gone out.
        assert talk(ask, whole + b"Content-Length: 9\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - started < 10
        assert ask("/health").status == 200


def test_a_client_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "ANSWER_SECONDS", 0.5)
    with running(None) as ask, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", ask.port))
        client.sendall(b"GET /search.js HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
        time.sleep(1.5)
        with pytest.raises(OSError):
            while client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
                time.sleep(0.01)


def test_waiting_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 10)
    with running(None) as ask, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(("127.0.0.1", ask.port), 20)) for _ in range(30)]
        assert ask("/health").status == 200
        waiting[0].settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert waiting[0].recv(1) == b""
        waiting[-1].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert waiting[-1].recv(12) == b"HTTP/1.1 200"


# -- the commands


def command(*arguments: str) -> Any:
    app = typer.Typer()
    app.command("build")(guarded(errors_site.build))
    app.command("serve")(guarded(errors_site.serve))
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_build_says_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    fill(tmp_path / "errors.sqlite", tmp_path / "root")
    done = command("build", "--out", str(tmp_path / "own"), "--own-only", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["packages"] == {"sizewise": len(CODES)}
    done = command("build", "--out", str(tmp_path / "all"))
    assert done.exit_code == 0 and f"{len(CODES) + 5} errors (sizewise {len(CODES)}, vllm 3, other 2)" in done.stdout
    refused = command("build", "--out", str(tmp_path), "--json")
    assert refused.exit_code == 3 and json.loads(refused.stdout)["error"]["code"] == "SW704"


@pytest.mark.parametrize("name", ["build", "serve"])
def test_a_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors_site, "find_spec", lambda package: None)
    done = command(name, *(["--out", str(tmp_path / "x")] if name == "build" else []))
    assert done.exit_code == 3 and "SW702" in done.stderr and "pip install 'sizewise[serve]'" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_damaged_index_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_CACHE_DIR", str(tmp_path))
    (tmp_path / "errors.sqlite").write_bytes(b"no database at all" * 100)
    for arguments in (["build", "--out", str(tmp_path / "site")], ["serve", "--port", "0"]):
        done = command(*arguments)
        said = " ".join(done.stderr.replace("\u2502", " ").split())
        assert done.exit_code == 3 and "cannot be read" in said and "--own-only" in said and "[SW711]" in said
    assert not (tmp_path / "site").exists()


def test_an_address_that_cannot_be_used_is_named() -> None:
    with errors_site.listening("127.0.0.1", 0) as taken:
        done = command("serve", "--own-only", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 2 and "cannot be used" in done.stderr
    done = command("serve", "--own-only", "--host", "no host of that name")
    assert done.exit_code == 2 and "no address" in done.stderr


def test_serve_serves_until_interrupted_and_needs_no_torch() -> None:
    code = f"import sys; sys.argv[0] = 'x'; sys.modules['torch'] = None; {APP}"
    arguments = ["serve", "--own-only", "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=interrupts_are_heard,
    ) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            said = json.loads(server.stdout.readline())
            port = int(re.search(r":(\d+)/$", said["address"])[1])  # type: ignore[index]
            assert Client(port)("/health").json["errors"] == said["errors"] == len(CODES)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)
        assert server.returncode in (130, 1) and "Traceback" not in server.stderr.read()
