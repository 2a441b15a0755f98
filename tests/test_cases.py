"""Small inputs for causes that people reported publicly (tests/cases): equal to eager, or a named error.

Each file says which is right. Two ways of using Sizewise are tried: everything outside of what was built
runs the original (`lenient`), and everything outside raises (`strict`).
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import sizewise
from sizewise import Dim

from .cases import run_cases

MODULES = Path(__file__).parent / "cases" / "modules"
CASES = sorted(MODULES.glob("*.py"))


def use(module: nn.Module, dynamic: Any, case: ModuleType, **options: Any) -> Any:
    """The module, compiled and warmed up with the kinds of calls the case makes."""
    spec = {path: {axis: Dim(*dim) for axis, dim in axes.items()} for path, axes in dynamic.items()}
    splitting = getattr(case, "SPLIT_OPS", None)
    if splitting:
        options["splitting_ops"] = splitting
    fast = sizewise.compile(module, dynamic_shapes=spec, **options)
    before = torch.get_rng_state()
    _, calls, _ = case.make()
    torch.set_rng_state(before)
    good = [call for i, call in enumerate(calls) if i not in getattr(case, "EAGER_RAISES", [])]
    return fast.warmup_many([(call.get("args", ()), call.get("kwargs", {})) for call in good])


@pytest.fixture(autouse=True)
def _autograd_mode() -> Any:
    """The cases set what they need themselves."""
    with torch.enable_grad():
        yield


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_case_is_as_its_file_says(path: Path, backend: str) -> None:
    case = run_cases.load(str(path))
    reference = run_cases.record(case, lambda module, dynamic, case: module)

    captures = {"cudagraph_mode": "FULL", "allow_partial": True} if backend == "inductor" else {}
    if captures and hasattr(case, "CAPTURE"):
        captures["cudagraph_capture_sizes"] = case.CAPTURE

    def lenient(module: nn.Module, dynamic: Any, case: ModuleType) -> Any:
        return use(module, dynamic, case, backend=backend, on_outside="eager", on_stale="eager", **captures)

    seen = run_cases.record(case, lenient)
    passed, summary = run_cases.verdict(case, reference, seen, run_cases.compare(case, reference, seen))
    assert passed, summary


STATEFUL_AFTER_REFUSAL = {"33_hook_added_later", "35_arguments_overlap_later", "37_dropout_left_in_train"}
"""Cases whose later state depends on calls that `strict` refuses; only the calls themselves are compared."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_strict_module_is_equal_or_raises_a_named_error(path: Path) -> None:
    case = run_cases.load(str(path))
    reference = run_cases.record(case, lambda module, dynamic, case: module)
    seen = run_cases.record(case, lambda module, dynamic, case: use(module, dynamic, case, backend="eager"))
    for index, line in enumerate(run_cases.compare(case, reference, seen)):
        if path.stem in STATEFUL_AFTER_REFUSAL and not line.startswith("call"):
            continue
        assert "WRONG" not in line, line
        if "RAISES" in line:
            assert seen["per"][min(index, len(seen["per"]) - 1)][2], f"an error without a code: {line}"


CONFIG_CASE = run_cases.load(str(MODULES / "29_config_contradictions.py"))


@pytest.mark.parametrize(("settings", "outcome", "what"), CONFIG_CASE.CONFIGS, ids=lambda value: str(value)[:40])
def test_a_row_of_the_configuration_case(settings: dict[str, Any], outcome: str, what: str) -> None:
    captures = {
        "cudagraph_capture_sizes": settings.get("capture_sizes"),
        "max_cudagraph_capture_size": settings.get("capture_max"),
    }
    options = {name: value for name, value in captures.items() if value is not None}
    module, calls, _ = CONFIG_CASE.make()
    if outcome == "ok":
        dims = {"x": {0: Dim("n", 1, 13)}}
        fast = sizewise.compile(module, dynamic_shapes=dims, backend="eager", **options).warmup(*calls[0]["args"])
        captured = [size["sizes"]["n"] for size in fast.report().captures if size["outcome"] == "captured"]
        wanted = settings.get("capture_sizes") or [1, 2, 4, 8, 13]
        assert captured == sorted(set(wanted)) and fast.counters.captures == len(captured)
        for call in calls:
            with torch.no_grad():
                torch.testing.assert_close(fast(*call["args"]), module(*call["args"]))
        assert fast.counters.calls_capture == sum(call["args"][0].shape[0] <= captured[-1] for call in calls)
        return
    with pytest.raises(sizewise.SizewiseError) as seen:
        dims = {settings.get("arg", "x"): {settings.get("index", 0): Dim(*settings.get("dim", ("n", 1, 13)))}}
        sizewise.compile(module, dynamic_shapes=dims, backend="eager", **options).warmup(*calls[0]["args"])
    assert seen.value.code
