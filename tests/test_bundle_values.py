"""What bundles are made of: values as JSON and back, values in words, and values that must not pass for one another."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sizewise.calls import Shell
from sizewise.guards.portable import portable
from sizewise.saved.values import NotWritable, Unreadable, decode, encode
from sizewise.traced.code import digest

from .bundle_support import case, python, served

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.sampled_from([torch.float16, torch.int64, torch.complex64, torch.bool])
    | st.sampled_from(
        [torch.strided, torch.sparse_coo, torch.channels_last, torch.device("cpu"), torch.device("cuda:1")]
    )
    | st.lists(st.integers(0, 9)).map(torch.Size)
    | st.builds(slice, st.none() | st.integers(), st.integers(), st.none() | st.integers())
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 5))
    | st.sampled_from([int, dict, torch.Tensor, Shell, torch.nn.Linear, struct.Struct])
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


def same(first: Any, second: Any) -> bool:
    """Equal in class and in every bit, in order."""
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return same(list(first.items()), list(second.items()))
    if isinstance(first, float):
        return struct.pack("d", first) == struct.pack("d", second) or (math.isnan(first) and math.isnan(second))
    if isinstance(first, complex):
        return same([first.real, first.imag], [second.real, second.imag])
    return bool(first == second)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    written = json.loads(json.dumps(encode(value)))
    assert same(decode(written), value)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2),
        object(),
        {1, 2},
        frozenset({1}),
        lambda: 1,
        type("Local", (), {}),
        bytearray(b"1"),
        1j.real.as_integer_ratio,
    ],
)
def test_what_is_no_plain_value_is_refused(value: Any) -> None:
    with pytest.raises(NotWritable):
        encode([(value,)])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
KNOWN = (Unreadable, TypeError, ValueError, ImportError, AttributeError, LookupError, RuntimeError, OverflowError)
HEADS = [
    "float",
    "complex",
    "bytes",
    "dtype",
    "device",
    "size",
    "slice",
    "range",
    "enum",
    "class",
    "tuple",
    "dict",
    "?",
]


@given(
    JSON | st.tuples(st.sampled_from(HEADS), JSON).map(list) | st.tuples(st.sampled_from(HEADS), JSON, JSON).map(list)
)
def test_reading_anything_else_fails_in_a_known_way(data: Any) -> None:
    with contextlib.suppress(*KNOWN):
        decode(data)


@pytest.mark.parametrize("name", ["dtype", "layout", "memory_format"])
def test_nothing_but_torchs_constants_is_looked_up_there(name: str) -> None:
    for text in ("torch.load", "load", "torch.nn", "torch.ops.aten", "pi", "__doc__"):
        with pytest.raises((Unreadable, AttributeError)):
            decode([name, text])


WORDS = """
import enum, functools, math, operator
from sizewise.guards.portable import portable


class Color(enum.Enum):
    RED = object()


class Thing:
    @property
    def size(self): return {"a", "b"}
    def method(self): return lambda x: x in {"p", "q", ("r", "s")}
    @staticmethod
    def static(x): return [y for y in x if y in frozenset("uvw")]


def outer(k):
    def inner(x, y=1, *, z=("t", 2)): return x * k + y
    return inner


values = [
    1, 1.0, True, "a", b"a", None, 1j, float("nan"), -0.0, Color.RED, torch.float32, torch.Size([1]), slice(1),
    range(3),
    (1, ("a", None)), [1, 2], {"a": 1}, {"a", "b", "c"}, frozenset("abc"), Thing, Thing(), Thing.method, Thing().method,
    Thing.static, vars(Thing)["static"], Thing.method.__code__, outer(2), torch.ones(2), torch.nn.Linear(2, 2),
    math.floor, torch.floor, operator.add, torch.ops.aten.add, torch.ops.aten.add.Tensor, torch.Tensor.relu, math,
    torch.nn.functional.relu, torch.nn.functional.max_pool2d, functools.partial(torch.add, 1), object(), len,
]
tell(words=list(map(portable, values)))
"""


@pytest.mark.slow
def test_words_are_the_same_in_another_process(tmp_path: Path) -> None:
    found = [python(WORDS, folder=tmp_path, PYTHONHASHSEED=seed)[0]["words"] for seed in ("1", "2")]
    assert found[0] == found[1]
    assert not [words for words in found[0] if "0x" in words]


def compiled(text: str) -> str:
    return digest(compile(text, "<test>", "eval"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x * 1 + 23", "x * 12 + 3"),
        ("x * 1 + 0.0", "x * 1 + -0.0"),
        ("x + 1", "x + True"),
        ("x + 1", "x + 1.0"),
        ("f('a', 'b')", "f('ab', '')"),
        ("x in {1, 2}", "x in {1, 3}"),
        ("lambda x: 1", "lambda x: 2"),
        ("a.b", "a.c"),
        ("f(1, '2')", "f(12, '')"),
    ],
)
def test_other_code_has_another_digest(first: str, second: str) -> None:
    assert compiled(first) != compiled(second) and compiled(first) == compiled(first)


def test_different_functions_are_not_called_the_same() -> None:
    functional = torch.nn.functional
    groups = [
        (math.floor, torch.floor),
        (functional.max_pool2d, functional.max_pool1d, functional.adaptive_max_pool2d),
        (torch.Tensor.relu, torch.Tensor.tanh),
        (torch.add, torch.sub),
        (1, True, 1.0, "1"),
        (0.0, -0.0),
    ]
    for group in groups:
        assert len(set(map(portable, group))) == len(group)


USES = """
import dataclasses, enum, functools, math, operator
import torch
from torch import nn
from torch.nn import functional as F


