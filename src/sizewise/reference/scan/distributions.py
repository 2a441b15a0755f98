"""An installed distribution's sources: which folder, version, commit and modules. Nothing is imported for it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from ...errors import command as errors
from .files import Unreadable, read, read_bytes

# Code that runs in torch's own tests, and copies of other packages.
EXCLUDED = {"torch": ("torch.testing._internal", "torch._vendor")}
MOST_METADATA = 20_000_000
"""Bytes."""
_VERSION_FILES = ("version.py", "_version.py", "__version__.py")
_COMMIT_NAME = re.compile(r"git|commit|sha|revision", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION_NAMES = ("__version__", "version")


@dataclass(frozen=True)
class Sources:
    """A distribution whose sources can be read. ``root`` holds the folders (or single files) of ``packages``."""

    name: str
    version: str
    root: Path
    packages: tuple[str, ...]
    sha: str | None
    """The commit it was built from (40 hex digits), where its metadata or a version file says so."""
    excluded: tuple[str, ...] = ()
    """Modules that are left out, with all they contain."""

    @property
    def scope(self) -> str:
        """Which modules are read, as text."""
        without = f" without {', '.join(self.excluded)}" if self.excluded else ""
        return f"{', '.join(self.packages)}{without}"


def find_sources(what: str) -> Sources:
    """The sources of a distribution by its name, or of a package by a path to it or to the folder that holds it.

    Raises SW709 for a name nothing is installed under, SW710 for a path with no package or several.
    """
    path = Path(what).expanduser()
    if os.sep in what or (os.altsep and os.altsep in what) or what in (os.curdir, os.pardir):
        return _at_path(what, path)
    try:
        found = metadata.distribution(what)
    except (metadata.PackageNotFoundError, ValueError):
        if what and path.is_dir():
            return _at_path(what, path)
        raise errors.UnknownPackage(package=what) from None
    return _installed(what, found)


def _installed(what: str, found: metadata.Distribution) -> Sources:
    name = _normal(found.metadata["Name"] or what)
    candidates = _top_level(found) or [name]
    same = [one for one in candidates if _normal(one) == name]
    packages = same or candidates
    base = Path(str(found.locate_file("")))
    root = base if any(_exists(base, one) for one in packages) else _root_of(packages[0])
    packages = [one for one in packages if root is not None and _exists(root, one)]
    if root is None or not packages:
        raise errors.UnknownPackage(package=what)
    return _made(name, found.version, root.resolve(), packages)


def _top_level(found: metadata.Distribution) -> list[str]:
    listed = (found.read_text("top_level.txt") or "").split()
    if listed:
        return listed
    parts = {Path(str(file)).parts[0] for file in found.files or () if str(file).endswith(".py")}
    return sorted(one.removesuffix(".py") for one in parts if one not in ("..", "bin"))


def _root_of(package: str) -> Path | None:
    # An editable install: its sources stand where the import system finds them. A top-level name imports nothing.
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    origin = Path(spec.origin)
    return origin.parent.parent if origin.name == "__init__.py" else origin.parent


def _exists(root: Path, package: str) -> bool:
    return (root / package / "__init__.py").is_file() or (root / f"{package}.py").is_file()


def _at_path(what: str, path: Path) -> Sources:
    if not path.is_dir():
        raise errors.NoPackageThere(path=what, problem="there is no such folder")
    path = path.resolve()
    if (path / "__init__.py").is_file():
        root, package = path.parent, path.name
    else:
        root = path
        packages = sorted(child.name for child in path.iterdir() if (child / "__init__.py").is_file())
        if len(packages) != 1:
            seen = f"it holds several packages ({', '.join(packages[:4])} ...)" if packages else "no package is in it"
            raise errors.NoPackageThere(path=what, problem=seen)
        package = packages[0]
    for found in _distributions(root):
        name = _normal(found.metadata["Name"] or "")
        if name == _normal(package) or package in _top_level(found):
            return _made(name, found.version, root, [package])
    return _made(_normal(package), _version_in(root / package) or "unknown", root, [package])


def _distributions(root: Path) -> Iterator[metadata.Distribution]:
    """The distributions whose metadata is in a folder; without those with files that are none or are no text."""
    for folder in sorted((*root.glob("*.dist-info"), *root.glob("*.egg-info"))):
        try:
            for name in ("METADATA", "PKG-INFO", "top_level.txt", "RECORD"):
                if (folder / name).exists():
                    read_bytes(folder / name, MOST_METADATA).decode()
        except (Unreadable, UnicodeDecodeError):
            continue
        yield metadata.Distribution.at(folder)


def _made(name: str, version: str | None, root: Path, packages: list[str]) -> Sources:
    try:
        str(root).encode()
    except UnicodeEncodeError:
        seen = "the folder's name has bytes that are no text here"
        raise errors.NoPackageThere(path=_printable(str(root), 1000), problem=seen) from None
    sha = next((sha for one in packages if (sha := _commit_in(root / one))), None)
    version = _printable(version) or "unknown"
    return Sources(name, version, root, tuple(packages), sha, EXCLUDED.get(name, ()))


def _printable(text: str | None, length: int = 100) -> str:
    """A name or version as it can be stored and shown."""
    return "".join(letter if letter.isprintable() else "?" for letter in (text or "")[:length])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", _printable(name)).lower()


def _commit_in(package: Path) -> str | None:
    """The whole commit id that a version file sets; a shortened one names no commit for good."""
    for name, value in _texts_in(package):
        if _COMMIT_NAME.search(name) and _COMMIT.fullmatch(value):
            return value
    return None


def _version_in(package: Path) -> str | None:
    return next((value for name, value in _texts_in(package) if name in _VERSION_NAMES), None)


def _texts_in(package: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of what a version file assigns."""
    for file in (package / name for name in _VERSION_FILES):
        try:
            tree = ast.parse(read(file))
        except (Unreadable, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                for target in node.targets:
                    if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                        yield target.id, node.value.value


def modules_of(sources: Sources) -> Iterator[tuple[str, str]]:
    """(dotted module, path relative to the root) of every Python file, in the order of the paths."""
    for package in sources.packages:
        single = sources.root / f"{package}.py"
        if single.is_file():
            yield package, single.name
        for path in sorted(_python_files(sources.root / package)):
            relative = path.relative_to(sources.root)
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            if not any(module == one or module.startswith(f"{one}.") for one in sources.excluded):
                yield module, relative.as_posix()


def _python_files(folder: Path) -> Iterator[Path]:
    closed: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place, name) for name in files if name.endswith(".py"))
    # A folder that may not be looked into is told as a file that cannot be read.
    yield from (Path(problem.filename) for problem in closed if problem.filename)
