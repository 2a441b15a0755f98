"""The C++ extension: it notices what Python notices, it calls what Python calls, and all works without it."""

from __future__ import annotations

import collections
import gc
import hashlib
import os
import random
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from benchmarks.models import ATTENTION, decoder
from sizewise import Dim, native
from sizewise.graphs.tape import fast
from sizewise.graphs.tape.recorder import Step
from sizewise.native import MISSING, Places, copied_in, layout, watch

slow = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def extension() -> Any:
    module = native.ensure()
    assert module is not None and layout.found(module) is not None
    return module


def watching(places: Places) -> Callable[[], bool]:
    found = watch(places)
    assert found is not None
    return found


# -- values


class Thing:
    def __init__(self) -> None:
        self.first, self.second = object(), "text"


def of(thing: Thing) -> Places:
    items = [(vars(thing), name, value) for name, value in vars(thing).items()]
    return Places(objects=[(thing, type(thing), vars(thing))], items=[*items, (vars(thing), "third", MISSING)])


def test_a_value_that_is_set_again_is_no_change() -> None:
    thing = Thing()
    intact = watching(of(thing))
    thing.other = 1  # type: ignore[attr-defined]
    thing.second = thing.second
    assert intact() and intact()


@pytest.mark.parametrize(
    "change",
    [
        lambda thing: setattr(thing, "first", object()),
        lambda thing: delattr(thing, "first"),
        lambda thing: setattr(thing, "third", None),
        lambda thing: setattr(thing, "__dict__", dict(vars(thing))),
        lambda thing: setattr(thing, "__class__", type("Other", (Thing,), {})),
        lambda thing: vars(thing).clear(),
        lambda thing: vars(thing).update(first=None),
    ],
)
def test_changes_of_an_object_are_noticed(change: Callable[[Thing], Any]) -> None:
    thing, other = Thing(), Thing()
    both = of(thing)
    both.add(of(other))
    intact = watching(both)
    assert intact()
    change(other)
    assert not intact()


def test_what_changed_before_the_watch_was_made_is_noticed() -> None:
    thing = Thing()
    places = of(thing)
    thing.first = object()
    assert not watching(places)()


def test_a_change_back_is_none() -> None:
    thing = Thing()
    intact, first = watching(of(thing)), thing.first
    thing.first = None
    assert not intact()
    thing.first = first
    assert intact()


def test_containers_of_other_kinds() -> None:
    values: list[Any] = [object(), object()]
    ordered = collections.OrderedDict(a=values)
    places = Places(items=[(values, 1, values[1]), (ordered, "a", values), (ordered, "b", MISSING)], whole=[values])
    intact = watching(places)
    assert intact()
    values.append(1)
    assert not intact()
    values.pop()
    assert intact()
    ordered["b"] = None
    assert not intact()
    del ordered["b"]
    values[1] = None
    assert not intact()


def test_the_order_of_a_whole_dict() -> None:
    table: dict[str, Any] = {"one": object(), "two": object(), "three": object()}
    intact = watching(Places(items=[(table, key, value) for key, value in table.items()], whole=[table]))
    assert intact()
    table["one"] = table.pop("one")
    assert not intact()
    for key in ("two", "three"):
        table[key] = table.pop(key)
    assert intact()


def test_attributes_however_they_are_found() -> None:
    class Computed:
        value = object()

        def __getattr__(self, name: str) -> Any:
            if name == "gone":
                raise AttributeError(name)
            return self.value

    owner = Computed()
    intact = watching(Places(attributes=[(owner, "anything", Computed.value)]))
    assert intact()
    Computed.value = object()
    assert not intact()
    assert not watching(Places(attributes=[(owner, "gone", None)]))()


def test_an_interrupt_is_not_lost() -> None:
    class Stopped:
        @property
        def value(self) -> Any:
            raise KeyboardInterrupt

    def stop() -> None:
        raise KeyboardInterrupt

    for places in (Places(attributes=[(Stopped(), "value", 1)]), Places(questions=[(stop, (), 1)])):
        with pytest.raises(KeyboardInterrupt):
            watching(places)()


def test_dicts_that_have_to_be_empty() -> None:
    hooks: dict[int, Any] = collections.OrderedDict()
    intact = watching(Places(empty=[{}, hooks]))
    assert intact()
    hooks[1] = print
    assert not intact()
    hooks.clear()
    assert intact()


def test_keys_that_raise_when_they_are_compared() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise ValueError("compared")

    table: dict[Any, Any] = {Odd(): 1}
    assert not watching(Places(items=[(table, Odd(), 1)]))()


