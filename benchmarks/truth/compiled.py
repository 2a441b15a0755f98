# ruff: noqa: B905, PLE0643, PLE1307, RUF040, UP031  (the mistakes are what is asked for)
"""Errors of torch.compile: graph breaks, backends, settings."""

from __future__ import annotations

import contextlib
import itertools
import operator
import threading
import types
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo as dynamo
import torch._inductor.config as inductor_config
from torch import nn

X = torch.ones(4, 4)


def whole(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Compile without graph breaks and call; ``args`` are a 4 by 4 tensor by default."""
    dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager", **options)
    return compiled(*(args or (X,)))


class Hooked:
    """A class with the methods that Dynamo finds hard."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __del__(self) -> None: ...


class Slotted:
    __slots__ = ("value",)


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        return super().__call__(*args)


class WithMeta(metaclass=Meta):
    pass


def _raises(x: torch.Tensor) -> Any:
    raise ValueError("told by the user")


def _asserts(x: torch.Tensor) -> Any:
    assert x.sum() < 0, 3
    return x


def _generator(x: torch.Tensor) -> Any:
    yield x


async def _coroutine(x: torch.Tensor) -> Any:
    return x


def _async_with(x: torch.Tensor) -> Any:
    async def inside() -> Any:
        async with contextlib.AsyncExitStack():
            return x

    return inside().send(None)


def _with_unknown(x: torch.Tensor) -> Any:
    with contextlib.redirect_stdout(None):
        return x


def _with_lock(x: torch.Tensor) -> Any:
    with threading.Lock():
        return x + 1


def _data_loop(x: torch.Tensor) -> Any:
    while x.sum() < 100:
        x = x + 1
    return x


def _star_import(x: torch.Tensor) -> Any:
    import no_such_module_at_all  # noqa: F401

    return x


def _delete_global(x: torch.Tensor) -> Any:
    import sys

    sys.settrace(None)
    return x


def _raise_from_handler(x: torch.Tensor) -> Any:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError("outer") from error


def _class_in_graph(x: torch.Tensor) -> Any:
    class Local(nn.Module):
        pass

    return Local()(x)


def graph_breaks() -> list[Callable[[], Any]]:
    """torch.compile(fullgraph=True, backend="eager") of what Dynamo does not trace."""
    return [
        lambda: whole(lambda x: x + 1 if x.sum() > 0 else x),
        lambda: whole(lambda x: print(x)),
        lambda: whole(lambda x: x.item() and x),
        lambda: whole(lambda x: x.sum().item() + 1 > 3 and 2),
        lambda: whole(lambda x: x.tolist() and x),
        lambda: whole(lambda x: x.numpy().tobytes()),
        lambda: whole(lambda x: dynamo.graph_break()),
        lambda: whole(lambda x: dynamo.graph_break("told why")),
        lambda: whole(lambda x: breakpoint()),
        lambda: whole(lambda x: open("/dev/null")),
        lambda: whole(lambda x: input()),
        lambda: whole(lambda x: eval("x + 1")),
        lambda: whole(lambda x: exec("x + 1")),
        lambda: whole(lambda x: globals()["X"] + x),
        lambda: whole(lambda x: dir(x)),
        lambda: whole(lambda x: hash(x)),
        lambda: whole(lambda x: compile("1", "x", "eval")),
        lambda: whole(lambda x: memoryview(b"abc")),
        lambda: whole(lambda x: bytearray(3)),
        lambda: whole(lambda x: type("New", (), {})()),
        lambda: whole(lambda x: x.backward()),
        lambda: whole(lambda x: x.sum().backward(), torch.ones(2, requires_grad=True)),
        lambda: whole(lambda x: x.requires_grad_()),
        lambda: whole(lambda x: x.register_hook(print)),
        lambda: whole(lambda x: x.retain_grad()),
        lambda: whole(lambda x: x.as_subclass(nn.Parameter)),
        lambda: whole(lambda x: x.to_sparse()),
        lambda: whole(lambda x: x.set_(torch.ones(2))),
        lambda: whole(lambda x: x.resize_(2)),
        lambda: whole(lambda x: x.apply_(abs)),
        lambda: whole(lambda x: x.map_(x, max)),
        lambda: whole(lambda x: x.no_such_method()),
        lambda: whole(lambda x: x.no_such_attribute),
        lambda: whole(lambda x: x @ torch.ones(3)),
        lambda: whole(lambda x: x + torch.ones(3)),
        lambda: whole(lambda x: x.view(3)),
        lambda: whole(lambda x: torch.cat([x, torch.ones(2)])),
        lambda: whole(lambda x: x[9]),
        lambda: whole(lambda x: torch.ones(2).__setstate__(3)),
        lambda: whole(lambda x: torch.nn.Linear(2, 2)(x)),
        lambda: whole(lambda x: torch.save(x, "/dev/null")),
        lambda: whole(lambda x: torch.load("/dev/null")),
        lambda: whole(lambda x: torch.random.get_rng_state()),
        lambda: whole(lambda x: torch.set_num_threads(1)),
        lambda: whole(lambda x: torch.cuda.synchronize()),
        lambda: whole(lambda x: torch.jit.script(abs)),
        lambda: whole(lambda x: torch.autograd.grad(x.sum(), x)),
        lambda: whole(lambda x: torch.autograd.set_detect_anomaly(True)),
        lambda: whole(lambda x: torch.is_inference_mode_enabled() and x),
        lambda: whole(lambda x: x.is_inference()),
        lambda: whole(lambda x: torch.inference_mode()(abs)(x)),
        lambda: whole(lambda x: torch.func.vmap(lambda y: y.item())(x)),
        lambda: whole(lambda x: torch.func.grad(lambda y: y)(x)),
        lambda: whole(lambda x: torch.func.vmap(3)(x)),
        lambda: whole(lambda x: torch.cond(x.sum() > 0, lambda y: y, lambda y: y.sum(), (x,))),
        lambda: whole(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, 3, (x,))),
        lambda: whole(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, x)),
        lambda: whole(lambda x: torch.cond(x.sum() > 0, lambda y: y.item(), lambda y: y.item(), (x,))),
        lambda: whole(lambda x: torch.while_loop(lambda y: 3, lambda y: (y,), (x,))),
        lambda: whole(lambda x: torch.while_loop(3, lambda y: (y,), (x,))),
        lambda: whole(lambda x: torch.compiler.disable(abs)(x)),
        lambda: whole(lambda x: torch.compiler.disable(lambda y: y, reason="by wish")(x)),
        lambda: whole(lambda x: dynamo.mark_dynamic(x, 0)),
        lambda: whole(lambda x: dynamo.reset()),
        lambda: whole(lambda x: torch._check(x.sum() > 0)),
        lambda: whole(lambda x: torch._check(3, "not callable")),
        lambda: whole(lambda x: torch._check(False, lambda: "it is false")),
        lambda: whole(lambda x: torch._check_is_size(-1)),
        lambda: whole(_raises),
        lambda: whole(_raise_from_handler),
        lambda: whole(_asserts),
        lambda: whole(_generator),
        lambda: whole(lambda x: list(_generator(x))[3]),
        lambda: whole(_async_with),
        lambda: whole(_with_unknown),
        lambda: whole(_with_lock),
        lambda: whole(_data_loop),
        lambda: whole(_star_import),
        lambda: whole(_delete_global),
        lambda: whole(_class_in_graph),
        lambda: whole(lambda x: Slotted().value),
        lambda: whole(lambda x: object.__new__(Hooked, 3)),
        lambda: whole(lambda x: itertools.groupby(x)),
        lambda: whole(lambda x: next(itertools.cycle(iter(())))),
        lambda: whole(lambda x: list(itertools.combinations(5, 2))),
        lambda: whole(lambda x: operator.length_hint(x)),
        lambda: whole(lambda x: threading.Thread(target=abs).start()),
        lambda: whole(lambda x: types.SimpleNamespace(a=x).b),
        lambda: whole(lambda x: {}["missing"]),
        lambda: whole(lambda x: [1, 2][5]),
        lambda: whole(lambda x: {[]: 1}),
        lambda: whole(lambda x: len(3)),
        lambda: whole(lambda x: int("x")),
        lambda: whole(lambda x: 1 / 0),
        lambda: whole(lambda x: 3 + "x"),
        lambda: whole(lambda x: "%d" % "x"),
        lambda: whole(lambda x: f"{x:d}"),
        lambda: whole(lambda x: f"{x:.2f}"),
        lambda: whole(lambda x: str(x)),
        lambda: whole(lambda x: sorted([x, x])),
        lambda: whole(lambda x: sum(3)),
        lambda: whole(lambda x: range(x)),
        lambda: whole(lambda x: iter(3)),
        lambda: whole(lambda x: next(3)),
        lambda: whole(lambda x: zip(x, 3)),
        lambda: whole(lambda x: map(abs, 3)),
        lambda: whole(lambda x: list(zip([1], [1, 2], strict=True))),
        lambda: whole(lambda x: isinstance(x, 3)),
        lambda: whole(lambda x: issubclass(3, int)),
        lambda: whole(lambda x: setattr(3, "x", 1)),
        lambda: whole(lambda x: getattr(x, "a" + "b")),
        lambda: whole(lambda x: setattr(x, "data", torch.ones(2))),
        lambda: whole(lambda x: [1].remove(3)),
        lambda: whole(lambda x: [].pop()),
        lambda: whole(lambda x: [1].index(3)),
        lambda: whole(lambda x: set().pop()),
        lambda: whole(lambda x: {1}.remove(3)),
        lambda: whole(lambda x: {}.popitem()),
        lambda: whole(lambda x: [1] + (2,)),
        lambda: whole(lambda x: [3, "a"].sort()),
        lambda: whole(lambda x: (lambda a: a)()),
        lambda: whole(lambda x: (lambda a: a)(1, 2)),
        lambda: whole(lambda x: (lambda: 1)(q=3)),
        lambda: whole(lambda x: torch.add(x)),
        lambda: whole(lambda x: torch.ones(x)),
        lambda: whole(lambda x: torch.arange(x)),
        lambda: whole(lambda x: torch.tensor([x, "a"])),
        lambda: whole(lambda x: torch.split(x, [1, 1])),
        lambda: whole(lambda x: torch.ops.aten.no_such(x)),
        lambda: whole(lambda x: torch.utils.dlpack.to_dlpack(x)),
        lambda: whole(3),
        lambda: whole(lambda x: x, X.to_sparse()),
        lambda: whole(lambda x: x + 1, torch.nested.nested_tensor([torch.ones(2)])),
        lambda: torch.compile(abs, backend="nowhere")(3),
        lambda: torch.compile(abs, mode="nowhere"),
        lambda: torch.compile(abs, mode="default", options={"x": 1}),
        lambda: torch.compile(abs, options={"no.such": 1})(X),
        lambda: torch.compile(abs, options={"max_autotune": "yes"})(X),
        lambda: torch.compile(abs, backend=lambda graph, inputs: 3)(X),
        lambda: torch.compile(lambda x: x + 1, backend=lambda graph, inputs: 3)(X),
        lambda: torch.compile(lambda x: x + 1, backend=lambda graph, inputs: 1 / 0)(X),
        lambda: torch.compile(lambda x: x + 1, backend=3)(X),
        lambda: torch.compiler.set_stance("force_eager", backend="eager"),
        lambda: torch.compiler.disable(3),
        lambda: torch.compiler.allow_in_graph(3),
        lambda: torch.compiler.substitute_in_graph(abs)(3),
        lambda: dynamo.mark_static_address(3),
        lambda: dynamo.explain(3)(X),
        lambda: dynamo.optimize("nowhere"),
        lambda: dynamo.export(3)(X),
        lambda: dynamo.nonstrict_trace(3),
        lambda: setattr(dynamo.config, "no_such_setting", 3),
        lambda: dynamo.config.no_such_setting,
        lambda: dynamo.config.patch(no_such_setting=3).__enter__(),
        lambda: setattr(inductor_config, "no_such_setting", 3),
        lambda: inductor_config.no_such_setting,
        lambda: inductor_config.patch("no.such", 3).__enter__(),
        lambda: torch._inductor.aoti_load_package("/nowhere.pt2"),
        lambda: torch._inductor.aoti_compile_and_package(3),
        lambda: torch._functorch.config.no_such_setting,
    ]
