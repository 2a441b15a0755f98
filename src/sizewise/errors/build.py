"""Errors of compiling and checking a traced program: SW3xx."""

from __future__ import annotations

from .base import BuildError


class CompileFailed(BuildError, RuntimeError):
    code = "SW301"
    message = (
        "Sizewise failed to compile the model. The most likely reason for this is {reason}. "
        "Seen in piece {piece}: {cause}{where}"
    )
    remedy = "{hint}"


class NotEqualToEager(BuildError, RuntimeError):
    code = "SW302"
    message = (
        "{owner} compiled, but its result is not eager's at {sizes}: output {path}, {difference}. It is not served."
    )
    remedy = (
        '{hint}warm up with backend="eager" as well: if that fails too, the module computes something else while it '
        "is traced (torch.compiler.is_compiling(), a custom operator's fake); if not, name the operator before that "
        "output in splitting_ops."
    )


class ShapeOutOfRanges(BuildError, ValueError):
    code = "SW303"
    message = "Shape: {size} out of considered ranges: {ranges}"
    remedy = "add the size to compile_sizes, or widen compile_ranges so that they cover it."


class NothingToCompile(BuildError, ValueError):
    code = "SW304"
    message = "PiecewiseBackend got neither compile_sizes nor compile_ranges, so no call could be served."
    remedy = "give compile_ranges=[Range(1, n)] or compile_sizes=[...]."


class BadRange(BuildError, ValueError):
    code = "SW305"
    message = "Range(start={start!r}, end={end!r}) is not an inclusive interval of sizes."
    remedy = "give ints with 1 <= start <= end."


class NoCompiler(BuildError, RuntimeError):
    code = "SW306"
    message = "Inductor needs a C++ compiler and found none ({seen})."
    remedy = (
        "install g++ (apt-get install g++) or set CXX; or build a bundle on a machine like this one that has a "
        "compiler (`sizewise compile TARGET -o m.sizewise`, in a container's build step, say) and serve it here with "
        'sizewise.load, which needs none; or use CompilationConfig(backend="eager"). See `sizewise doctor`.'
    )


class NoCompiledEntry(BuildError, RuntimeError):
    code = "SW308"
    message = "Missing compiled runnable for range {range}. Available keys: {available}"
    remedy = "call compile_all() (or compile_range) before the first call."


class EagerFails(BuildError, RuntimeError):
    code = "SW309"
    message = "{owner} itself fails in eager mode at {sizes}: {cause}"
    remedy = "{todo}"


class StateNotEqualToEager(BuildError, RuntimeError):
    code = "SW310"
    message = "{owner} compiled, but after a call at {sizes} its {what} is not what eager mode leaves: {difference}."
    remedy = "keep state in registered buffers that are written in place, or pass it as arguments."


class ProgramFails(BuildError, RuntimeError):
    code = "SW312"
    message = (
        "{owner} compiled, but at {sizes} its program raises where eager mode does not: {cause}. It is not served."
    )
    remedy = "{hint}"


class PieceLayout(BuildError, RuntimeError):
    code = "SW311"
    message = (
        "{owner}: piece {piece} was compiled for input {input} with shape {wanted_shape} and strides {wanted_stride}, "
        "and is handed {seen_shape} and {seen_stride} at {sizes}."
    )
    remedy = (
        "set the module's memory format to contiguous, or make the fake of the operator before it give the strides "
        "that the operator returns (torch.library.opcheck compares them)."
    )
