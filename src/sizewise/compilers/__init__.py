"""Compilers of pieces: ``inductor`` and ``eager``."""

from .base import Artifact, Compiler
from .eager import EagerCompiler
from .inductor import InductorCompiler


def compiler_named(name: str) -> Compiler:
    """The compiler of a settled ``backend``; config has refused other names before."""
    return EagerCompiler() if name == "eager" else InductorCompiler()


__all__ = ["Artifact", "Compiler", "EagerCompiler", "InductorCompiler", "compiler_named"]
