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
    remedy = "return (model, example_kwargs, dynamic_shapes) or (model, example_args, example_kwargs, dynamic_shapes)."


class CannotWrite(CommandError, OSError):
    code = "SW704"
    message = "cannot write {path}: {problem}."
    remedy = (
        "name a path in a directory that exists, has room and can be written; `sizewise errors build --out` takes a "
        "folder that is new, empty or a site it wrote, `sizewise errors index` writes into SIZEWISE_CACHE_DIR."
    )


class TargetFailed(CommandError, RuntimeError):
    code = "SW705"
    message = "{doing} raised an error at {where}: {cause}."
    remedy = "make {target!r} load without Sizewise first: {command}"


class UnsupportedModelDirectory(CommandError, NotImplementedError):
    code = "SW706"
    message = (
        "no example inputs can be made for the {model} in {path}: {seen}. Only models that take "
        "input_ids alone (text) or pixel_values alone (images) have examples of their own."
    )
    remedy = (
        "write a factory in a file, app.py for example, that loads the model and returns "
        "(model, example_kwargs, dynamic_shapes), and give app.py:factory as the target."
    )


class ExampleFails(CommandError, RuntimeError):
    code = "SW707"
    message = "the model of {target!r} itself, without Sizewise, fails on {inputs} at {where}: {cause}."
    remedy = (
        "make the example inputs and the sizes in dynamic_shapes ones that the model accepts: "
        "call the model in plain eager mode with them first."
    )


class UnexpectedProblem(CommandError, RuntimeError):
    code = "SW708"
    message = "the command {command!r} met an error that Sizewise has no name for, at {where}: {cause}."
    remedy = "{todo}."


class UnknownPackage(CommandError, ModuleNotFoundError):
    code = "SW709"
    message = "no package named {package!r} with Python sources is installed beside Sizewise."
    remedy = (
        "give the name that pip lists, or the path to a folder with the package's sources, "
        "and run the command with the Python that has the package."
    )


class NoPackageThere(CommandError, FileNotFoundError):
    code = "SW710"
    message = "cannot read a package's sources at {path}: {problem}."
    remedy = "give the folder of one package, the one with its __init__.py, or the folder that holds it alone."


class IndexUnreadable(CommandError, OSError):
    code = "SW711"
    message = "the index of errors, {path}, cannot be read: {problem}."
    remedy = "{todo}; --own-only and codes (sizewise explain SW401) need no index."
