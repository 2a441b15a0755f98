"""Bundles of compiled modules: written with a proof that they load, read into programs that serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import ambient, native
from ..built import Built
from ..calls import Signature
from ..errors import bundle as errors
from ..events import logger
from . import bundle, manifest
from .files import Differs, Files, Json, NotThere
from .pieces import NotLoadable
from .values import NotWritable

if TYPE_CHECKING:
    from .proof import Proof

_NATIVE = "native-"
"""How the file of the C++ extension begins; its key follows."""
_REBUILD = "build it again here: compile the module, warm it up, save it"


def save_bundle(
    path: Path, owner: str, module: nn.Module, method: str, alternatives: Sequence[Built], proved: bool
) -> Path:
    """Write ``alternatives``, which differ in the number of threads, to ``path``.

    With ``proved`` a fresh process has to load each first, and give the same bits.

    Raises:
        NotSavable (SW613), CannotSave (SW614).
    """
    bundle.check_writable(path)
    described: list[Json] = []
    files: Files = {}
    for built in alternatives:
        description, own = _described(owner, module, method, built, proved)
        described.append(description)
        files |= own
    library = native.content()
    if library is not None:
        files[f"{_NATIVE}{native.key()}"] = library
    bundle.write(path, described[0] if len(described) == 1 else {"alternatives": described}, files)
    return path


def _described(owner: str, module: nn.Module, method: str, built: Built, proved: bool) -> tuple[Json, Files]:
    """A manifest and its files; what is disproved is written as torch's artifacts. Raises NotSavable (SW613)."""
    from .proof import Disproved

    disproved = ""
    while True:
        try:
            description, files = manifest.make(
                owner, module, method, built.entries, built.outcomes, built.config(), disproved, built.decode
            )
            description["threads"] = ambient.threads_of(built.state)
            if proved:
                description["proof"] = asdict(_proof(owner, module, built, description, files))
            return description, files
        except NotWritable as problem:
            hint = "change what the error names and save again."
            raise errors.NotSavable(owner=owner, what=f"it needs {problem}", hint=hint) from problem
        except Disproved as problem:
            if disproved:
                hint = "report it with this message."
                raise errors.NotSavable(owner=owner, what=f"in a fresh process {problem}", hint=hint) from problem
            disproved = f"source that is not proved: in a fresh process {problem}"
            logger.warning("%s is saved with torch's artifacts, for it has %s", owner, disproved)


def _proof(owner: str, module: nn.Module, built: Built, description: Json, files: Files) -> Proof:
    """Raises Disproved."""
    from .proof import Proof, prove

    try:
        found = prove(description, files, module, built.entries, built.examples)
    except (OSError, RuntimeError) as problem:
        # No room for the files of the proof, say: torch says that as a RuntimeError.
        found = Proof("not checked", f"the proof could not be made ({type(problem).__name__}: {problem})")
    if found.why:
        logger.warning("%s is saved, but whether a fresh process can serve from it is not known: %s", owner, found.why)
    return found


def load_bundle(path: Path, module: nn.Module, method: str, signature: Signature, forward: Any) -> Built:
    """The programs of a bundle, bound to ``module``.

    Raises:
        NotABundle (SW611), BundleDiffers (SW612).
    """
    contents, files = bundle.read(path)
    library = files.get(f"{_NATIVE}{native.key()}")
    if library is not None and native.current() is None:
        native.use(native.key(), library)
    try:
        description = _for_these_threads(path, contents.get("alternatives") or [contents])
        return manifest.load(description, files.__getitem__, module, method, signature, forward)
    except errors.BundleDiffers:
        raise
    except Differs as problem:
        todo = f"make that as it was, or {_REBUILD}."
        raise errors.BundleDiffers(path=path, difference=str(problem), todo=todo) from problem
    except NotThere as problem:
        todo = f"make it known before loading, or {_REBUILD}."
        raise errors.BundleDiffers(path=path, difference=str(problem), todo=todo) from problem
    except NotLoadable as problem:
        raise errors.NotABundle(path=path, problem=str(problem)) from problem
    except Exception as problem:
        raise errors.NotABundle(path=path, problem=_why_unread(problem)) from problem


def _why_unread(problem: Exception) -> str:
    words = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, ImportError | OSError) and not isinstance(problem, ModuleNotFoundError):
        return (
            f"what it holds cannot be loaded here ({words}); its libraries go through the folder for temporary files "
            "(TMPDIR), which must have room and not be mounted noexec"
        )
    return f"its manifest is not as Sizewise writes it ({words})"


def _for_these_threads(path: Path, described: Sequence[Json]) -> Json:
    """What is for as many threads as there are now: with another number, its kernels may write where they must not."""
    here = torch.get_num_threads()
    by_threads = {description["threads"]: description for description in described}
    if here not in by_threads:
        *others, last = map(str, by_threads)
        known = f"{', '.join(others)} or {last}" if others else last
        todo = (
            f"set OMP_NUM_THREADS={last} or call torch.set_num_threads({last}) first, or build it for {here} as well: "
            "save(..., threads=[...]), or `sizewise compile --threads`."
        )
        raise errors.BundleDiffers(path=path, difference=f"the number of threads was {known} and is {here}", todo=todo)
    return by_threads[here]