def test_random_changes_are_seen_as_python_sees_them() -> None:
    """Also those by bytecode that the interpreter has specialised, which sets attributes in ways of its own."""
    draw = random.Random(0)
    values = [object(), object(), 1, 2, None]

    def set_second(thing: Thing, value: Any) -> None:
        thing.second = value

    def delete_second(thing: Thing) -> None:
        if "second" in vars(thing):
            del thing.second

    changes: list[Callable[[Thing], Any]] = [
        lambda thing: set_second(thing, draw.choice(values)),
        delete_second,
        lambda thing: vars(thing).update(first=draw.choice(values)),
        lambda thing: vars(thing).pop("third", None),
        lambda thing: setattr(thing, "third", 1) if draw.random() < 0.1 else None,
    ]
    compared = 0
    for _ in range(1000):
        thing = Thing()
        for _ in range(draw.choice([0, 20])):
            set_second(thing, 1)
        names = ("first", "second", "third")
        known = [(name, vars(thing).get(name, MISSING)) for name in names]
        intact = watching(Places(items=[(vars(thing), name, value) for name, value in known]))
        for _ in range(draw.randrange(1, 20)):
            draw.choice(changes)(thing)
            assert intact() is all(vars(thing).get(name, MISSING) is value for name, value in known)
            compared += 1
    assert compared > 5000


def test_a_watch_in_a_circle_is_collected() -> None:
    thing = Thing()
    thing.first = watching(of(thing))
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None


# -- tensors


@pytest.mark.parametrize("change", layout._CHANGES, ids=lambda change: change.__name__.strip("_"))
@pytest.mark.parametrize("kind", ["tensor", "parameter"])
def test_changes_of_a_tensor_are_noticed(kind: str, change: Callable[[torch.Tensor], None]) -> None:
    def made(dtype: torch.dtype = torch.float32) -> torch.Tensor:
        values = torch.randn(2, 2, dtype=dtype)
        return nn.Parameter(values, requires_grad=False) if kind == "parameter" else values

    one, two, three = made(), made(torch.complex64 if "conj" in change.__name__ else torch.float32), made()
    intact = watching(Places(tensors=[one, two, three]))
    with torch.no_grad():
        two.copy_(torch.randn(2, 2))
        two.mul_(2).sum()
        assert intact() and intact()
        if change is layout._swapped and kind == "tensor":  # classes have to agree
            torch.utils.swap_tensors(two, torch.randn(2, 2))
        else:
            change(two)
    assert not intact()


def test_the_class_of_a_tensor() -> None:
    class Other(nn.Parameter):
        pass

    tensor = nn.Parameter(torch.randn(2, 2), requires_grad=False)
    intact = watching(Places(tensors=[tensor]))
    tensor.__class__ = Other
    assert not intact()
    tensor.__class__ = nn.Parameter
    assert intact()


@pytest.mark.parametrize("made", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_mkldnn])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_without_memory_of_the_usual_kind_are_left_to_python(made: Callable[..., torch.Tensor]) -> None:
    assert watch(Places(tensors=[torch.randn(2, 2), made(torch.randn(2, 2))])) is None


def test_tensors_of_many_axes_are_left_to_python() -> None:
    assert watch(Places(tensors=[torch.randn(1, 1, 1, 1, 1, 2)])) is None
    assert watch(Places(tensors=[torch.randn(1, 1, 1, 1, 2)])) is not None


# -- calls


def tape(*steps: tuple[Any, ...]) -> Callable[[], None]:
    found: Callable[[], None] = native.current().Tape(steps).replay  # type: ignore[union-attr]
    return found


