"""Errors of a call that the program was not built for: SW4xx."""

from __future__ import annotations

from .base import CallError


class SizeOutOfRange(CallError, ValueError):
    code = "SW401"
    message = "{argument}.shape[{axis}] is {seen}, outside dim {dim!r} ({min} to {max})."
    remedy = "{todo}"


class WrongDtype(CallError, TypeError):
    code = "SW402"
    message = "{argument} has dtype {seen}; the program was built for {wanted}."
    remedy = 'convert the argument, or warm up with this dtype as well (warmup_many), or set on_outside="eager".'


class WrongDevice(CallError, ValueError):
    code = "SW403"
    message = "{argument} is on {seen}; the program was built for {wanted}."
    remedy = "move the argument to the device of the module."


class WrongShape(CallError, ValueError):
    code = "SW404"
    message = "{argument} has shape {seen}; the program was built for {wanted}."
    remedy = "{todo}"


class UnequalDims(CallError, ValueError):
    code = "SW405"
    message = "{argument}.shape[{axis}] is {seen}, but dim {dim!r} is {wanted} by {first}."
    remedy = "sizes that share a name must be equal; give unequal sizes dims of their own."


class OtherValue(CallError, ValueError):
    code = "SW406"
    message = "{argument} is {seen}; the program was built for {wanted}."
    remedy = "{todo}"


class RequiresGrad(CallError, RuntimeError):
    code = "SW407"
    message = "{argument} requires grad, but Sizewise is for inference: no gradient would come out."
    remedy = "detach() the argument, or use the original module for training."


class BadCall(CallError, TypeError):
    code = "SW408"
    message = "the call does not fit the forward method of {owner}: {problem}."
    remedy = "{suggestion}its signature is {signature}."


class OtherAmbient(CallError, RuntimeError):
    code = "SW409"
    message = "{setting}: {seen} in this call; the program was built under {wanted}."
    remedy = '{back}, or warm up again under the setting you serve with, or set on_outside="eager".'


class NotPlainTensor(CallError, TypeError):
    code = "SW410"
    message = "{argument} is {seen}; a program takes plain tensors (torch.Tensor) only."
    remedy = "{todo}"


class WrittenInputLayout(CallError, ValueError):
    code = "SW411"
    message = "{argument} is written, returned or read by its strides, and {problem}."
    remedy = "pass a contiguous tensor of its own."


class NotCaptured(CallError, RuntimeError):
    code = "SW412"
    message = 'no capture of {owner} serves {sizes}, and on_miss="error" is set: {captured}.'
    remedy = "list a size that holds it in cudagraph_capture_sizes, or leave on_miss out: the program serves it then."


class OtherState(CallError, ValueError):
    code = "SW413"
    message = "{owner} was called with {seen}; it is bound to other persistent arguments ({known} in all)."
    remedy = (
        "pass the very object of the warm-up, reset in place where it has to start anew (cache.reset()); or warm up "
        "with this one as well: warmup_many with a call for each."
    )
