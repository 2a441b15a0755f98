"""Bundles of compiled modules: written with a proof that they load, read into programs that serve."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from ..built import Built
from ..calls import Signature
from ..errors import bundle as errors
from ..events import logger
from . import bundle, manifest
from .files import Differs, Files, Json, NotThere
from .values import NotWritable

if TYPE_CHECKING:
    from .proof import Proof

_REBUILD = "build it again here: compile the module, warm it up, save it"


def save_bundle(path: Path, owner: str, module: nn.Module, method: str, built: Built, proved: bool) -> Path:
    """Write ``built`` to ``path``, with ``proved`` after a fresh process has loaded it and gave the same bits.

    Raises:
        NotSavable (SW613), OSError.
    """
    try:
        description, files = manifest.make(owner, module, method, built.entries, built.outcomes, built.config())
    except NotWritable as problem:
        hint = "change what the error names and save again."
        raise errors.NotSavable(owner=owner, what=f"it needs {problem}", hint=hint) from problem
    if proved:
        description["proof"] = asdict(_proof(owner, module, built, description, files))
    bundle.write(path, description, files)
    return path


def _proof(owner: str, module: nn.Module, built: Built, description: Json, files: Files) -> Proof:
    from .proof import Disproved, prove

    try:
        found = prove(description, files, module, built.entries)
    except Disproved as problem:
        hint = "report it with this message."
        raise errors.NotSavable(owner=owner, what=f"in a fresh process {problem}", hint=hint) from problem
    if found.why:
        logger.warning("%s is saved, but whether a fresh process can serve from it is not known: %s", owner, found.why)
    return found


def load_bundle(path: Path, module: nn.Module, method: str, signature: Signature, forward: Any) -> Built:
    """The programs of a bundle, bound to ``module``.

    Raises:
        NotABundle (SW611), BundleDiffers (SW612).
    """
    description, files = bundle.read(path)
    try:
        return manifest.load(description, files.__getitem__, module, method, signature, forward)
    except Differs as problem:
        raise errors.BundleDiffers(path=path, difference=str(problem), todo=f"{_REBUILD}.") from problem
    except NotThere as problem:
        todo = f"make it known before loading, or {_REBUILD}."
        raise errors.BundleDiffers(path=path, difference=str(problem), todo=todo) from problem
    except Exception as problem:
        words = f"its manifest is not as Sizewise writes it ({type(problem).__name__}: {problem})"
        raise errors.NotABundle(path=path, problem=words) from problem
