"""Errors of the wrapper's state and manners: SW5xx."""

from __future__ import annotations

from .base import StateError


class Closed(StateError, RuntimeError):
    code = "SW501"
    message = "{owner} is closed."
    remedy = "compile the module again."


class NotWarm(StateError, RuntimeError):
    code = "SW502"
    message = "{owner} is not warmed up: {seen}."
    remedy = "call warmup(...) with an example first{otherwise}."


class Stale(StateError, RuntimeError):
    code = "SW503"
    message = "{owner} has changed since warm-up: {what}."
    remedy = (
        "call refresh() to build for the module as it is now; after a change of dtype or device, warmup(...) with "
        'inputs that fit it. Or set on_stale="eager".'
    )


class TrainRefused(StateError, RuntimeError):
    code = "SW504"
    message = "{owner} is compiled for inference, so it cannot be put into training mode."
    remedy = "train the original module (fast.__wrapped__)."


class NotPicklable(StateError, TypeError):
    code = "SW505"
    message = "{owner} holds compiled code and cannot be pickled or replicated."
    remedy = "send the original module (fast.__wrapped__) and compile it where it runs."


class GenerateRefused(StateError, AttributeError):
    code = "SW506"
    message = "{owner}.{name} would run the original forward, not the compiled one."
    remedy = "use sizewise.compile(model, inplace=True), or call fast.__wrapped__.{name} to run the original."


class ForwardedMissing(StateError, AttributeError):
    code = "SW507"
    message = "{owner!r} object has no attribute {name!r}; nor has the module it wraps ({wrapped})."
    remedy = "check the spelling; dir() of the module lists the names there are."


class NotAvailable(StateError, NotImplementedError):
    code = "SW508"
    message = "{what} does not exist in this version of Sizewise."
    remedy = "{hint}"


class BadTarget(StateError, TypeError):
    code = "SW509"
    message = "sizewise.compile takes a module, a function or a module class; seen: {seen}."
    remedy = "{todo}"


class BadOption(StateError, ValueError):
    code = "SW510"
    message = "{option}={seen!r} is not {legal}."
    remedy = "{todo}."


class TooManyPrograms(StateError, ValueError):
    code = "SW511"
    message = "the warm-up calls need {needed} programs, more than max_programs={limit}: {keys}."
    remedy = "warm up with fewer combinations of Python values, or raise CompilationConfig(max_programs=)."


class UnknownOption(StateError, TypeError):
    code = "SW513"
    message = "sizewise.compile has no argument {name!r}."
    remedy = "did you mean {near!r}?"


class PropertyFails(StateError, AttributeError):
    code = "SW514"
    message = "the property {name!r} of {wrapped} raised AttributeError: {cause}."
    remedy = "mend the property, or set what it reads: {wrapped} has {name!r}, but cannot give it."


class NotCalls(StateError, TypeError):
    code = "SW515"
    message = "{owner}.warmup_many takes a list of (args, kwargs) pairs; {place} is {seen}."
    remedy = "write warmup_many([((x,), {{}}), ((y,), {{}})]); for one example call warmup(x)."


class CountsDiffer(StateError, AssertionError):
    code = "SW516"
    message = "counts: expected {expected}, seen {seen}."
    remedy = "read report() for what was built and what calls did; expect() takes the changes of the counts it names."


class UnknownCount(StateError, AttributeError):
    code = "SW517"
    message = "there is no count named {name!r}."
    remedy = "{suggestion}the counts are: {known}."
