"""Errors of the command line: SW7xx."""

from __future__ import annotations

from .base import CommandError


class BadTargetSpec(CommandError, ValueError):
    code = "SW701"
    message = "{target!r} is not a target: {problem}."
    remedy = (
        "give package.module:factory, path/to/file.py:factory, or a directory with a transformers model; "
        "a factory returns (model, example_kwargs, dynamic_shapes)."
    )


class MissingExtra(CommandError, ImportError):
    code = "SW702"
    message = "{what} needs the package {package}, which is not installed."
    remedy = "install it: {command}"


class BadFactory(CommandError, TypeError):
    code = "SW703"
    message = "the factory {target!r} returned {seen}."
    remedy = (
        "return (model, example_kwargs, dynamic_shapes) or (model, example_args, example_kwargs, dynamic_shapes)."
    )


class CannotWrite(CommandError, OSError):
    code = "SW704"
    message = "cannot write {path}: {problem}."
    remedy = "name a file in a directory that exists and can be written."
