"""What the tests of the scan share: small packages, records, and the time spent."""

from __future__ import annotations

import re
import resource
import textwrap
from collections.abc import Sequence
from pathlib import Path

from sizewise.reference.scan.distributions import find_sources
from sizewise.reference.scan.index import records_of, scan_all
from sizewise.reference.scan.link import Linked, linked
from sizewise.reference.scan.sites import scan
from sizewise.reference.store import Distribution, Site, Stored


def found_in(**modules: str) -> list[Linked]:
    """What a package ``p`` of these modules raises; ``a__b`` is p.a.b, ``p`` the package itself."""
    scanned = []
    for name, source in modules.items():
        dotted = "p" if name == "p" else "p." + name.replace("__", ".")
        path = "p/__init__.py" if name == "p" else dotted.replace(".", "/") + ".py"
        scanned.append(scan(textwrap.dedent(source), dotted, path))
    return list(linked(scanned, {}))


def templates(source: str) -> list[str]:
    return [one.template for one in found_in(mod=source)]


def write_package(folder: Path, name: str = "pack", **modules: str) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    for module, source in {"__init__": "", **modules}.items():
        (package / f"{module}.py").write_text(textwrap.dedent(source))
    return package


def fields(record: Stored) -> tuple[str, str | None, str]:
    return record.kind, record.error_class, record.template


def records_at(package: Path) -> list[Stored]:
    sources = find_sources(f"{package}/")
    return records_of(sources, scan_all(sources, workers=0).modules)


def sample(name: str = "pack", version: str = "1", texts: Sequence[str] = ("the first", "second {x}")) -> list[Stored]:
    origin = Distribution(name, version, "/root", "", None, "2026-01-01T00:00:00Z")
    return [
        Stored(
            f"{name}-{version}-{number}", "raise", "ValueError", text, re.escape(text), "slug", len(text),
            (Site(f"{name}/mod.py", number, f"C.m{number}", "x", {"via": "v"}), Site(f"{name}/b.py", 1, "f", "")),
            origin,
        )
        for number, text in enumerate(texts)
    ]  # fmt: skip


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
