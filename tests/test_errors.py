"""The error tree and its registry."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import sizewise
from sizewise.errors import SizewiseError
from sizewise.errors.registry import MODULES, errors_by_code

ERRORS = errors_by_code()
ROOT = Path(sizewise.__file__).parent
BRANCH_DIGITS = {
    "config": "1",
    "trace": "2",
    "build": "3",
    "call": "4",
    "state": "5",
    "capture": "6",
    "cache": "6",
    "bundle": "6",
    "command": "7",
}


def sample(error: type[SizewiseError]) -> SizewiseError:
    return error(**dict.fromkeys(error.field_names(), 1))


def test_every_class_has_a_code_of_its_own() -> None:
    classes = [
        c for module in MODULES for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__
    ]
    codes = [c.code for c in classes if c.code]
    assert len(codes) == len(set(codes)) == len(ERRORS)


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_is_complete(code: str) -> None:
    error = ERRORS[code]
    assert re.fullmatch(r"SW\d{3}", code)
    assert code[2] == BRANCH_DIGITS[error.__module__.rsplit(".", 1)[-1]]
    assert error.message
    assert error.remedy
    caught_as = [c for c in error.__mro__ if c.__module__ == "builtins" and c not in (object, BaseException, Exception)]
    assert caught_as, f"{error.__name__} derives from no built-in class that users catch"
    text = str(sample(error))
    assert text.endswith(f"[{code}] sizewise explain {code}")
    assert "What to do: " in text


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_survives_pickling(code: str) -> None:
    error = sample(ERRORS[code])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.fields == error.fields


def raises() -> list[tuple[str, str, set[str]]]:
    """(where, class name, keywords) of every error that is made in the package."""
    names = {error.__name__: error for error in ERRORS.values()}
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names and not hasattr(builtins, name):
                keywords = {keyword.arg for keyword in node.keywords if keyword.arg}
                splat = any(keyword.arg is None for keyword in node.keywords)
                if not splat:
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", name, keywords))
    return found


def test_raise_sites_give_exactly_the_fields_of_the_templates() -> None:
    by_name: dict[str, list[frozenset[str]]] = {}
    for error in ERRORS.values():
        by_name.setdefault(error.__name__, []).append(error.field_names())
    wrong = [
        f"{where}: {name} gets {sorted(keywords)}, wants one of {[sorted(f) for f in by_name[name]]}"
        for where, name, keywords in raises()
        if keywords not in by_name[name]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_error_is_raised_somewhere() -> None:
    """An error that nothing raises is a page about nothing."""
    raised = {name for _, name, _ in raises()}
    source = "\n".join(path.read_text() for path in ROOT.rglob("*.py") if path.parent.name != "errors")
    unused = [e.__name__ for e in ERRORS.values() if e.__name__ not in raised and f".{e.__name__}" not in source]
    assert not unused


def test_codes_are_only_ever_added() -> None:
    """The lock file names every code: a new one is added to it, a gone one stays as `retired`."""
    lines = (ROOT / "errors" / "codes.lock").read_text().splitlines()
    locked = dict(line.split() for line in lines if line and not line.startswith("#"))
    assert {code: error.__name__ for code, error in ERRORS.items()} == {
        code: name for code, name in locked.items() if name not in ("retired", "reserved")
    }
    assert list(locked) == sorted(locked)


# -- errors as other libraries handle them


class Bomb:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


def too_large(**changed: object) -> SizewiseError:
    error = ERRORS["SW401"]
    return error(**{**dict.fromkeys(error.field_names(), 1), "argument": "x", **changed})


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_a_copy_has_all_that_was_added_to_an_error(again: Callable[[SizewiseError], SizewiseError]) -> None:
    error = too_large(min=3)
    error.add_note("while warming up")
    error.attempt = 2  # type: ignore[attr-defined]
    made = again(error)
    assert type(made) is type(error) and str(made) == str(error) and made.fields == error.fields
    assert made.__notes__ == ["while warming up"] and made.attempt == 2  # type: ignore[attr-defined]
    made.add_note("once more")
    assert error.__notes__ == ["while warming up"]
    assert pickle.loads(pickle.dumps(ExceptionGroup("g", [error]))).exceptions[0].fields == error.fields


def test_an_error_can_be_made_again_from_its_args() -> None:
    error = too_large()
    made = type(error)(*error.args)
    assert type(made) is type(error) and str(made) == str(error) and not made.fields


def test_a_field_that_cannot_be_shown_leaves_the_rest() -> None:
    bomb = Bomb()
    error = too_large(argument=bomb, axis=bomb)
    assert "<Bomb: its repr failed>" in str(error) and str(error).endswith("[SW401] sizewise explain SW401")
    assert error.fields["axis"] is bomb
    assert str(copy.copy(error)) == str(error)


def test_a_huge_field_is_shown_in_part_and_kept_whole() -> None:
    error = too_large(argument="x" * 10**7)
    assert len(str(error)) < 10_000 and "xxx... (10000000 characters)" in str(error)
    assert len(error.fields["argument"]) == 10**7


def test_fields_cannot_be_changed() -> None:
    error = too_large(argument="{axis}}{")
    assert "{axis}}{" in str(error)
    with pytest.raises(TypeError):
        error.fields["argument"] = 1  # type: ignore[index]