class Holds(nn.Module):
    def __init__(self, value, use):
        super().__init__()
        self.lin, self.value, self.use = nn.Linear(4, 4), value, use

    def forward(self, x):
        return self.use(self.value, self.lin(x))


class Color(enum.Enum):
    RED, BLUE = 1, 2


@dataclasses.dataclass
class Data:
    scale: float


class Scales:
    def __init__(self, by): self.by = by
    def __call__(self, x): return x * self.by
    def method(self, x): return x + self.by


class Doubles(Scales):
    def __call__(self, x): return x * self.by * 2


def times(k):
    def inner(x): return x * k
    return inner


def nested(k):
    return lambda x: times(k)(x) + 1


def calls(value, x): return value(x)
def scales(value, x): return x * value
def first(value, x): return x * value[0]
def every(value, x): return x * sum(value)
def named(value, x): return x * value["a"]
def has_two(value, x): return x.sin() if 2 in value else x.cos()
def pools(value, x): return value(x[:, None, :, None].expand(-1, 1, 4, 4), (2, 2)).flatten(1)
def two(value, x): return value(x, x + 1)
def is_red(value, x): return x.sin() if value is Color.RED else x.cos()
def scale_of(value, x): return x * value.scale
def to(value, x): return x.to(value).sin().to(x.dtype)
def cuts(value, x): return x[:, value].sin()
def is_none(value, x): return x.sin() if value is None else x.cos()
def is_int(value, x): return x * value if isinstance(value, int) else x * value + 1
def kind(value, x): return x.sin() if type(value) is Scales else x.cos()
def length(value, x): return x * len(value)
def shared(value, x): return value[1](value[0](x).sin())


def layers(same):
    one = nn.Linear(4, 4)
    return nn.ModuleList([one, one if same else nn.Linear(4, 4)])


def leaky(slope): return functools.partial(F.leaky_relu, negative_slope=slope)
def with_two(function): return functools.partial(function, other=2)
def rows(*layers): return nn.Sequential(*layers)


def made(text):
    scope = {}
    exec(f"def made(x): return {text}", scope)
    return scope["made"]


