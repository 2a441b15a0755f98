"""The capture gate, and the code of the user's document about it, run as it is written there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sizewise import monitor
from sizewise.errors import capture as errors

WORDING = "CUDA graph capturing detected at an inappropriate time. This operation is currently disabled."
RECORD = json.loads((Path(__file__).parent / "seeds/002_a02f24e17699f4b2.txt").read_text())["record"]


@pytest.fixture(autouse=True)
def open_gate() -> Iterator[None]:
    monitor.set_cudagraph_capturing_enabled(True)
    yield
    monitor.set_cudagraph_capturing_enabled(True)


def run_document(code: str, **names: Any) -> dict[str, Any]:
    """Execute a record's code; only the package's name is replaced."""
    namespace = dict(names)
    exec(code.replace("vllm.compilation.monitor", "sizewise.monitor"), namespace)
    return namespace


def test_open_at_first() -> None:
    code = "from sizewise import monitor; monitor.validate_cudagraph_capturing_enabled()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_closed_gate_raises_vllm_s_message() -> None:
    monitor.set_cudagraph_capturing_enabled(False)
    with pytest.raises(RuntimeError) as caught:
        monitor.validate_cudagraph_capturing_enabled()
    assert str(caught.value).startswith(WORDING)
    assert RECORD["errorMessage"] == WORDING
    assert isinstance(caught.value, errors.CapturingDisabled)
    assert "[SW601]" in str(caught.value)
    monitor.set_cudagraph_capturing_enabled(True)
    monitor.validate_cudagraph_capturing_enabled()


def test_validation_code_of_the_document_is_never_stale() -> None:
    safe_to_capture = run_document(RECORD["validationCode"])["safe_to_capture"]
    assert safe_to_capture()
    monitor.set_cudagraph_capturing_enabled(False)
    assert not safe_to_capture()
    monitor.set_cudagraph_capturing_enabled(True)
    assert safe_to_capture()


@pytest.mark.parametrize(("is_open", "taken"), [(True, ["capture"]), (False, ["eager"])])
def test_try_catch_pattern_of_the_document(is_open: bool, taken: list[str]) -> None:
    seen: list[str] = []

    def graph(g: object) -> Any:
        seen.append("capture")
        return nullcontext()

    monitor.set_cudagraph_capturing_enabled(is_open)
    run_document(
        RECORD["tryCatchPattern"],
        torch=SimpleNamespace(cuda=SimpleNamespace(graph=graph)),
        g=object(),
        fall_back_to_eager=lambda: seen.append("eager"),
    )
    assert seen == taken


def test_try_catch_pattern_lets_other_errors_through() -> None:
    def graph(g: object) -> Any:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        run_document(
            RECORD["tryCatchPattern"],
            torch=SimpleNamespace(cuda=SimpleNamespace(graph=graph)),
            g=object(),
            fall_back_to_eager=pytest.fail,
        )


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_block_restores_the_former_value(before: bool, inside: bool) -> None:
    monitor.set_cudagraph_capturing_enabled(before)
    with monitor.cudagraph_capturing(inside):
        assert bool(monitor.cudagraph_capturing_enabled) is inside
    assert bool(monitor.cudagraph_capturing_enabled) is before


def test_block_restores_on_an_exception_and_when_set_inside() -> None:
    monitor.set_cudagraph_capturing_enabled(False)
    with pytest.raises(KeyError), monitor.cudagraph_capturing(True):
        monitor.set_cudagraph_capturing_enabled(False)
        monitor.set_cudagraph_capturing_enabled(True)
        raise KeyError("x")
    assert not monitor.cudagraph_capturing_enabled


def test_blocks_nest() -> None:
    with monitor.cudagraph_capturing(False):
        with monitor.cudagraph_capturing(True):
            monitor.validate_cudagraph_capturing_enabled()
        assert not monitor.cudagraph_capturing_enabled
    assert monitor.cudagraph_capturing_enabled


def test_blocks_that_overlap_leave_no_stale_value() -> None:
    monitor.set_cudagraph_capturing_enabled(False)
    first, second = monitor.cudagraph_capturing(True), monitor.cudagraph_capturing(True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert monitor.cudagraph_capturing_enabled  # the second block is still open
    second.__exit__(None, None, None)
    assert not monitor.cudagraph_capturing_enabled


def test_one_gate_for_all_threads() -> None:
    seen: list[bool] = []
    monitor.set_cudagraph_capturing_enabled(False)
    reader = threading.Thread(target=lambda: seen.append(bool(monitor.cudagraph_capturing_enabled)))
    reader.start()
    reader.join()
    assert seen == [False]


def test_many_threads_leave_the_gate_as_it_was() -> None:
    def enter_and_leave() -> None:
        for turn in range(200):
            with monitor.cudagraph_capturing(turn % 2 == 0):
                pass

    monitor.set_cudagraph_capturing_enabled(False)
    threads = [threading.Thread(target=enter_and_leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not monitor.cudagraph_capturing_enabled


def test_gate_can_be_called_and_says_what_it_is() -> None:
    gate = monitor.cudagraph_capturing_enabled
    assert gate() is True
    assert "open" in repr(gate)
    monitor.set_cudagraph_capturing_enabled(False)
    assert gate() is False
    assert "closed" in repr(gate)


@pytest.mark.parametrize("value", [1, 0, "False", None])
def test_only_a_bool_moves_the_gate(value: Any) -> None:
    with pytest.raises(errors.CapturingFlagNotBool, match="SW603"):
        monitor.set_cudagraph_capturing_enabled(value)
    with pytest.raises(TypeError), monitor.cudagraph_capturing(value):
        pass
    assert monitor.cudagraph_capturing_enabled
