"""What an explanation says of the text itself: its message, the reader's line, the other errors, the right place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from sizewise.cli.explain_shown import NOBODY, pieces_of
from sizewise.reference.conditions import says_something
from sizewise.reference.explain import Answer, explain
from sizewise.reference.explain.paste import read
from sizewise.reference.explain.seen import errors_of, filled, seen_of
from sizewise.reference.explain.told import Frame
from sizewise.reference.store import Site, Store, Stored

from .explain_support import LORA, NO_ADAPTER, RECORDS, VLLM_FRAME, fill, stored

BROKEN = """Traceback (most recent call last):
  File "/home/me/dyn.py", line 8, in <module>
    f(torch.randn(4))
  File "/env/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 1177, in compile_wrapper
    raise e.with_traceback(
torch._dynamo.exc.Unsupported: Data-dependent branching
  Explanation: it depends on data
  Hint: Use `torch.cond` to express dynamic control flow.

 For more details about this graph break, please visit: https://meta-pytorch.github.io/x/gb/gb0170.html

from user code:
   File "/home/me/dyn.py", line 5, in f
    if y.sum() > 0:
       ^^^^^^^^^^^^

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""
WORKER = """Traceback (most recent call last):
  File "/home/me/dl.py", line 5, in <module>
    for batch in DataLoader(data, num_workers=1):
  File "/env/lib/python3.11/site-packages/torch/_utils.py", line 794, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/collate.py", line 275, in collate_tensor_fn
    return torch.stack(batch, 0, out=out)
RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1
"""
SPAWNED = """torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "/home/me/spawn.py", line 3, in work
    torch.zeros(2) + torch.zeros(3)
RuntimeError: The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0
"""
CHAIN = """Traceback (most recent call last):
  File "/home/me/chain.py", line 4, in load
    return x.view(7)
RuntimeError: shape '[7]' is invalid for input of size 6

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/me/chain.py", line 6, in load
    raise ValueError("my own words") from e
ValueError: my own words about a bad record
"""


def filled_store(*more: Stored) -> Store:
    made = fill(Store(":memory:"))
    if more:
        records = [one for one in made.all() if one.distribution.name == more[0].distribution.name]
        made.replace(more[0].distribution, [*records, *more])
    return made


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with filled_store() as made:
        yield made


def shown(answer: Answer) -> str:
    return "\n".join(text for text, _ in pieces_of(answer))


# -- the message and the reader's line


def test_the_texts_own_message_line_and_link_are_shown(store: Store) -> None:
    answer = explain(BROKEN, store)
    assert answer.match and answer.match.record.errorMessage == RECORDS[9][2]
    text = shown(answer)
    assert "Hint: Use `torch.cond` to express dynamic control flow." in text
    assert "Your line:  /home/me/dyn.py:5, in f\n            if y.sum() > 0:" in text
    assert "Link:       https://meta-pytorch.github.io/x/gb/gb0170.html" in text
    data = answer.to_json()["seen"]
    assert data["frame"] == {
        "filePath": "/home/me/dyn.py", "lineNumber": 5, "qualname": "f", "source": "if y.sum() > 0:",
    }  # fmt: skip
    assert data["errors"] == data["number"] == 1 and data["others"] == []


def test_what_filled_the_holes_is_shown(store: Store) -> None:
    answer = explain(NO_ADAPTER, store)
    assert answer.seen and answer.seen.filled == (("name", "adapter"), ("path", "/data/checkpoint-57"))
    assert "{path} is /data/checkpoint-57" in shown(answer) and NO_ADAPTER.partition(": ")[2] in shown(answer)


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        ("{a} does not support {b}", "This does not support x and does not support y", []),
        ("got {a}{b} and", "got xy and", []),
        ("{a} and {b}", "x and y", [("a", "x"), ("b", "y")]),
        ("size {n}, expected {m}.", "more: size 3, expected 4. Extra", [("n", "3"), ("m", "4")]),
        ("{{x}} is {y!r}", "{x} is 'q'", [("y", "'q'")]),
        ("a {x} b", "a  b", []),
        ("no holes", "no holes", []),
        ("{...} is bad", "x is bad", []),
        ("other {x}", "text", []),
    ],
)
def test_holes_without_doubt(template: str, text: str, expected: Sequence[tuple[str, str]]) -> None:
    assert list(filled(template, text)) == expected


