"""Explaining pasted errors: what is an answer, and what is none."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sizewise.errors.record import slug_of
from sizewise.errors.registry import errors_by_code
from sizewise.reference.explain import explain, named
from sizewise.reference.store import Store

from .explain_support import LOGGED, LORA, MEMORY, NO_ADAPTER, RECORDS, STATES, VLLM_FRAME, fill, template


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with fill(Store(":memory:")) as made:
        yield made


# -- answers


def test_the_record_of_a_traceback(store: Store) -> None:
    text = f"{LOGGED}{VLLM_FRAME}\n{LOGGED}    raise ValueError(\n{LOGGED}{NO_ADAPTER}"
    answer = explain(text, store)
    assert answer.match and template(answer) == LORA and answer.match.confidence > 0.9
    assert answer.match.site.qualname == "Manager._load_adapter" and answer.match.site.condition == "path is None"
    assert [reason.split(":")[0] for reason in answer.match.why] == ["pattern", "class", "frame"]
    assert answer.looks_like is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NO_ADAPTER, LORA),
        (NO_ADAPTER.removeprefix("ValueError: "), LORA),
        (f"{NO_ADAPTER}. Check the path.", LORA),
        ("ValueError: expected to be in states [1, 2] but current state is IDLE", STATES),
        ("torch._inductor.exc.InductorError: AssertionError: vr must not be None for symbol q3", RECORDS[7][2]),
        ("torch._dynamo.exc.Unsupported: Data-dependent branching", RECORDS[9][2]),
        ("INFO 02-01 10:00:00 selector.py:144] Cannot use FlashAttention-2 backend for head size 72.", RECORDS[12][2]),
        (
            "/e/torch/lr.py:1: UserWarning: Detected call of `step()` before `optimizer.step()`.\n  warnings.warn(",
            RECORDS[13][2],
        ),
        (
            '  File "/x/vllm/e.py", line 7, in _run_workers\n    assert output == other_output\nAssertionError',
            RECORDS[8][2],
        ),
        (
            '  File "/x/torch/fake_tensor.py", line 3, in data_dep\n    raise DataDependentOutputException(func)\n'
            "torch.fake.DataDependentOutputException: aten.equal.default",
            "{func}",
        ),
        (
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored "
            "in KV cache (3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine.",
            MEMORY,
        ),
        ("'M' object has no attribute 'fc'", None),
        ("AttributeError: 'M' object has no attribute 'fc'", None),
        (
            '  File "/x/torch/nn/module.py", line 7, in __getattr__\n    raise AttributeError(\n'
            "AttributeError: 'M' object has no attribute 'fc'",
            RECORDS[6][2],
        ),
        ("RuntimeError: mat1 and mat2 must have the same dtype", None),
        ("ValueError: This model does not support images", None),
        ("KeyError: vr must not be None for symbol 3", None),
        ('  File "/x/vllm/x.py", line 7, in check\n    raise ValueError(\nValueError: nothing like it', None),
        ('  File "/x/site-packages/peft/m.py", line 1, in f\n    raise ValueError(\n' + NO_ADAPTER, None),
        ("", None),
    ],
)
def test_answers(text: str, expected: str | None, store: Store) -> None:
    assert template(explain(text, store)) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: mat1 and mat2 must have the same dtype", "cpp"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "cpp"),
        ("RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0", "cpp"),
        ("terminate called after throwing an instance of 'c10::Error'\n  what():  bad", "cpp"),
        ('  File "/app/m.py", line 1, in f\n    return x @ w\nRuntimeError: odd sizes', "cpp"),
        ("ValueError: too many values to unpack (expected 2)", "interpreter"),
        ("AttributeError: 'NoneType' object has no attribute 'x'", "interpreter"),
        ("KeyError: 'model.weight'", "interpreter"),
        ("triton.runtime.errors.OutOfResources: out of resource", "third-party"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "third-party"),
        ("ValueError: unheard of in any source", "unknown"),
        ("all is well", "no-error"),
        ("INFO 02-01 10:00:00 a.py:1] Loading weights took 3 s", "no-error"),
        ("", "no-error"),
        ("\x00\xff\x07" * 100, "no-error"),
    ],
)
def test_what_no_match_looks_like(text: str, kind: str, store: Store) -> None:
    answer = explain(text, store)
    assert (answer.match, answer.looks_like) == (None, kind)


def test_the_cause_and_not_what_points_to_it(store: Store) -> None:
    text = f"{LOGGED}{NO_ADAPTER}\n(APIServer pid=2) RuntimeError: Engine core failed to start. See root cause above."
    answer = explain(text, store)
    assert template(answer) == LORA
    assert [one.record.errorClass for one in answer.alternatives][:1] == ["RuntimeError"]


@pytest.mark.parametrize("with_index", [True, False])
def test_own_errors_are_known_by_their_code(with_index: bool, store: Store) -> None:
    error_class = errors_by_code()["SW401"]
    error = error_class(**dict.fromkeys(error_class.field_names(), 9))
    for text in (f"sizewise.errors.call.SizeOutOfRange: {error}", "[SW401]", "sizewise.errors.call.SizeOutOfRange: x"):
        answer = explain(text, store if with_index else None)
        assert answer.match and answer.match.record.errorCode == "SW401" and answer.match.site.qualname
        assert answer.indexed is with_index
    assert explain("[SW401]", None, own=False).match is None


def test_json_has_the_three_keys(store: Store) -> None:
    answer = json.loads(json.dumps(explain(NO_ADAPTER, store).to_json()))
    assert set(answer) == {"match", "alternatives", "looksLike", "advice", "seen"}
    assert {"record", "confidence", "why"} <= set(answer["match"])
    assert answer["match"]["record"]["errorMessage"] == LORA and answer["looksLike"] is None
    nothing = explain("nothing", store).to_json()
    assert nothing == {"match": None, "alternatives": [], "looksLike": "no-error", "advice": None, "seen": None}


@pytest.mark.parametrize("name", ["SW401", "sw-401", "sw401"])
def test_names_of_own_errors(name: str) -> None:
    (match,) = named(name, None)
    assert match.record.errorCode == "SW401"
    assert "SW401" in [one.record.errorCode for one in named("SizeOutOfRange", None)]
    assert [one.record.id for one in named(match.record.id, None)] == [match.record.id]
    assert [one.record.id for one in named(match.record.slug, None)] == [match.record.id]


def test_names_of_indexed_errors(store: Store) -> None:
    assert [one.record.errorMessage for one in named(f"{1:016x}", store)] == [LORA]
    assert [one.record.errorMessage for one in named(slug_of(LORA), store)] == [LORA]
    assert named("82c172d787b6e198", None)[0].record.errorCode == "SW601"
    assert named("SW999", store) == named("0" * 16, None) == named("no-such-slug", store) == []
