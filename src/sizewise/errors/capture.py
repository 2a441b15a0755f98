"""Errors of captures: SW6xx."""

from __future__ import annotations

from .base import CaptureError


class CapturingDisabled(CaptureError, RuntimeError):
    code = "SW601"
    message = (
        "CUDA graph capturing detected at an inappropriate time. This operation is currently disabled. "
        "Seen: a capture asked for by thread {thread!r} while the gate is closed."
    )
    remedy = (
        "capture during warm-up, or run this part eagerly. Only the code that owns the life cycle may open "
        "the gate: `with sizewise.monitor.cudagraph_capturing(True): ...`."
    )


class MissingInRunnable(CaptureError, AttributeError):
    code = "SW602"
    message = "Attribute {key} not exists in the runnable of cudagraph wrapper: {runnable}."
    remedy = "check the spelling; dir(wrapper.unwrap()) lists the names there are."


class CapturingFlagNotBool(CaptureError, TypeError):
    code = "SW603"
    message = "The capture gate is opened with True and closed with False. Seen: {value!r} ({kind})."
    remedy = "give a bool."


class CaptureRefused(CaptureError, RuntimeError):
    code = "SW621"
    message = "{owner} cannot be captured at {sizes}, which cudagraph_capture_sizes lists: {why}."
    remedy = (
        "leave the size out of the list; with allow_partial=True calls of this size run the program, and the report "
        "says so."
    )


class CaptureFailed(CaptureError, RuntimeError):
    code = "SW630"
    message = "{runnable} cannot be captured for {descriptor}: {cause}."
    remedy = (
        "where an operator is named, change that line or run this part outside of graphs; otherwise "
        "leave that size without a graph: the runnable itself runs at any size."
    )


class InputAddressesDiffer(CaptureError, AssertionError):
    code = "SW631"
    message = (
        "Input addresses for cudagraphs are different during replay. Expected {expected}, got {seen}. "
        "Seen at {argument} of the graph for {descriptor}, whose inputs are not copied."
    )
    remedy = "write new values into the tensors of the capture, or let the wrapper copy: copy_inputs=True."


class ReplayArgumentsDiffer(CaptureError, ValueError):
    code = "SW632"
    message = "the graph for {descriptor} was captured with {expected} as {argument}; this call gives {seen}."
    remedy = (
        "call with what was captured, or under a descriptor of its own: "
        "whatever a graph depends on has to be in its descriptor."
    )


class StaleOutput(CaptureError, RuntimeError):
    code = "SW633"
    message = (
        'a result of shape {shape} that was handed out with outputs="static" is read after {replays} further '
        "replay(s) in the memory that it lies in; what it holds now is not that result."
    )
    remedy = 'use a static result before the next call, clone() what has to stay, or take outputs="copy".'


class InvalidRuntimeMode(CaptureError, ValueError, AssertionError):
    code = "SW634"
    message = "Invalid cudagraph runtime mode: {mode}: {problem}."
    remedy = "give NONE, or PIECEWISE or FULL; forward_context takes these two with a BatchDescriptor."


class CompiledInProfilingRun(CaptureError, AssertionError):
    code = "SW635"
    message = (
        "backend compilation occurred during the initial profiling run; all compilation should be complete before "
        "the profiling run starts. Seen: {compilations} compilation(s) and {traces} trace(s)."
    )
    remedy = "warm up with every size that the profiling run uses before it starts; report() lists what was built."