def test_an_open_end_of_several_lines_is_not_guessed() -> None:
    (told,) = read("ValueError: bad path: /data\n  look at the docs").told
    seen = seen_of(read("ValueError: bad path: /data\n  look at the docs"), told, "bad path: {path}\n  look {where}")
    assert seen and ("path", "/data") in seen.filled and "where" not in dict(seen.filled)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/home/me/train.py", True),
        ("C:\\me\\train.py", True),
        ("<ipython-input-3-1>", True),
        ("/env/lib/python3.12/site-packages/x/y.py", False),
        ("/usr/lib/python3/dist-packages/x/y.py", False),
        ("/usr/lib/python3.12/threading.py", False),
        ("C:\\Python312\\Lib\\threading.py", False),
        ("/src/vllm/vllm/engine.py", False),
        ("/tmp/torchinductor_me/ab/cab.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/env/bin/torchrun", False),
    ],
)
def test_whose_a_frame_is(path: str, own: bool) -> None:
    assert Frame(path, 1, "f").own is own


# -- several errors


def test_an_error_that_was_carried_from_a_worker_is_the_one(store: Store) -> None:
    for text in (WORKER, SPAWNED):
        answer = explain(text, store)
        assert (answer.match, answer.looks_like) == (None, "cpp")
        assert answer.seen and answer.seen.error_class == "RuntimeError" and answer.seen.total == 1
        assert answer.advice is not None
    # The worker's frames are torch's alone: the caller's line is shown.
    seen = explain(WORKER, store).seen
    assert seen and seen.frame and (seen.frame.path, seen.frame.line) == ("/home/me/dl.py", 5)


def test_a_wrapper_without_what_it_carries_is_still_an_error() -> None:
    (told,) = read(WORKER.partition("Original")[0]).told
    assert told.relation == "alone" and told.message.startswith("Caught")


def test_cpp_of_a_cause_is_said_of_the_cause(store: Store) -> None:
    answer = explain(CHAIN, store)
    text = shown(answer)
    assert answer.looks_like == "cpp" and answer.seen and (answer.seen.number, answer.seen.total) == (1, 2)
    assert "That is said of RuntimeError: shape '[7]' is invalid for input of size 6, and not of" in text
    assert "2 errors in this text; this is about number 1." in text and "ValueError: my own words" in text


def test_other_errors_of_a_log_are_counted_and_listed(store: Store) -> None:
    before = "ValueError: first of all\n\nKeyError: 'x'\n\nKeyError: 'x'\n\n"
    text = f"{before}{VLLM_FRAME}\n    raise ValueError(\n{NO_ADAPTER}"
    answer = explain(text, store)
    assert answer.match and answer.match.record.errorMessage == LORA
    assert answer.seen and answer.seen.total == len(errors_of(read(text))) == 3
    assert "3 errors in this text; this is about the last one." in shown(answer)
    assert "ValueError: first of all\n  KeyError: 'x'" in shown(answer)
    assert "errors in this text" not in shown(explain(NO_ADAPTER, store))


# -- places


def several(*conditions: str) -> Stored:
    one = stored(50, ("raise", "ValueError", "the frobnicator of {x} is bent", "vllm/a.py", "f", ""))
    sites = tuple(Site(f"vllm/m{n}.py", 10 * n, f"f{n}", text) for n, text in enumerate(conditions, 1))
    return replace(one, sites=sites)


def test_of_several_places_none_is_claimed() -> None:
    with filled_store(several("first > 1", "not ok", "third > 3", "", "fifth > 5")) as made:
        answer = explain("ValueError: the frobnicator of a is bent", made)
        text = shown(answer)
        assert "Raised at:  one of 5 places:" in text and "  vllm/m1.py:10, in f1, when first > 1" in text
        assert "\nWhen:" not in text and "vllm/m4.py" in text and "and 1 more" in text and "fifth" not in text
        assert "not ok" not in text
        data = answer.to_json()["match"]
        assert data["siteIsKnown"] is False and data["siteCount"] == len(data["sites"]) == 5


def test_the_place_that_the_frames_name_is_shown() -> None:
    frame = '  File "/env/lib/python3.12/site-packages/vllm/m3.py", line 30, in f3\n    raise ValueError(\n'
    with filled_store(several("first > 1", "second > 2", "third > 3")) as made:
        answer = explain(f"{frame}ValueError: the frobnicator of a is bent", made)
        text = shown(answer)
        assert "Raised at:  vllm/m3.py:30, in f3 (of 3 places the one that your text names)" in text
        assert "When:       third > 3" in text and "first" not in text
        assert answer.match and answer.to_json()["match"]["siteIsKnown"] is True


@pytest.mark.parametrize(
    ("condition", "tells"),
    [
        ("", False), ("ok", False), ("not ok", False), ("not (ok)", False), ("x > 3", True), ("not self.closed", True),
        ("not cudagraph_capturing_enabled", True), ("isinstance(x, str)", True),
    ],
)  # fmt: skip
def test_conditions_that_say_something(condition: str, tells: bool) -> None:
    assert says_something(condition) is tells


def test_a_bare_record_is_said_to_be_bare(store: Store) -> None:
    assert NOBODY in shown(explain(NO_ADAPTER, store)) and NOBODY not in shown(explain("[SW401]", store))