PAIRS = {
    "number": (scales, lambda: 2.0, lambda: 3.0),
    "int or float": (is_int, lambda: 2, lambda: 2.0),
    "bool or int": (scales, lambda: True, lambda: 1),
    "None or not": (is_none, lambda: None, lambda: 1),
    "first of a list": (first, lambda: [2, 1], lambda: [3, 1]),
    "all of a list": (every, lambda: [2, 1, 3], lambda: [2, 2, 3]),
    "length": (length, lambda: [1, 2], lambda: [1, 2, 3]),
    "member of a set": (has_two, lambda: {1, 2}, lambda: {1, 3}),
    "member of a frozenset": (has_two, lambda: frozenset({1, 2}), lambda: frozenset({1, 3})),
    "key of a dict": (has_two, lambda: {1: 0, 2: 0}, lambda: {1: 0, 3: 0}),
    "enum": (is_red, lambda: Color.RED, lambda: Color.BLUE),
    "dataclass": (scale_of, lambda: Data(2.0), lambda: Data(3.0)),
    "dtype": (to, lambda: torch.float64, lambda: torch.float16),
    "slice": (cuts, lambda: slice(0, 2), lambda: slice(1, 3)),
    "function of torch": (calls, lambda: torch.sin, lambda: torch.cos),
    "function of functional": (calls, lambda: F.relu, lambda: F.gelu),
    "pooling": (pools, lambda: F.max_pool2d, lambda: F.adaptive_max_pool2d),
    "operator": (two, lambda: operator.add, lambda: operator.mul),
    "own operator of the namespace": (calls, lambda: torch.ops.aten.sin, lambda: torch.ops.aten.cos),
    "partial": (calls, lambda: leaky(0.1), lambda: leaky(0.2)),
    "partial of another": (calls, lambda: with_two(torch.mul), lambda: with_two(torch.add)),
    "closure": (calls, lambda: times(2), lambda: times(3)),
    "closure in a closure": (calls, lambda: nested(2), lambda: nested(3)),
    "lambda": (calls, lambda: (lambda x: x.sin()), lambda: (lambda x: x.cos())),
    "code without a file": (calls, lambda: made("x * 1 + 23"), lambda: made("x * 12 + 3")),
    "object that is called": (calls, lambda: Scales(2), lambda: Scales(3)),
    "object of another class": (calls, lambda: Scales(2), lambda: Doubles(2)),
    "bound method": (calls, lambda: Scales(2).method, lambda: Scales(3).method),
    "class": (kind, lambda: Scales(2), lambda: Doubles(2)),
    "module": (calls, lambda: nn.ReLU(), lambda: nn.Tanh()),
    "module's setting": (calls, lambda: nn.LeakyReLU(0.1), lambda: nn.LeakyReLU(0.2)),
    "layers that are one": (shared, lambda: layers(True), lambda: layers(False)),
    "layers that are two": (shared, lambda: layers(False), lambda: layers(True)),
    "order of layers": (calls, lambda: rows(nn.Linear(4, 4), nn.ReLU()), lambda: rows(nn.ReLU(), nn.Linear(4, 4))),
    "tensor in a list": (first, lambda: [torch.ones(4)], lambda: [torch.ones(4, dtype=torch.float64)]),
    "names": (named, lambda: {"a": 2, "b": 1}, lambda: {"b": 1, "a": 2}),
}


def make(name, which):
    use, *values = PAIRS[name]
    return Holds(values[which](), use).eval()
"""
BUILD_PAIRS = """
import sizewise
from sizewise import Dim
from uses import PAIRS, make

for name in PAIRS:
    torch.manual_seed(0)
    dims = {"x": {0: Dim("batch", 1, 16)}}
    try:
        fast = sizewise.compile(make(name, 0), dynamic_shapes=dims, self_test=False).warmup(torch.randn(3, 4))
        fast.save(f"{name}.sizewise", proved=False)
        tell(name=name)
    except sizewise.SizewiseError as problem:
        tell(name=name, refused=f"{problem.code} {problem}")
"""


LIBRARY = """
from sizewise.traced.files import difference

saved = {"hypothesis": f"version {sys.argv[1]}"}
before = "hypothesis" in sys.modules
right, wrong = difference(saved), difference({"hypothesis": "version 0"})
tell(before=before, right=right, wrong=wrong, gone=difference({"nope": "version 1"}))
"""


@pytest.mark.slow
def test_a_library_that_a_forward_imports_is_looked_at(tmp_path: Path) -> None:
    (told,) = python(LIBRARY, hypothesis.__version__, folder=tmp_path)
    assert told["before"] is False and told["right"] is None
    assert told["wrong"] == ["hypothesis", "version 0", f"version {hypothesis.__version__}"]
    assert told["gone"][2].startswith("not there")


@pytest.mark.slow
def test_a_module_with_another_value_never_gets_the_programs_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    refused = {told["name"]: told["refused"] for told in python(BUILD_PAIRS, folder=tmp_path) if "refused" in told}
    names = [path.stem for path in tmp_path.glob("*.sizewise")]
    cases = [
        case(
            f"{name}, {which}",
            tmp_path,
            tmp_path / f"{name}.sizewise",
            f"import uses\nmodel = uses.make({name!r}, {which})",
        )
        for name in names
        for which in (0, 1)
    ]
    seen = served(cases, tmp_path)
    unloaded = {name: seen[f"{name}, 0"] for name in names if not seen[f"{name}, 0"].get("right")}
    taken = {name: seen[f"{name}, 1"] for name in names if seen[f"{name}, 1"].get("error") != "SW612"}
    assert unloaded == {}
    # Where the other value gives the same results, it may be taken.
    assert not [name for name, told in taken.items() if not told.get("right")], taken
    assert taken.keys() <= {"names", "bool or int"}
    assert refused.keys() == {"code without a file"} and "no name leads to" in refused["code without a file"]
