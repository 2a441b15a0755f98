"""Where an installed package is developed, as its metadata says."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata

_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git|/)?$")
_TRACKER = re.compile(r"issue|bug|tracker", re.IGNORECASE)


def tracker(name: str) -> str | None:
    """The address of a package's issue tracker, or None where its metadata names none."""
    links = _links(name)
    stated = next((link for label, link in links if _TRACKER.search(label)), None)
    if stated and stated.startswith("https://"):
        return stated
    repositories = (_GITHUB.match(link) for _, link in links)
    return next((f"https://github.com/{found[1]}/issues" for found in repositories if found), None)


def _links(name: str) -> list[tuple[str, str]]:
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return []
    pairs = [line.split(",", 1) for line in about.get_all("Project-URL") or ()]
    homes = [("Home", home) for home in about.get_all("Home-page") or ()]
    return [(pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2] + homes