def python(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return 0, 0, (), 0.0, 0.0, function, (*args, *kwargs.values()), tuple(kwargs) or None


def test_calls_are_made_in_order_with_their_arguments() -> None:
    seen: list[Any] = []

    def note(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    replay = tape(python(note, 1, "two"), python(note), python(note, 3, four=4, five=[5]))
    replay()
    assert seen == [((1, "two"), {}), ((), {}), ((3,), {"four": 4, "five": [5]})]
    replay()
    assert len(seen) == 6


def test_what_a_call_raises_ends_the_replay() -> None:
    seen: list[int] = []
    replay = tape(python(seen.append, 1), python(int, "no number"), python(seen.append, 2))
    with pytest.raises(ValueError, match="no number"):
        replay()
    assert seen == [1]


def product(run: Any, *args: torch.Tensor, **kwargs: Any) -> tuple[Callable[[], None], torch.Tensor]:
    """A replay of one product, and what it writes to."""
    step = Step(run.__name__, run, args, kwargs)
    assert fast._product(step) is not None, "it is called by its address"
    replay = fast.replay_of([step], lambda _: pytest.fail("no step is live"))
    assert replay is not None
    return replay, kwargs["out"]


def test_products_by_address() -> None:
    one, two, bias = torch.randn(3, 4), torch.randn(5, 4).t(), torch.randn(5)
    stacked, others = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    for run, args, scalars in (
        (torch.mm, (one, two), {}),
        (torch.bmm, (stacked, others), {}),
        (torch.addmm, (bias, one, two), {}),
        (torch.addmm, (bias, one, two), {"beta": 0.5, "alpha": 2}),
        (torch.addmm, (bias, one, two), {"beta": 0, "alpha": 1}),
    ):
        wanted = run(*args, **scalars)  # type: ignore[operator]
        replay, out = product(run, *args, out=torch.empty_like(wanted), **scalars)
        replay()
        assert torch.equal(out, wanted)
        for tensor in args:
            tensor.copy_(torch.randn(tensor.shape))
        replay()
        assert torch.equal(out, run(*args, **scalars))  # type: ignore[operator]


def test_what_the_dispatcher_would_change_is_left_to_it() -> None:
    one, two = torch.randn(3, 4), torch.randn(4, 5)
    for args in (
        (torch._neg_view(one), two),
        (torch.randn(3, 4, dtype=torch.complex64).conj(), two.to(torch.complex64)),
        (one.to_sparse(), two),
    ):
        out = torch.empty(3, 5, dtype=args[0].dtype)
        step = Step("mm", torch.mm, args, {"out": out})
        assert fast._product(step) is None
        replay = fast.replay_of([step], lambda _: pytest.fail("no step is live"))
        assert replay is not None
        replay()
        torch.testing.assert_close(out, torch.mm(*args))


def test_a_product_that_fails_says_why_in_its_own_words() -> None:
    replay, _ = product(torch.mm, torch.randn(3, 4), torch.randn(5, 6), out=torch.empty(3, 6))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        replay()


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 8), requires_grad=False)
        self.eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table[ids].sin()


@slow
def test_a_kernel_by_address_and_what_it_says_of_an_index() -> None:
    model = Looked()
    dims = {"ids": {0: Dim("batch", 1, 4)}}
    captured = sizewise.compile(model, dynamic_shapes=dims, cudagraph_capture_sizes=[4]).warmup(torch.arange(3))
    for _ in range(2):
        ids = torch.randint(0, 10, (4,))
        with captured.counters.expect(calls_capture=1):
            torch.testing.assert_close(captured(ids), model(ids))
    with pytest.raises((RuntimeError, IndexError), match="index out of bounds"):
        captured(torch.tensor([1, 2, 3, 99]))
    ids = torch.randint(0, 10, (4,))
    torch.testing.assert_close(captured(ids), model(ids))


