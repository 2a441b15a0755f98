from __future__ import annotations

from typing import Any

import pytest
import torch

from sizewise.calls import Signature
from sizewise.errors import call as call_errors
from sizewise.errors import trace as trace_errors


def forward(x: Any, y: Any = None, *rest: Any, flag: bool = True, **more: Any) -> None: ...


SIGNATURE = Signature(forward, "M")


def test_positional_keyword_and_default_are_one_call() -> None:
    x = torch.ones(2)
    keys = {
        SIGNATURE.bind((x,), {}).key(),
        SIGNATURE.bind((), {"x": x}).key(),
        SIGNATURE.bind((x, None), {"flag": True}).key(),
    }
    assert len(keys) == 1


def test_values_are_part_of_the_key_and_sizes_are_not() -> None:
    def key(size: int, **kwargs: Any) -> Any:
        return SIGNATURE.bind((torch.ones(size),), kwargs).key()

    assert key(2) == key(3)
    assert key(2) != key(2, flag=False)
    assert key(2, y=1) != key(2, y=1.0) != key(2, y=True)


def test_defaults_are_not_passed_on() -> None:
    call = SIGNATURE.bind((torch.ones(1),), {"flag": True, "extra": 3})
    assert set(call.kwargs) == {"x", "extra"}


def test_arguments_before_varargs_stay_positional() -> None:
    call = SIGNATURE.bind((torch.ones(1), None, 5, 6), {})
    assert len(call.args) == 4
    assert call.args[1:] == (None, 5, 6)


def test_containers_are_flattened_with_paths() -> None:
    call = SIGNATURE.bind(({"a": torch.ones(1), "b": [1, torch.ones(2)]},), {})
    assert [leaf.path for leaf in call.tensors()] == ["x['a']", "x['b'][1]"]


def test_values_can_be_replaced_inside_containers() -> None:
    call = SIGNATURE.bind(({"a": torch.ones(1), "b": [1, torch.ones(2)]},), {})
    new = torch.zeros(5)
    changed = call.with_values({"x['b'][1]": new})
    assert changed.kwargs["x"]["b"][1] is new
    assert call.kwargs["x"]["b"][1] is not new


def test_a_call_that_does_not_fit_is_named() -> None:
    with pytest.raises(call_errors.BadCall, match="missing a required argument: 'x'"):
        SIGNATURE.bind((), {})


def test_an_argument_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(trace_errors.InputClass, match=r"builtins\.object"):
        SIGNATURE.bind((object(),), {})


@pytest.mark.parametrize(
    "source",
    ["x, y=1", "x, /, y", "x, *, y=2", "x, *rest, flag=True", "x, **more", "a, /, b=3, *c, d, e=4, **f"],
)
def test_a_generated_function_has_the_same_signature(source: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def f({source}): ...", scope)
    text, defaults = Signature(scope["f"], "f").declaration()
    exec(f"def g({text}): ...", defaults)
    import inspect

    assert inspect.signature(defaults["g"]) == inspect.signature(scope["f"])
