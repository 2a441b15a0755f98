"""What a trace took for granted about Python values, and what happens when it changes."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.guards import GuardBuilder

import sizewise
from sizewise import CompiledModule, Dim
from sizewise.errors import state as state_errors
from sizewise.errors import trace as trace_errors
from sizewise.guards import TREATMENT

SCALE = 2.0
TABLES = {"first": 1.0, "second": 3.0}


def helper(x: Tensor) -> Tensor:
    return x.sin()


class Settings:
    def __init__(self) -> None:
        self.power = 2
        self.names = ["a", "b"]

    def raised(self, x: Tensor) -> Tensor:
        return x**self.power


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.eps = 1e-3

    def forward(self, x: Tensor) -> Tensor:
        return self.lin(x) + self.eps


class OtherPart(Part):
    def forward(self, x: Tensor) -> Tensor:
        return x * 9


class Net(nn.Module):
    """Reads Python values from everywhere a module may keep them."""

    limit = 3

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.act = nn.GELU()
        self.drop = nn.Dropout(0.5)
        self.enabled, self.factor, self.label = True, 2, "up"
        self.settings = Settings()
        self.options = {"bias": 1.0, "extra": None}
        self.function: Callable[[Tensor], Tensor] = torch.tanh
        self.unread = 0

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = self.act(part(x))
        x = self.drop(x) * SCALE + TABLES["first"]
        if self.enabled:
            x = x * self.factor
        x = x + (1 if self.label == "up" else -1)
        x = self.settings.raised(x) * getattr(self, "scale", 1.0) + len(self.settings.names)
        x = x + self.options["bias"] + self.limit
        x = -x if os.environ.get("NET_SIGN") == "minus" else x
        return helper(self.function(x)) + F.relu(x)


def ready(module: nn.Module | None = None, **options: Any) -> CompiledModule:
    dims = {"x": {0: Dim("batch", 1, 16)}}
    fast: CompiledModule = sizewise.compile((module or Net()).eval(), dynamic_shapes=dims, backend="eager", **options)
    return fast.warmup(torch.randn(3, 4))


def replace_global(name: str, value: Any) -> Callable[[Net, pytest.MonkeyPatch], None]:
    return lambda net, patch: patch.setitem(globals(), name, value)


def set_attribute(path: str, value: Any) -> Callable[[Net, pytest.MonkeyPatch], None]:
    def change(net: Net, patch: pytest.MonkeyPatch) -> None:
        *owners, last = path.split(".")
        target: Any = net
        for owner in owners:
            target = target[int(owner)] if owner.isdigit() else getattr(target, owner)
        setattr(target, last, value)

    return change


def one_for_another(net: Net, _: Any) -> None:
    del net.unread
    net.scale = 4.0


def replace_code(net: Net, patch: pytest.MonkeyPatch) -> None:
    def other(x: Tensor) -> Tensor:
        return x.cos()

    patch.setattr(helper, "__code__", other.__code__)


CHANGES: dict[str, tuple[Callable[[Net, pytest.MonkeyPatch], Any], str]] = {
    "a bool": (set_attribute("enabled", False), "enabled was True and is False"),
    "an int": (set_attribute("factor", 3), "factor was 2 and is 3"),
    "an int as a float": (set_attribute("factor", 2.0), "factor was 2 and is 2.0"),
    "a string": (set_attribute("label", "down"), "label was 'up' and is 'down'"),
    "a float of a part": (set_attribute("parts.1.eps", 1e-2), r"parts\.1\.eps"),
    "an attribute of an object": (set_attribute("settings.power", 3), r"settings\.power was 2 and is 3"),
    "the length of a list": (lambda net, _: net.settings.names.append("c"), "names"),
    "an object": (set_attribute("settings", Settings()), "settings"),
    "an entry of a dict": (lambda net, _: net.options.__setitem__("bias", 2.0), "bias"),
    "a class attribute": (lambda net, patch: patch.setattr(Net, "limit", 4), "limit"),
    "an instance attribute over a class's": (set_attribute("limit", 9), "limit"),
    "a function": (set_attribute("function", torch.sin), "function"),
    "a submodule": (lambda net, _: net.parts.__setitem__(0, Part()), r"parts\.0"),
    "a submodule replaced by attribute": (set_attribute("act", nn.GELU(approximate="tanh")), "act"),
    "one submodule more": (lambda net, _: net.parts.append(Part()), "parts"),
    "one submodule less": (lambda net, _: net.parts.__delitem__(1), "parts"),
    "an approximation": (set_attribute("act.approximate", "tanh"), r"act\.approximate"),
    "a submodule in training": (lambda net, _: net.drop.train(), r"drop\.training was False and is True"),
    "a forward hook": (
        lambda net, _: net.parts[0].register_forward_hook(lambda *_: None),
        r"hook was added to parts\.0",
    ),
    "a pre-hook": (lambda net, _: net.act.register_forward_pre_hook(lambda *_: None), "hook was added to act"),
    "a forward of its own": (
        set_attribute("act.forward", types.MethodType(lambda self, x: x, nn.GELU())),
        "an attribute 'forward' of its own",
    ),
    "a global number": (replace_global("SCALE", 5.0), "SCALE was 2.0 and is 5.0"),
    "a global function": (replace_global("helper", torch.cos), "helper"),
    "an entry of a global dict": (lambda net, patch: patch.setitem(TABLES, "first", 7.0), "first"),
    "a torch function": (lambda net, patch: patch.setattr(F, "relu", torch.sigmoid), "relu"),
    "a class assigned": (lambda net, _: setattr(net.parts[0], "__class__", OtherPart), r"parts\.0 was a Part"),
    "a registry of parameters": (
        lambda net, _: setattr(net.parts[1].lin, "_parameters", dict(nn.Linear(4, 4)._parameters)),
        r"parts\.1\.lin\._parameters was replaced",
    ),
    "set up again": (lambda net, _: net.parts[1].lin.__init__(4, 4), r"parts\.1\.lin"),
    "all attributes": (lambda net, _: vars(net).update(vars(Net().eval())), "replaced"),
    "the dict of attributes": (
        lambda net, _: setattr(net.settings, "__dict__", {"power": 5, "names": []}),
        r"attributes of settings were replaced|settings\.power",
    ),
    "one attribute less and another more": (one_for_another, "'scale' of its own"),
    "a method of a helper object": (
        lambda net, patch: patch.setattr(Settings, "raised", lambda self, x: x**7),
        r"Settings\.raised",
    ),
    "the code of a function": (replace_code, "helper was replaced by another code"),
    "the environment": (
        lambda net, patch: patch.setenv("NET_SIGN", "minus"),
        "NET_SIGN was None and is 'minus'",
    ),
    "a method of the class": (lambda net, patch: patch.setattr(Part, "forward", lambda self, x: x), "forward"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_to_what_was_traced_is_noticed_and_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, says = CHANGES[name]
    fast = ready()
    x = torch.randn(5, 4)
    fast(x)
    change(fast.__wrapped__, monkeypatch)
    assert fast.state == "stale"
    with fast.counters.expect(stale=1), pytest.raises(state_errors.Stale, match=says):
        fast(x)


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "a submodule in training"])
def test_on_stale_eager_and_refresh_give_eagers_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = ready(on_stale="eager")
    x = torch.randn(5, 4)
    CHANGES[name][0](fast.__wrapped__, monkeypatch)
    with torch.no_grad(), fast.counters.expect(stale=1, calls_eager=1):
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))
    fast.eval()  # a part that was put in may be in training
    fast.refresh()
    assert fast.state == "ready"
    with torch.no_grad(), fast.counters.expect(stale=0, calls_program=1):
        torch.testing.assert_close(fast(x), fast.__wrapped__(x))


class Base(nn.Module):
    factor = 2.0

    @classmethod
    def doubled(cls, x: Tensor) -> Tensor:
        return x * 2

    def helped(self, x: Tensor) -> Tensor:
        return x * self.factor

    def forward(self, x: Tensor) -> Tensor:
        return self.helped(x) + self.doubled(x)


DERIVED: dict[str, tuple[str, Any]] = {
    "an attribute": ("factor", 9.0),
    "a method": ("helped", lambda self, x: x * 9),
    "a classmethod": ("doubled", classmethod(lambda cls, x: x * 9)),
}


@pytest.mark.parametrize("name", DERIVED)
def test_what_a_derived_class_gets_later_is_noticed(name: str) -> None:
    derived = type("Derived", (Base,), {})
    fast = ready(derived())
    x = torch.randn(5, 4)
    torch.testing.assert_close(fast(x), fast.__wrapped__(x))
    setattr(derived, *DERIVED[name])
    with pytest.raises(state_errors.Stale):
        fast(x)


def test_a_change_that_is_taken_back_is_no_change() -> None:
    fast = ready()
    net = fast.__wrapped__
    handle = net.act.register_forward_hook(lambda *_: None)
    net.enabled = False
    assert fast.state == "stale"
    handle.remove()
    net.enabled = True
    assert fast.state == "ready"
    fast(torch.randn(3, 4))


def test_an_equal_constant_is_no_change() -> None:
    fast = ready()
    net = fast.__wrapped__
    net.label = "".join(["u", "p"])
    net.parts[0].eps = float("1e-3")
    net.something_new = 5
    fast(torch.randn(3, 4))
    assert fast.state == "ready"


def test_every_kind_of_guard_torch_makes_has_a_place() -> None:
    kinds = {name for name, member in vars(GuardBuilder).items() if inspect.isfunction(member) and name.isupper()}
    kinds |= {name for name, member in vars(GuardBuilder).items() if callable(member) and name.isupper()}
    assert kinds - TREATMENT.keys() == set()
    assert {treatment for treatment, _ in TREATMENT.values()} == {
        "proved",
        "entry",
        "ambient",
        "snapshot",
        "implied",
        "refused",
    }


def test_the_report_says_where_every_guard_went() -> None:
    report = ready().report()
    assert len(report.guards) > 20
    assert any("self.enabled: snapshot" in line for line in report.guards)
    assert any("parts" in line and "entry" in line for line in report.guards)


class Iterates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])

    def forward(self, x: Tensor) -> Tensor:
        return x + next(self.numbers)


def test_an_iterator_is_refused() -> None:
    with pytest.raises(trace_errors.TraceError):
        ready(Iterates())


def test_a_function_that_closes_over_a_value() -> None:
    factor = 2.0

    def scaled(x: Tensor) -> Tensor:
        return x * factor

    fast = sizewise.compile(scaled, dynamic_shapes={"x": {0: Dim("batch", 1, 16)}}, backend="eager")
    x = torch.randn(3)
    assert torch.equal(fast(x), x * 2)
    factor = 3.0
    with pytest.raises(state_errors.Stale):
        fast(x)
