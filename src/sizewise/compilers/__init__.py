"""Compilers of pieces: ``inductor`` and ``eager``."""

from .background import Background
from .base import Artifact, Compiler
from .eager import EagerCompiler
from .inductor import InductorCompiler


def compiler_named(name: str, background: Background | None = None) -> Compiler:
    """The compiler of a settled ``backend``; config has refused other names before."""
    if name == "eager":
        return EagerCompiler()
    return InductorCompiler(background, background.machine if background is not None else dict)


__all__ = ["Artifact", "Background", "Compiler", "EagerCompiler", "InductorCompiler", "compiler_named"]
