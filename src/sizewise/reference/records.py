"""A record of the index as the schema of error records has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

from ..errors.record import Record
from .store import Distribution, Site, Stored

WINDOW = 18
"""Lines of source shown before and after the line that raises."""

# Repository, and the folder of it that holds the package.
REPOSITORIES = {
    "torch": ("pytorch/pytorch", ""),
    "transformers": ("huggingface/transformers", "src/"),
    "vllm": ("vllm-project/vllm", ""),
}
_ERROR_TYPES = {"log": "log", "warn": "warning"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


def record_of(stored: Stored, site: Site | None = None) -> Record:
    """The record of what the index has, at one of its sites (the first by default).

    The window of source is read from the installed file; it is empty where the file is gone or has become shorter.
    Fields that need a writer are empty.
    """
    at = site or stored.sites[0]
    first, last, code = source_window(stored.distribution, at)
    repository, folder = REPOSITORIES.get(stored.distribution.name, (None, ""))
    return Record(
        id=stored.id,
        repo=repository,
        slug=stored.slug,
        errorMessage=stored.template or stored.error_class or stored.kind,
        messagePattern=stored.pattern,
        errorClass=stored.error_class,
        errorType=_ERROR_TYPES.get(stored.kind, "exception"),
        httpStatus=_http_status(at),
        severity=severity_of(stored, at),
        filePath=at.path,
        lineNumber=at.line,
        sourceCode=code,
        sourceCodeStart=first,
        sourceCodeEnd=last,
        githubUrl=_github_url(repository, stored.distribution.sha, f"{folder}{at.path}", first, last),
        tags=_tags(at.path),
        analyzedSha=stored.distribution.sha,
        analyzedAt=stored.distribution.indexed_at,
    )


def severity_of(stored: Stored, site: Site) -> str:
    """error, warning or info: what is raised is an error, a log line is what its level says."""
    if stored.kind == "warn":
        return "warning"
    if stored.kind == "log":
        level = str(site.extra.get("level", "error"))
        return level if level in ("warning", "info") else "error"
    return "error"


def source_window(distribution: Distribution, site: Site) -> tuple[int, int, str]:
    """(first line, last line, source) around a site; the source is "" where the file cannot be read."""
    lines = _lines(str(Path(distribution.root, site.path)))
    if site.line > len(lines):
        return site.line, site.line, ""
    first, last = max(1, site.line - WINDOW), min(len(lines), site.line + WINDOW)
    # A file ends with a line end, behind which there is no line.
    last -= last > site.line and last == len(lines) and not lines[-1]
    return first, last, "\n".join(lines[first - 1 : last]) + "\n"


# A few files: a page shows several sites of one.
@lru_cache(maxsize=8)
def _lines(path: str) -> Sequence[str]:
    from .scan.files import Unreadable, read

    try:
        return read(Path(path)).split("\n")
    except Unreadable:
        return ()


def _github_url(repository: str | None, sha: str | None, path: str, first: int, last: int) -> str | None:
    if repository is None or sha is None or not _COMMIT.fullmatch(sha):
        return None
    return f"https://github.com/{repository}/blob/{sha}/{path}#L{first}-L{last}"


def _http_status(site: Site) -> int | None:
    status = site.extra.get("httpStatus")
    if isinstance(status, str):
        return HTTPStatus[status].value if status in HTTPStatus.__members__ else None
    return status if isinstance(status, int) else None


def _tags(path: str) -> list[str]:
    """The package and the part of it, as its folders have them."""
    parts = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in Path(path).parts[:2]]
    names = [part for part in parts if part and not part.endswith("-py")]
    return list(dict.fromkeys(names))
