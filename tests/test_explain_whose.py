"""Explaining errors of other packages and of one's own code: words that an indexed package has too are no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sizewise.errors.record import pattern_of, slug_of
from sizewise.reference.explain import explain
from sizewise.reference.explain.paste import read
from sizewise.reference.explain.told import Frame
from sizewise.reference.explain.twins import MESSAGES, twin
from sizewise.reference.explain.whence import belongs, made, same_file
from sizewise.reference.store import Distribution, Site, Store, Stored

from .explain_support import template

ATTRIBUTE = "module '{self.__name__}' has no attribute '{name}'"
SPLIT = "array split does not result in an equal division"
DISPATCH = "Tried to dispatch on non-type: {typ}"
CHECKED = "The number of groups of this layer is too large: {groups}"
RECORDS = [
    # kind, class, template, path, function
    ("raise", "AttributeError", ATTRIBUTE, "torch/backends/native/__init__.py", "Native.__getattr__"),
    ("raise", "ValueError", SPLIT, "torch/_numpy/_funcs_impl.py", "array_split"),
    ("raise", "ValueError", "Unsupported dtype: {dtype}", "torch/ao/decomposed.py", "check"),
    ("raise", "TypeError", DISPATCH, "torch/fx/unification/dispatcher.py", "Dispatcher.add"),
    ("raise", "ValueError", "slice step cannot be zero", "torch/_dynamo/lists.py", "step"),
    ("raise", "ValueError", "{name}() arg is an empty sequence", "torch/_export/utils.py", "check"),
    ("raise", "KeyError", "popitem(): dictionary is empty", "torch/_dynamo/dicts.py", "popitem"),
    ("raise", "TypeError", 'can only concatenate {tp} (not "{other}") to {tp}', "torch/_dynamo/lists.py", "add"),
    ("raise", "ValueError", "{name} must be a non-negative integer", "torch/scoring.py", "check"),
    ("raise", "RuntimeError", "not implemented yet", "torch/_dynamo/decorators.py", "later"),
    ("raise", "ValueError", "invalid arguments", "torch/utils/fuzzer.py", "check"),
    ("check", "RuntimeError", CHECKED, "torch/nn/layer.py", "forward"),
    ("raise", "ValueError", "embed_dim must be divisible by num_heads of it", "torch/nn/attention.py", "init"),
    ("raise", "AssertionError", "embed_dim must be divisible by num_heads of it", "torch/models/vision.py", "init"),
    ("raise", "torch.errors.TooOld", "this {what} is too old for these", "torch/errors.py", "TooOld.check"),
]  # fmt: skip
TORCH, HEAD = "/env/lib/python3.12/site-packages/torch/", "Traceback (most recent call last):\n"


def record(number: int, row: Sequence[str], root: str = "/nowhere") -> Stored:
    kind, error_class, text, path, function = row
    origin = Distribution("torch", "1.0", root, "", None, "2026-01-01T00:00:00Z")
    site = Site(path, 10 + number, function, "")
    literals = sum(map(len, text.split()))
    return Stored(f"{number:016x}", kind, error_class, text, pattern_of(text), slug_of(text), literals, (site,), origin)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store(":memory:") as made_of:
        records = [record(number, row) for number, row in enumerate(RECORDS)]
        made_of.replace(records[0].distribution, records)
        yield made_of


def traceback(path: str, function: str, error: str, line: int = 7) -> str:
    start = f'{HEAD}  File "/home/me/app.py", line 3, in <module>\n    main()\n'
    return f'{start}  File "{path}", line {line}, in {function}\n    raise Oops(words)\n{error}\n'


# -- frames


@pytest.mark.parametrize(
    ("path", "function", "error", "expected", "kind"),
    [
        ("/e/site-packages/numpy/__init__.py", "__getattr__",
         "AttributeError: module 'numpy' has no attribute 'bool8'", None, "third-party"),
        ("/home/me/pkg/__init__.py", "__getattr__",
         "AttributeError: module 'pkg' has no attribute 'x'", None, "unknown"),
        (f"{TORCH}__init__.py", "__getattr__", "AttributeError: module 'torch.a' has no attribute 'x'", None, None),
        (f"{TORCH}backends/native/__init__.py", "__getattr__",
         "AttributeError: module 'a' has no attribute 'x'", ATTRIBUTE, None),
        ("/e/dist-packages/multipledispatch/dispatcher.py", "add",
         "TypeError: Tried to dispatch on non-type: 3", None, "third-party"),
        (f"{TORCH}other/dispatcher.py", "add", "TypeError: Tried to dispatch on non-type: 3", DISPATCH, None),
        ("C:\\env\\Lib\\site-packages\\torch\\fx\\unification\\dispatcher.py", "add",
         "TypeError: Tried to dispatch on non-type: 3", DISPATCH, None),
        ("/e/site-packages/other/_vendor/torch/fx/unification/dispatcher.py", "add",
         "TypeError: Tried to dispatch on non-type: 3", None, "third-party"),
        ("/src/pytorch/torch/fx/unification/dispatcher.py", "add",
         "TypeError: Tried to dispatch on non-type: 3", DISPATCH, None),
        ("/e/site-packages/numpy/lib/_shape_base_impl.py", "split", f"ValueError: {SPLIT}", None, "third-party"),
        ("/home/me/dt.py", "check", "ValueError: Unsupported dtype: float16", None, "unknown"),
        (f"{TORCH}ao/decomposed.py", "check", "ValueError: Unsupported dtype: float16", RECORDS[2][2], None),
        ("/home/me/e.py", "check", "torch.errors.TooOld: this device is too old for these", None, None),
    ],
)  # fmt: skip
def test_the_innermost_frame_decides(
    path: str, function: str, error: str, expected: str | None, kind: str | None, store: Store
) -> None:
    answer = explain(traceback(path, function, error), store)
    assert template(answer) == expected
    assert kind is None or answer.looks_like == kind


def test_a_check_is_known_by_the_frame_that_asked_for_it(store: Store) -> None:
    start = traceback(f"{TORCH}nn/layer.py", "forward", "", 21).rstrip("\n")
    text = f'{start}\n  File "{TORCH}__init__.py", line 9, in _check_with\n    raise error(text)\n'
    answer = explain(f"{text}RuntimeError: {CHECKED.format(groups=9)}", store)
    assert answer.match and answer.match.confidence > 0.9 and template(answer) == CHECKED


@pytest.mark.parametrize(
    ("path", "package", "inside"),
    [
        ("/e/site-packages/torch/a.py", "torch", True),
        ("/e/site-packages/../app.py", None, False),
        ("/e/site-packages/torch-1.0-py3.egg/torch/a.py", "torch", True),
        ("/e/site-packages/six.py", "six", False),
        ("torch/nn/layer.py", None, True),
        ("/home/me/torch/nn/x.py", None, True),
        ("/home/me/torch/train.py", None, False),
        ("/home/me/torch/env/lib/python3.12/asyncio/runners.py", None, False),
        ("<stdin>", None, False),
    ],
)
def test_whose_file_it_is(path: str, package: str | None, inside: bool, tmp_path: Path) -> None:
    (tmp_path / "torch" / "nn").mkdir(parents=True)
    (tmp_path / "torch" / "a.py").touch()
    frame = Frame(path, 1, "f")
    assert frame.package == package
    assert belongs(frame, record(0, RECORDS[11], str(tmp_path))) is inside


def test_a_moved_file_is_the_same_but_for_names_that_all_packages_have() -> None:
    one, two = Site("torch/a/__init__.py", 1, "f", ""), Site("torch/a/util.py", 1, "f", "")
    assert same_file(Frame(f"{TORCH}a/__init__.py", 1, "f"), one, "/nowhere")
    assert not same_file(Frame(f"{TORCH}b/__init__.py", 1, "f"), one, "/nowhere")
    assert same_file(Frame(f"{TORCH}b/util.py", 1, "f"), two, "/nowhere")
    assert not same_file(Frame("/e/site-packages/b/util.py", 1, "f"), two, "/nowhere")


def test_code_that_was_made_is_nobodys() -> None:
    paths = ["<eval_with_key>.3", "/tmp/torchinductor_me/ab/cab.py", "<stdin>", "<frozen runpy>", "/home/me/a.py"]
    assert [made(Frame(path, 1, "f")) for path in paths] == [True, True, False, False, False]


# -- messages alone


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: slice step cannot be zero", "interpreter"),
        ("ValueError: min() arg is an empty sequence", "interpreter"),
        ("KeyError: 'popitem(): dictionary is empty'", "interpreter"),
        ('TypeError: can only concatenate list (not "int") to list', "interpreter"),
        ("ValueError: n must be a non-negative integer", "interpreter"),
        (f"ValueError: {SPLIT}", "third-party"),
        ("ValueError: Unsupported dtype: float16", "unknown"),
        ("not implemented", "no-error"),
        ("invalid argument", "no-error"),
        ("Not implemented yet", "no-error"),
    ],
)
def test_what_others_say_too_is_no_answer(text: str, kind: str, store: Store) -> None:
    answer = explain(text, store)
    assert (answer.match, answer.looks_like) == (None, kind)


def test_a_class_of_the_packages_own_needs_fewer_words(store: Store) -> None:
    text = "this device is too old for these"
    assert template(explain(f"torch.errors.TooOld: {text}", store)) == RECORDS[14][2]
    assert explain(f"ValueError: {text}", store).match is None


def test_two_parts_that_say_the_same_are_alternatives(store: Store) -> None:
    said = "embed_dim must be divisible by num_heads of it"
    answer = explain(said, store)
    assert answer.match is None
    assert {one.site.path for one in answer.alternatives} == {"torch/nn/attention.py", "torch/models/vision.py"}


@pytest.mark.parametrize(
    ("text", "own", "whose"),
    [
        ("slice step cannot be zero", 0, "python"),
        ("slice step cannot be zero.", 0, "python"),
        ("type 'bool' is not an acceptable base type", 0, "python"),
        ("need at least one array to concatenate", 0, "numpy"),
        ("vr must not be None for symbol q3", 25, None),
        ("nobody has ever said this", 0, None),
        ("", 0, None),
    ],
)
def test_twins(text: str, own: int, whose: str | None) -> None:
    assert twin(text, own) == whose


def test_the_lists_of_messages_are_in_order() -> None:
    for name in ("python", "numpy"):
        first, *lines = (MESSAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert first.startswith("# ") and lines == sorted(set(lines)) and len(lines) > 1000


# -- frames that cannot be read


def test_frames_that_are_not_read_leave_a_message_without_an_answer(store: Store) -> None:
    error = f"RuntimeError: {CHECKED.format(groups=9)}"
    strange = f'12%File "/home/me/a.py", line 3\n%%    x\n{error}'
    assert template(explain(error, store)) == CHECKED
    assert explain(strange, store).match is None and all(one.unread for one in read(strange).told)