@slow
@pytest.mark.parametrize("without", [False, True], ids=["extension", "python"])
def test_both_ways_give_the_same(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if without:
        for module in (sys.modules[watch.__module__], fast):
            monkeypatch.setattr(module, "current", lambda: None)
    model = decoder(2).eval()
    dims = {"ids": {0: Dim("batch", 1, 8)}}
    options: dict[str, Any] = {"splitting_ops": [ATTENTION], "cudagraph_capture_sizes": [2, 8]}
    captured = sizewise.compile(model, dynamic_shapes=dims, **options).warmup(torch.randint(0, 256, (4, 6)))
    ways = {type(getattr(bucket.capture.replay, "__self__", None)) for bucket in buckets(captured)}
    assert ways == ({type(None)} if without else {native.current().Tape})  # type: ignore[union-attr]
    for batch in (1, 2, 3, 8):
        ids = torch.randint(0, 256, (batch, 6))
        with captured.counters.expect(calls_capture=1), torch.no_grad():
            torch.testing.assert_close(captured(ids), model(ids))
    weight = model.layers[0].qkv.weight
    with torch.no_grad():
        weight.mul_(2)
        torch.testing.assert_close(captured(ids), model(ids))
        weight.data = torch.randn_like(weight)
        with captured.counters.expect(calls_program=1):
            torch.testing.assert_close(captured(ids), model(ids))
        model.layers[0].qkv.weight = nn.Parameter(torch.randn_like(weight))
        with captured.counters.expect(calls_program=2):
            torch.testing.assert_close(captured(ids), model(ids))
            torch.testing.assert_close(captured(ids), model(ids))
    model.layers[1].heads = 2
    with pytest.raises(sizewise.SizewiseError, match="heads"):
        captured(ids)


def buckets(captured: Any) -> list[Any]:
    found = captured.__dict__["_sw_generation"].captures.buckets[0].buckets
    return [bucket for bucket in found if bucket is not None]


@slow
def test_a_bundle_takes_it_along(tmp_path: Path) -> None:
    captured = sizewise.compile(Looked(), dynamic_shapes={"ids": {0: Dim("batch", 1, 4)}}).warmup(torch.arange(3))
    bundle = captured.save(tmp_path / "looked.sizewise", proved=False)
    code = f"""
        import torch, sizewise
        from sizewise import native
        from tests.test_native import Looked
        assert native.current() is None
        model = Looked()
        loaded = sizewise.load({str(bundle)!r}, model)
        assert native.current() is not None
        torch.testing.assert_close(loaded(torch.arange(4)), model(torch.arange(4)))
        print("served")
        """
    empty = tmp_path / "empty"
    assert run(code, empty, CXX="false", OMP_NUM_THREADS="1") == "served\n"


@pytest.mark.parametrize("bad", [("no tuple",), ((2, 0, (1, 2), 0.0, 0.0, print, (), None),), ((0,),)])
def test_steps_that_are_none_are_refused(bad: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        native.current().Tape(bad)  # type: ignore[union-attr]


# -- the file


def run(code: str, folder: Path, **more: str) -> str:
    environment = {**os.environ, "SIZEWISE_CACHE_DIR": str(folder), **more}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


BUILD = "from sizewise import native; print(native.ensure() is not None)"


@slow
def test_without_a_compiler_there_is_none_and_all_goes_on(tmp_path: Path) -> None:
    assert run(BUILD, tmp_path, CXX="no-such-compiler") == "False\n"
    # One whose words are no UTF-8, and one that writes an empty library.
    for name, words in (("loud", "printf '\\344' >&2; exit 1"), ("empty", 'for last; do :; done; : > "$last"')):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{words}\n")
        script.chmod(0o700)
        assert run(BUILD, tmp_path, CXX=str(script)) == "False\n"
    assert not list(tmp_path.rglob("*.fast"))


@slow
def test_it_is_kept_and_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    assert run(BUILD, tmp_path) == "True\n"
    (kept,) = tmp_path.rglob("*.fast")
    good = kept.read_bytes()
    assert hashlib.sha256(good[32:]).digest() == good[:32]
    assert run(BUILD, tmp_path, CXX="false") == "True\n"
    for bad in (good[:100], good[:40] + b"X" + good[41:]):
        kept.write_bytes(bad)
        assert run(BUILD, tmp_path, CXX="false") == "False\n"
    assert run(BUILD, tmp_path) == "True\n"
    assert kept.read_bytes()[32:] == good[32:]


@slow
def test_without_room_for_temporary_files_all_goes_on(tmp_path: Path) -> None:
    run(BUILD, tmp_path)
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'gone')!r}; {BUILD}"
    assert run(code, tmp_path) == "False\n"


@slow
def test_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    run(BUILD, tmp_path)
    (kept,) = tmp_path.rglob("*.fast")
    kept.chmod(0o666)
    assert run(BUILD, tmp_path, CXX="false") == "False\n"


# -- arguments


def test_arguments_are_copied_and_filled_up() -> None:
    one, two = torch.randn(4, 3), torch.ones(5, dtype=torch.int64)
    copy = copied_in([(one[:2], one), (two, two)])
    assert copy is not None
    first, second = torch.randn(2, 3), torch.arange(5)
    copy(first, second)
    assert torch.equal(one[:2], first) and not one[2:].any() and torch.equal(two, second)
    with pytest.raises(TypeError, match="number of arguments"):
        copy(first)
    with pytest.raises(RuntimeError, match="no memory"):
        copy(torch._efficientzerotensor(2, 3), second)
    strided = torch.randn(3, 4)
    assert copied_in([(strided[:, 1:], strided)]) is None


# -- questions


def test_answers_are_compared_by_value() -> None:
    answers = {"size": 1000}
    intact = watching(Places(questions=[(answers.get, ("size",), 1000), (len, ([1],), 1)]))
    assert intact()
    answers["size"] = 1001
    assert not intact()
    assert not watching(Places(questions=[(int, ("no number",), 1)]))()
