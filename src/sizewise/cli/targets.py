"""What a TARGET on the command line stands for: a model, example inputs, and the sizes that change."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, Any

import typer

from ..errors import SizewiseError
from ..errors import command as errors
from .blame import cause_of, place_of
from .output import users_code

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="package.module:factory, path/to/file.py:factory, or a directory with a transformers model. "
        "A factory returns (model, example_kwargs, dynamic_shapes) or "
        "(model, example_args, example_kwargs, dynamic_shapes).",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Target:
    """A loaded target. ``text`` is what the user wrote."""

    text: str
    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Mapping[str, Any] | None


def load_target(text: str) -> Target:
    """The model and example behind ``text``; nothing is downloaded.

    Raises:
        BadTargetSpec (SW701): there is nothing of that name.
        BadFactory (SW703): the factory returned something else.
        TargetFailed (SW705): the user's file or factory raised.
        MissingExtra (SW702), UnsupportedModelDirectory (SW706): for a model directory.
    """
    if ":" not in text:
        return _checked(text, _of_directory(text))
    source, _, name = text.rpartition(":")
    if not source or not name:
        missing = "before" if not source else "after"
        raise errors.BadTargetSpec(target=text, problem=f"nothing stands {missing} the colon")
    module = _file(text, source) if source.endswith(".py") or "/" in source else _module(text, source)
    factory = _factory(text, module, name)
    return _checked(text, _run(text, f"the factory {name} of {source}", factory))


def check_example(target: Target) -> None:
    """Run the model on its example as it is: what fails here has nothing to do with compiling.

    Raises:
        ExampleFails (SW707).
    """
    import torch

    try:
        with users_code(), torch.no_grad():
            target.model(*target.args, **target.kwargs)
    except Exception as problem:
        raise example_fails(target, "its example inputs", problem) from problem


def example_fails(target: Target, inputs: str, problem: Exception) -> errors.ExampleFails:
    return errors.ExampleFails(target=target.text, inputs=inputs, where=place_of(problem), cause=cause_of(problem))


def _run(text: str, doing: str, step: Callable[[], Any]) -> Any:
    """The step's result; what the user's code raises becomes `TargetFailed`."""
    try:
        with users_code():
            return step()
    except SizewiseError:
        # It names itself: a Dim with a wrong range, say.
        raise
    # SystemExit: a script that ends itself when it is imported.
    except (Exception, SystemExit) as problem:
        raise errors.TargetFailed(
            target=text, doing=doing, where=place_of(problem), cause=cause_of(problem), command=_alone(text)
        ) from problem


def _alone(text: str) -> str:
    """The command that loads a target without Sizewise."""
    source, _, name = text.rpartition(":")
    if not source:
        return f'python -c "from transformers import AutoModel; AutoModel.from_pretrained({text!r})"'
    if source.endswith(".py") or "/" in source:
        folder = Path(source).parent.as_posix()
        path = f"PYTHONPATH={shlex.quote(folder)} " if folder != "." else ""
        return f'{path}python -c "import runpy; runpy.run_path({source!r})[{name!r}]()"'
    return f'python -c "import {source}; {source}.{name}()"'


# -- a directory


def _of_directory(text: str) -> Any:
    path = Path(text)
    if (path / "config.json").is_file():
        return _run(text, f"loading the model in {text}", lambda: _model_directory(path))
    if path.is_dir():
        problem = "the directory has no config.json, so that it is no transformers model"
    elif path.suffix == ".py" and path.is_file():
        problem = f"it names no factory{_defined_in(text, path)}"
    elif path.exists():
        problem = "it is neither a Python file nor a directory"
    else:
        problem = f"there is no such directory, and no colon with a factory after it{_near_files(path)}"
    raise errors.BadTargetSpec(target=text, problem=problem)


def _model_directory(path: Path) -> Any:
    # transformers and torch come with it.
    from .model_directory import load_model_directory

    return load_model_directory(path)


def _defined_in(text: str, path: Path) -> str:
    """The functions at the top of a file, as targets; read without running it."""
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, ValueError, OSError):
        return ""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    return f"; write one of {', '.join(f'{text}:{name}' for name in names)}" if names else ""


def _near_files(path: Path) -> str:
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f" (there is no directory {path.parent} either)"
    return _near(path.name, siblings)


def _near(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=3)
    return f"; near it: {', '.join(close)}" if close else ""


# -- a factory


def _file(text: str, source: str) -> ModuleType:
    path = Path(source)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise errors.BadTargetSpec(target=text, problem=f"the file {source} {what}{_near_files(path)}")
    if path.suffix != ".py":
        raise errors.BadTargetSpec(target=text, problem=f"the file {source} does not end in .py")
    # As `python file.py` does, so that the file can import its neighbours.
    _importable(path.resolve().parent)
    name = _module_name(path.resolve())
    loader = SourceFileLoader(name, str(path.resolve()))
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(path.resolve())))
    module.__file__ = str(path.resolve())
    sys.modules[name] = module
    _run(text, f"importing {source}", partial(loader.exec_module, module))
    return module


def _module_name(path: Path) -> str:
    """The name that a neighbour imports the file by: a bundle of its classes then fits where they are served.

    Another one where a library has that name (transformers.py).
    """
    stem = path.stem
    try:
        found = importlib.util.find_spec(stem) if stem.isidentifier() else None
    except (ImportError, ValueError):
        found = None
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != path.parent]
    ours = found is not None and found.origin is not None and Path(found.origin).resolve() == path
    if ours and stem not in sys.stdlib_module_names and PathFinder.find_spec(stem, elsewhere) is None:
        return stem
    return "sizewise_target_" + re.sub(r"\W", "_", stem)


def _module(text: str, source: str) -> ModuleType:
    if not all(part.isidentifier() for part in source.split(".")):
        problem = f"{source!r} is neither the name of a module nor a path that ends in .py"
        raise errors.BadTargetSpec(target=text, problem=problem)
    # As `python -m` does.
    _importable(Path.cwd())
    importlib.invalidate_caches()
    missing = _first_missing(text, source)
    if missing:
        names = [entry.stem for entry in Path.cwd().iterdir() if entry.suffix in ("", ".py")]
        problem = f"there is no module {missing!r}{_near(source.split('.')[0], names)}"
        raise errors.BadTargetSpec(target=text, problem=problem)
    module: ModuleType = _run(text, f"importing {source}", lambda: importlib.import_module(source))
    return module


def _first_missing(text: str, source: str) -> str:
    """The first package or module on the way that does not exist, or ''; imports the packages before it."""
    parts = source.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            found = _run(text, f"importing {name}", partial(importlib.util.find_spec, name))
        except errors.TargetFailed as failure:
            # `a.b` where `a` is a module and no package.
            if isinstance(failure.__cause__, ModuleNotFoundError) and failure.__cause__.name == name:
                return name
            raise
        if found is None:
            return name
    return ""


def _importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _factory(text: str, module: ModuleType, name: str) -> Callable[[], Any]:
    public = [key for key, value in vars(module).items() if key[0] != "_" and callable(value)]
    if not hasattr(module, name):
        problem = f"{_file_of(module)} has no attribute {name!r}{_near(name, public)}"
        raise errors.BadTargetSpec(target=text, problem=problem)
    factory: Callable[[], Any] = getattr(module, name)
    if not callable(factory) or _is_model(factory):
        kind = type(factory).__name__
        problem = f"{name} is {_a(kind)}, not a function that returns the model and its example"
        raise errors.BadTargetSpec(target=text, problem=problem)
    needed = _required(factory)
    if needed:
        problem = f"{name} takes {', '.join(needed)}, and a factory is called without arguments"
        raise errors.BadTargetSpec(target=text, problem=problem)
    return factory


def _file_of(module: ModuleType) -> str:
    return Path(module.__file__).name if module.__file__ else module.__name__


def _required(factory: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        # A callable written in C says nothing about itself.
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]


# -- what a factory returned


def _checked(text: str, made: Any) -> Target:
    if not isinstance(made, tuple | list) or len(made) not in (3, 4):
        length = f" of {len(made)}" if isinstance(made, tuple | list) else ""
        raise errors.BadFactory(target=text, seen=_a(type(made).__name__) + length)
    model, *rest, kwargs, shapes = made
    args = rest[0] if rest else ()
    problem = _problem(model, args, kwargs, shapes)
    if problem:
        raise errors.BadFactory(target=text, seen=f"{_in_words(made)}: {problem}")
    return Target(text, model, tuple(args), dict(kwargs), shapes)


def _problem(model: Any, args: Any, kwargs: Any, shapes: Any) -> str:
    """What is wrong with the parts, or ''."""
    if not _is_model(model) and not isinstance(model, FunctionType):
        return "the model is neither a torch.nn.Module nor a function"
    if not isinstance(args, tuple | list):
        return "example_args is not a tuple"
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        return "example_kwargs is not a dict of arguments by name"
    if shapes is not None and not isinstance(shapes, Mapping):
        return "dynamic_shapes is not a dict of arguments by name"
    return ""


def _is_model(value: Any) -> bool:
    # A module is only ever met after the user's file has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _in_words(parts: Iterable[Any]) -> str:
    return f"({', '.join(type(part).__name__ for part in parts)})"


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
