"""Errors of declaring dims and tracing: SW2xx."""

from __future__ import annotations

from .base import TraceError


class BadDim(TraceError, ValueError):
    code = "SW201"
    message = "Dim {name!r} is not a range of sizes: {problem}. Seen: min={min!r}, max={max!r}."
    remedy = "{todo}"


class UnknownArgument(TraceError, ValueError):
    code = "SW202"
    message = "Argument {argument} not found in the forward method of {owner}. Its arguments: {known}."
    remedy = "name one of these arguments in dynamic_shapes.{near}"


class BadDynamicShapes(TraceError, TypeError):
    code = "SW203"
    message = "Unsupported dynamic dimensions for argument {argument}. Seen: {problem}."
    remedy = "{todo}"


class NoSuchAxis(TraceError, ValueError):
    code = "SW204"
    message = "dynamic_shapes names axis {axis} of {argument}, which has {rank} axes: shape {shape}."
    remedy = "{todo}"


class DimConflict(TraceError, ValueError):
    code = "SW205"
    message = "The dim {dim!r} has two sizes in one call: {first} and {second}."
    remedy = "the same name means equal sizes; give unequal sizes dims of their own."


class NoDynamicDims(TraceError, ValueError):
    code = "SW206"
    message = "No dynamic dimensions found in the forward method of {owner}. {seen}"
    remedy = "{todo}"


class NotTraceable(TraceError, RuntimeError):
    code = "SW207"
    message = "{owner} cannot be traced as one graph: {reason}{where}{graph_break}"
    remedy = "{hint}"


class SizeBranch(TraceError, RuntimeError):
    code = "SW208"
    message = "{owner} takes another path for some sizes of {dims}: {reason}{where}{graph_break}"
    remedy = (
        "compare sizes in tensor operations (torch.where, masks) instead of in Python, or declare ranges of "
        "sizes on one side of the branch."
    )


class SizeSpecialized(TraceError, ValueError):
    code = "SW209"
    message = "The trace fixed dim {dim!r} to {seen}, but it is declared as {min} to {max}{where}"
    remedy = (
        "remove the code that fixes the size (a constant in a view, a concatenation with a fixed tensor, a Python "
        "branch), or declare the size as static."
    )


class SizeAssumption(TraceError, ValueError):
    code = "SW210"
    message = (
        "{owner} is only right for some sizes in range: the trace assumed {assumption}, which is false at "
        "{counterexample}{where}"
    )
    remedy = "{todo}"


class SideEffect(TraceError, RuntimeError):
    code = "SW211"
    message = "{owner} changes Python state while it runs: {sources}. A replay would not repeat it.{where}"
    remedy = "{todo}"


class OutputClass(TraceError, TypeError):
    code = "SW212"
    message = "{owner} returns {type_name} at {path}, which cannot be rebuilt from a graph's outputs: {problem}."
    remedy = (
        "return tensors, numbers, tuples, lists, dicts, dataclasses or transformers' ModelOutput. Key/value caches "
        "are not supported in this version: pass use_cache=False."
    )


class InputClass(TraceError, TypeError):
    code = "SW213"
    message = "The argument {path} is {type_name}, which cannot be an input of a compiled program."
    remedy = (
        "pass tensors (torch.from_numpy makes one of an array), None, numbers, strings, and tuples, lists or dicts "
        "of them. Key/value caches are not supported in this version."
    )


class TrainingMode(TraceError, RuntimeError):
    code = "SW214"
    message = "{owner} is in training mode (first such submodule: {submodule}). Sizewise is for inference only."
    remedy = "call .eval() on the module."


class UnsupportedModule(TraceError, NotImplementedError):
    code = "SW215"
    message = "{owner} cannot be compiled: {what} at {path}."
    remedy = "{hint}"


class UnknownSplittingOp(TraceError, ValueError):
    code = "SW216"
    message = "splitting_ops names {name!r}, which {problem}.{near}"
    remedy = "{todo}"


class RandomOperator(TraceError, RuntimeError):
    code = "SW217"
    message = "{owner} uses the random operator {operator}{where}"
    remedy = "draw random numbers outside and pass them in: a compiled program has to be repeatable."


class UnboundInput(TraceError, RuntimeError):
    code = "SW218"
    message = "The trace of {owner} reads {source}, which is neither an argument nor a tensor of the module."
    remedy = "register the tensor as a buffer or pass it as an argument."


class EmptyGraph(TraceError, ValueError):
    code = "SW219"
    message = "{owner} runs no tensor operation on its inputs, so there is nothing to compile."
    remedy = "compile the module that does the work."


class UnclassifiedGuard(TraceError, RuntimeError):
    code = "SW220"
    message = "{owner} depends on something that cannot be proved, checked or kept: {guard}: {why}."
    remedy = "move that value out of the forward (pass it as an argument), or compile the part that does not need it."


class TracingDisabled(TraceError, RuntimeError):
    code = "SW221"
    message = "torch's tracing is switched off in this process ({what})."
    remedy = "{todo}, or use sizewise.compile(..., disable=True) to run the module as it is."
