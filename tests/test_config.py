"""Settings: every refusal by name, sizes, resolution, presets and environment variables."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import sizewise.config
from sizewise.config import (
    CompilationConfig,
    CompilationMode,
    CUDAGraphMode,
    DynamicShapesConfig,
    PassConfig,
    env,
    vllm,
)
from sizewise.config.base import Settings
from sizewise.config.presets import PRESETS, preset
from sizewise.config.resolve import NOT_YET, Change, Context, Fill, resolve
from sizewise.config.sizes import compile_ranges, default_capture_sizes
from sizewise.errors import ConfigError, SizewiseError
from sizewise.errors import config as errors

SEEDS = Path(__file__).parent / "seeds"
WORD = "cudagraph_capture_sizes"


def refused(kind: type[SizewiseError], **settings: Any) -> str:
    """The message with which these settings are refused."""
    with pytest.raises(kind) as caught:
        CompilationConfig(**settings)
    assert type(caught.value) is kind
    assert isinstance(caught.value, ConfigError)
    assert f"[{kind.code}]" in str(caught.value)
    return str(caught.value)


# -- the errors of vLLM, in vLLM's words


def test_backend_of_the_document() -> None:
    page = (SEEDS / "004_c26b022b1040c884.txt").read_text()
    wording = "Invalid backend for piecewise compilation: "
    assert wording + "{self.backend}" in page
    message = refused(errors.InvalidPiecewiseBackend, backend="tensorrt")
    assert message.startswith(wording + "tensorrt")
    assert issubclass(errors.InvalidPiecewiseBackend, ValueError)
    refused(errors.InvalidPiecewiseBackend, backend="Inductor", mode="VLLM_COMPILE")


@pytest.mark.parametrize("backend", ["", "eager", "inductor"])
def test_backends_of_piecewise_mode(backend: str) -> None:
    assert CompilationConfig(backend=backend).backend == backend


def test_backend_is_free_in_other_modes() -> None:
    assert CompilationConfig(backend="cudagraphs", mode=1).backend == "cudagraphs"


@pytest.mark.parametrize("op", ["rms_norm", "", "+", "-", "ALL", "*x"])
def test_custom_op_syntax(op: str) -> None:
    message = refused(errors.CustomOpSyntax, custom_ops=["none", op])
    assert message.startswith(
        f"Invalid syntax '{op}' for custom op, must be 'all', 'none', '+op' or '-op' "
        "(where 'op' is the registered op name)"
    )


def test_custom_op_base_modes_and_conflict() -> None:
    message = refused(errors.CustomOpBaseModes, custom_ops=["all", "none"])
    assert message.startswith("custom_ops can contain only one base mode: 'all' or 'none'")
    message = refused(errors.CustomOpConflict, custom_ops=["+b", "+a", "-a", "-b", "none"])
    assert message.startswith(
        "custom_ops cannot both enable and disable the same operation(s): a, b. Remove either the '+' or '-' directive"
    )
    assert CompilationConfig(custom_ops=["none", "+a", "-b"]).custom_ops == ["none", "+a", "-b"]


ITEMS, FRAMES = "encoder_cudagraph_max_vision_items_per_batch", "encoder_cudagraph_max_frames_per_batch"


@pytest.mark.parametrize(
    ("kind", "field", "wording"),
    [
        (errors.EncoderVisionItemsNegative, ITEMS, f"{ITEMS} must be non-negative (0 = auto-infer)"),
        (errors.EncoderFramesNegative, FRAMES, f"{FRAMES} must be non-negative (None = auto-infer)"),
    ],
)
def test_encoder_limits_of_the_document(kind: type[SizewiseError], field: str, wording: str) -> None:
    page = " ".join((SEEDS / "004_c26b022b1040c884.txt").read_text().replace('"', "").split())
    if field == ITEMS:  # the page ends before the second message
        assert wording in page
    assert refused(kind, cudagraph_mm_encoder=True, **{field: -1}).startswith(wording)
    assert getattr(CompilationConfig(**{field: -1}), field) == -1
    with pytest.raises(errors.NotAvailableYet, match="no encoder graphs yet"):
        CompilationConfig(**{field: -1}).resolve()


def test_encoder_budgets() -> None:
    message = refused(errors.EncoderBudgetsNotPositive, encoder_cudagraph_token_budgets=[8, 0])
    assert message.startswith("All encoder_cudagraph_token_budgets must be positive, got [8, 0]")


def test_valid_encoder_settings_are_not_available_yet() -> None:
    settings = {ITEMS: 2, FRAMES: 0, "encoder_cudagraph_token_budgets": [8]}
    message = refused(errors.NotAvailableYet, cudagraph_mm_encoder=True, **settings)
    assert message.startswith("cudagraph_mm_encoder=True is not available yet")


def test_mode_by_number_name_and_alias() -> None:
    for value in (3, "PIECEWISE", "piecewise", "VLLM_COMPILE", CompilationMode.VLLM_COMPILE):
        assert CompilationConfig(mode=value).mode is CompilationMode.PIECEWISE
    assert CompilationConfig().mode is CompilationMode.PIECEWISE
    assert CompilationMode.VLLM_COMPILE is CompilationMode.PIECEWISE
    assert [mode.value for mode in CompilationMode] == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [4, -1, "max-autotune", ""])
def test_invalid_mode(value: Any) -> None:
    message = refused(errors.InvalidCompilationMode, mode=value)
    assert message.startswith(f"Invalid compilation mode: {value}. Valid modes are: NONE (0), ")


def test_cudagraph_mode_by_name() -> None:
    assert CompilationConfig(cudagraph_mode="full_decode_only").cudagraph_mode is CUDAGraphMode.FULL_DECODE_ONLY
    assert CompilationConfig(cudagraph_mode=CUDAGraphMode.FULL).cudagraph_mode is CUDAGraphMode.FULL
    assert CompilationConfig().cudagraph_mode is None


def test_cudagraph_mode_for_decode_and_mixed_batches() -> None:
    modes = {mode: (mode.decode_mode(), mode.mixed_mode()) for mode in CUDAGraphMode}
    none, piecewise, full = CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL
    assert modes == {
        none: (none, none),
        piecewise: (piecewise, piecewise),
        full: (full, full),
        CUDAGraphMode.FULL_DECODE_ONLY: (full, none),
        CUDAGraphMode.FULL_AND_PIECEWISE: (full, piecewise),
    }


@pytest.mark.parametrize(
    ("value", "advice"),
    [("", "write cudagraph_mode='NONE'"), ("FUL", "write cudagraph_mode='FULL'"), ("xyz", "one of these")],
)
def test_invalid_cudagraph_mode(value: str, advice: str) -> None:
    message = refused(errors.InvalidCudagraphMode, cudagraph_mode=value)
    assert advice in message
    assert all(name in message for name in CUDAGraphMode.__members__)


# -- names and types


def test_unknown_name_suggests_the_nearest() -> None:
    message = refused(errors.UnknownSetting, complie_sizes=[1])
    assert "'complie_sizes'" in message and "write 'compile_sizes'" in message
    assert "write" not in refused(errors.UnknownSetting, zzz=1)
    message = refused(errors.UnknownSetting, pass_config={"eliminate_nops": None})
    assert "PassConfig" in message and "'eliminate_noops'" in message


def test_unknown_name_comes_before_other_complaints() -> None:
    refused(errors.UnknownSetting, complie_sizes=[1], self_test=3, backend="tensorrt")


@pytest.mark.parametrize("name", sorted(vllm.COMPILATION))
def test_names_of_vllm_say_where_they_belong(name: str) -> None:
    message = refused(errors.SettingOfVllm, **{name: None})
    assert repr(name) in message and vllm.COMPILATION[name] in message


def test_no_field_is_listed_as_missing() -> None:
    assert not set(vllm.COMPILATION) & set(CompilationConfig.model_fields)


@pytest.mark.parametrize(
    ("settings", "field", "seen"),
    [
        ({"max_programs": True}, "max_programs", "True (bool)"),
        ({"max_programs": 2.0}, "max_programs", "2.0 (float)"),
        ({"max_programs": "8"}, "max_programs", "'8' (str)"),
        ({"self_test": 1}, "self_test", "1 (int)"),
        ({"cache_dir": 1}, "cache_dir", "1 (int)"),
        ({"cache_dir": None}, "cache_dir", "None (NoneType)"),
        ({"cache_dir": b"x"}, "cache_dir", "b'x' (bytes)"),
        ({"backend": None}, "backend", "None (NoneType)"),
        ({"mode": True}, "mode", "True (bool)"),
        ({"mode": 3.0}, "mode", "3.0 (float)"),
        ({"mode": None}, "mode", "None (NoneType)"),
        ({"cudagraph_mode": 2}, "cudagraph_mode", "2 (int)"),
        ({"cudagraph_mode": False}, "cudagraph_mode", "False (bool)"),
        ({"custom_ops": "all"}, "custom_ops", "'all' (str)"),
        ({"custom_ops": ["all", 3]}, "custom_ops[1]", "3 (int)"),
        ({"splitting_ops": "a::b"}, "splitting_ops", "'a::b' (str)"),
        ({"compile_sizes": 8}, "compile_sizes", "8 (int)"),
        ({"compile_sizes": (8,)}, "compile_sizes", "(8,) (tuple)"),
        ({"compile_sizes": [8, True]}, "compile_sizes[1]", "True (bool)"),
        ({"compile_ranges_endpoints": [4.0]}, "compile_ranges_endpoints[0]", "4.0 (float)"),
        ({"compile_ranges_endpoints": 4}, "compile_ranges_endpoints", "4 (int)"),
        ({"encoder_cudagraph_token_budgets": [True]}, "encoder_cudagraph_token_budgets[0]", "True (bool)"),
        ({ITEMS: 1.0}, ITEMS, "1.0 (float)"),
        ({WORD: "8"}, WORD, "'8' (str)"),
        ({WORD: 8}, WORD, "8 (int)"),
        ({WORD: [2.0, 4]}, f"{WORD}[0]", "2.0 (float)"),
        ({WORD: [4, True]}, f"{WORD}[1]", "True (bool)"),
        ({WORD: ["4"]}, f"{WORD}[0]", "'4' (str)"),
        ({WORD: [None]}, f"{WORD}[0]", "None (NoneType)"),
        ({WORD: {"batch": 4}}, f"{WORD}['batch']", "4 (int)"),
        ({WORD: {"batch": [True]}}, f"{WORD}['batch'][0]", "True (bool)"),
        ({WORD: {1: [4]}}, f"{WORD}'s key", "1 (int)"),
        ({WORD: [(1, True)]}, f"{WORD}[0][1]", "True (bool)"),
        ({"max_cudagraph_capture_size": True}, "max_cudagraph_capture_size", "True (bool)"),
        ({"max_cudagraph_capture_size": 8.0}, "max_cudagraph_capture_size", "8.0 (float)"),
        ({"pass_config": []}, "pass_config", "[] (list)"),
        ({"pass_config": {"eliminate_noops": 1}}, "eliminate_noops", "1 (int)"),
        ({"dynamic_shapes_config": "backed"}, "dynamic_shapes_config", "'backed' (str)"),
        ({"dynamic_shapes_config": {"type": 1}}, "dynamic_shapes_config.type", "1 (int)"),
        ({"inductor_compile_config": []}, "inductor_compile_config", "[] (list)"),
    ],
)
def test_wrong_type_names_field_value_and_type(settings: dict[str, Any], field: str, seen: str) -> None:
    message = refused(errors.WrongType, **settings)
    assert message.startswith(f"{field} is not ")
    assert f"Seen: {seen}." in message


def test_wrong_shape_of_a_whole_config() -> None:
    for value in ([1], {1: 2}, None):
        with pytest.raises(errors.WrongType, match="CompilationConfig is not "):
            CompilationConfig.model_validate(value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"inductor_passes": {"post_grad_custom_post_pass": print}}, "inductor_passes"),
        ({"dynamic_shapes_config": {"type": "backed_size_oblivious"}}, "dynamic_shapes_config.type"),
        ({"dynamic_shapes_config": {"evaluate_guards": True}}, "dynamic_shapes_config.evaluate_guards"),
        ({"dynamic_shapes_config": {"assume_32_bit_indexing": True}}, "assume_32_bit_indexing"),
        ({"pass_config": {"rope_kvcache_fusion_max_token_num": 256}}, "rope_kvcache_fusion_max_token_num"),
        ({"pass_config": {"fi_allreduce_fusion_max_size_mb": 0.5}}, "fi_allreduce_fusion_max_size_mb"),
    ],
)
def test_not_available_at_construction(settings: dict[str, Any], named: str) -> None:
    assert named in refused(errors.NotAvailableYet, **settings)
    assert issubclass(errors.NotAvailableYet, NotImplementedError)


def test_every_pass_is_refused_when_turned_on() -> None:
    flags = [name for name in PassConfig.model_fields if "_max_" not in name]
    assert len(flags) == 11
    for name in flags:
        assert getattr(PassConfig(**{name: False}), name) is False
        with pytest.raises(errors.NotAvailableYet, match=f"pass_config.{name}=True"):
            PassConfig(**{name: True})


def test_dynamic_shapes_types() -> None:
    assert CompilationConfig().dynamic_shapes_config.type == "auto"
    for kind in ("auto", "unbacked", "backed"):
        assert DynamicShapesConfig(type=kind).type == kind
    message = refused(errors.InvalidDynamicShapes, dynamic_shapes_config={"type": "dynamic"})
    assert "auto, unbacked, backed" in message


def test_splitting_ops_are_operators_and_module_classes() -> None:
    ops = ["sizewise::attention", "aten::mm.default", nn.Linear]
    assert CompilationConfig(splitting_ops=ops).splitting_ops == ops
    assert CompilationConfig(splitting_ops=[]).splitting_ops == []
    for op in ("attention", "a.b", "a::", "a::b c", "", int, None, 3):
        refused(errors.InvalidSplittingOp, splitting_ops=[op])


def test_inductor_options_are_plain_data() -> None:
    options = {"max_autotune": True, "nested": {"list": [1, 2.5, None, "x"]}}
    config = CompilationConfig(inductor_compile_config=options)
    assert config.inductor_compile_config == options
    options["nested"]["list"].append(3)  # type: ignore[index]
    assert config.inductor_compile_config["nested"]["list"] == [1, 2.5, None, "x"]
    message = refused(errors.NotPlainData, inductor_compile_config={"a": [float("nan")]})
    assert message.startswith("inductor_compile_config['a'][0] holds")
    refused(errors.NotPlainData, inductor_compile_config={"a": print})
    refused(errors.NotPlainData, inductor_compile_config={1: 2})


# -- frozen, equal, hashed, stored


def test_frozen() -> None:
    config = CompilationConfig()
    with pytest.raises(errors.SettingsAreFrozen, match="replace"):
        config.mode = CompilationMode.NONE
    with pytest.raises(AttributeError):
        del config.mode
    with pytest.raises(errors.SettingsAreFrozen):
        config.complie_sizes = [1]


def test_lists_are_copied_in() -> None:
    sizes, grid = [4, 2], {"batch": [1]}
    config, other = CompilationConfig(compile_sizes=sizes), CompilationConfig(cudagraph_capture_sizes=grid)
    sizes.append(8)
    grid["batch"].append(2)
    assert config.compile_sizes == [4, 2]
    assert other.cudagraph_capture_sizes == {"batch": [1]}


def test_replace_checks_again_as_a_whole() -> None:
    config = CompilationConfig(cudagraph_capture_sizes=[1, 8])
    changed = config.replace(max_cudagraph_capture_size=8)
    assert (changed.max_cudagraph_capture_size, config.max_cudagraph_capture_size) == (8, None)
    with pytest.raises(errors.MaxCaptureSizeDisagrees):
        config.replace(max_cudagraph_capture_size=9)
    with pytest.raises(errors.UnknownSetting):
        config.replace(maximum=9)
    with pytest.raises(errors.InvalidCompilationMode):
        config.model_copy(update={"mode": 9})
    assert config.model_copy() == config


def test_equality_hash_and_digest() -> None:
    one, two = CompilationConfig(mode=3), CompilationConfig(mode="VLLM_COMPILE", backend="")
    assert one == two == CompilationConfig() and hash(one) == hash(two) and one.digest() == two.digest()
    assert re.fullmatch("[0-9a-f]{64}", one.digest())
    numbers = [CompilationConfig(inductor_compile_config={"a": value}) for value in (1, 1.0, True)]
    assert len(set(numbers)) == 3 and len({config.digest() for config in numbers}) == 3
    assert one != PassConfig()


CHANGED: dict[str, Any] = {
    "mode": 0,
    "backend": "eager",
    "custom_ops": ["none"],
    "splitting_ops": [nn.Linear],
    "compile_sizes": [1],
    "compile_ranges_endpoints": [4],
    "cudagraph_mode": "FULL",
    "cudagraph_capture_sizes": [1],
    "max_cudagraph_capture_size": 8,
    "cudagraph_num_of_warmups": 0,
    "encoder_cudagraph_token_budgets": [4],
    ITEMS: 1,
    FRAMES: 1,
    "inductor_compile_config": {"max_autotune": True},
    "pass_config": {"eliminate_noops": False},
    "dynamic_shapes_config": {"type": "backed"},
    "allow_partial": True,
    "require_proof": True,
    "max_programs": 3,
    "cache_dir": "elsewhere",
    "self_test": False,
}


def test_a_folder_may_be_a_path_and_is_kept_as_text() -> None:
    config = CompilationConfig(cache_dir=Path("a") / "b")
    assert config.cache_dir == str(Path("a") / "b") and CompilationConfig.from_json(config.to_json()) == config
    assert config.digest() == CompilationConfig().digest() and config != CompilationConfig()
    assert config.resolve().sources["cache_dir"] == "set"


def test_digest_holds_every_field_that_is_not_listed_as_outside() -> None:
    # These two have no second legal value yet.
    assert set(CHANGED) == set(CompilationConfig.model_fields) - {"cudagraph_mm_encoder", "inductor_passes"}
    default = CompilationConfig()
    for field, value in CHANGED.items():
        changed = CompilationConfig(**{field: value})
        outside = field in CompilationConfig.outside_digest
        assert (changed.digest() == default.digest()) is outside, field
        assert changed != default, field
    assert CompilationConfig.outside_digest < set(CompilationConfig.model_fields)


def test_json_round_trip() -> None:
    for field, value in CHANGED.items():
        config = CompilationConfig(**{field: value})
        if field != "splitting_ops":
            assert CompilationConfig.from_json(config.to_json()) == config, field
    config = CompilationConfig(cudagraph_capture_sizes=[(1, 8), (2, 4)], splitting_ops=["a::b"])
    again = CompilationConfig.from_json(config.to_json())
    assert again == config and again.model_fields_set == config.model_fields_set
    assert again.cudagraph_capture_sizes == [(1, 8), (2, 4)]
    assert json.loads(CompilationConfig(mode=3, pass_config={}).to_json()) == {
        "mode": "PIECEWISE",
        "pass_config": {},
    }


def test_json_that_cannot_be_read_or_written() -> None:
    with pytest.raises(errors.InvalidJson, match="SW107"):
        CompilationConfig.from_json('{"mode":')
    with pytest.raises(errors.UnknownSetting):
        CompilationConfig.from_json('{"complie_sizes": [1]}')
    with pytest.raises(errors.InvalidPiecewiseBackend):
        CompilationConfig.model_validate_json('{"backend": "x"}')
    for text in ("[1]", 3):
        with pytest.raises(errors.WrongType):
            CompilationConfig.from_json(text)  # type: ignore[arg-type]
    with pytest.raises(errors.ClassInJson, match=r"torch\.nn\.modules\.linear\.Linear"):
        CompilationConfig(splitting_ops=[nn.Linear]).to_json()


def test_copies_and_pickles() -> None:
    config = CompilationConfig(cudagraph_capture_sizes={"batch": [1]}, pass_config={"eliminate_noops": False})
    assert copy.deepcopy(config) == config == pickle.loads(pickle.dumps(config))
    with pytest.raises(errors.UnknownSetting) as caught:
        CompilationConfig(zzz=1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is errors.UnknownSetting and str(again) == str(caught.value)


def test_repr_shows_what_was_set() -> None:
    assert repr(CompilationConfig(compile_sizes=[1, 2])) == "CompilationConfig(compile_sizes=[1, 2])"


# -- sizes


def test_capture_sizes_are_put_in_order() -> None:
    def settled(sizes: Any) -> Any:
        return CompilationConfig(cudagraph_capture_sizes=sizes).cudagraph_capture_sizes

    assert settled([8, 2, 4]) == [2, 4, 8]
    assert settled([4, 4, 2]) == [2, 4]
    assert settled({"batch": [8, 2, 2], "seq": [16]}) == {"batch": [2, 8], "seq": [16]}
    assert settled([(2, 8), (1, 4), (2, 8)]) == [(1, 4), (2, 8)]


@pytest.mark.parametrize("sizes", [[0, 4], [-1, 4], {"batch": [0]}, [(4, 0)]])
def test_capture_sizes_below_one(sizes: Any) -> None:
    message = refused(errors.NotPositive, cudagraph_capture_sizes=sizes)
    assert "must be at least 1" in message
    assert f"Seen: {-1 if sizes == [-1, 4] else 0}." in message


@pytest.mark.parametrize("sizes", [[], {}, {"batch": []}])
def test_no_capture_sizes(sizes: Any) -> None:
    message = refused(errors.NoCaptureSizes, cudagraph_capture_sizes=sizes)
    assert message.startswith("cudagraph_capture_sizes should contain at least one element when using cuda graph.")


@pytest.mark.parametrize("sizes", [[(1, 2), 3], [(1, 2), (1,)], [()]])
def test_mixed_capture_sizes(sizes: Any) -> None:
    refused(errors.MixedCaptureSizes, cudagraph_capture_sizes=sizes)


def test_max_capture_size() -> None:
    message = refused(errors.MaxCaptureSizeDisagrees, cudagraph_capture_sizes=[4, 2], max_cudagraph_capture_size=13)
    assert message.startswith(
        "customized max_cudagraph_capture_size(=13) should be consistent with the max value of "
        "cudagraph_capture_sizes(=4)"
    )
    assert CompilationConfig(cudagraph_capture_sizes=[4, 13], max_cudagraph_capture_size=13)
    for value in (0, -1):
        message = refused(errors.MaxCaptureSizeTooSmall, max_cudagraph_capture_size=value)
        assert message.startswith("Maximum cudagraph size should be greater than or equal to 1 when using cuda graph.")
    for sizes in ({"batch": [4]}, [(4, 4)]):
        refused(errors.MaxCaptureSizeOfSeveralDims, cudagraph_capture_sizes=sizes, max_cudagraph_capture_size=4)


def test_compile_sizes() -> None:
    assert CompilationConfig(compile_sizes=[WORD, 3]).compile_sizes == [WORD, 3]
    message = refused(errors.UnrecognizedCompileSize, compile_sizes=[1, "capture"])
    assert message.startswith("Unrecognized size type in compile_sizes, expect 'cudagraph_capture_sizes', got capture")
    assert refused(errors.NotPositive, compile_sizes=[1, 0]).startswith("compile_sizes[1]")


def test_default_list_of_vllm() -> None:
    full = default_capture_sizes(512)
    assert len(full) == 51
    assert full[:5] == [1, 2, 4, 8, 16] and full[34:37] == [256, 272, 288] and full[-1] == 512
    assert default_capture_sizes(12, also=[6]) == [1, 2, 4, 6, 8]
    assert default_capture_sizes(42)[-1] == 40 and default_capture_sizes(300)[-1] == 288
    assert default_capture_sizes(1) == [1] and default_capture_sizes(3) == [1, 2]
    assert default_capture_sizes(8, also=[9]) == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("settings", "bounds", "tail"),
    [
        ({}, {}, [496, 512]),
        ({}, {"max_size": 1000}, [496, 512]),
        ({}, {"max_size": 64}, [56, 64]),
        ({}, {"max_size": 13}, [8, 13]),
        ({"max_cudagraph_capture_size": 13}, {}, [8, 13]),
        ({"max_cudagraph_capture_size": 42}, {}, [40, 42]),
        ({"max_cudagraph_capture_size": 300}, {"max_size": 400}, [288, 300]),
        ({"max_cudagraph_capture_size": 1000}, {}, [992, 1000]),
        ({}, {"min_size": 600, "max_size": 700}, [600]),
        ({}, {"min_size": 3, "max_size": 9}, [3, 4, 8, 9]),
    ],
)
def test_default_sizes_never_round_a_maximum(settings: dict[str, Any], bounds: dict[str, Any], tail: list[int]) -> None:
    sizes = CompilationConfig(**settings).post_init_cudagraph_sizes(**bounds).cudagraph_capture_sizes
    assert isinstance(sizes, list)
    assert sizes[-len(tail) :] == tail


def test_the_word_in_compile_sizes_settles() -> None:
    page = (SEEDS / "000_a0759b21228121f9.txt").read_text()
    assert "compile_sizes=['cudagraph_capture_sizes', 1, 2]" in page
    config = CompilationConfig(compile_sizes=[WORD, 1, 2])
    settled = config.post_init_cudagraph_sizes([8, 4, 4])
    assert settled.compile_sizes == [1, 2, 4, 8]
    assert settled.cudagraph_capture_sizes == [4, 8]
    assert config.compile_sizes == [WORD, 1, 2]
    own = CompilationConfig(compile_sizes=[WORD], cudagraph_capture_sizes=[16, 4])
    assert own.post_init_cudagraph_sizes().compile_sizes == [4, 16]
    assert settled.post_init_cudagraph_sizes() == settled
    assert CompilationConfig().post_init_cudagraph_sizes().compile_sizes is None
    assert CompilationConfig(compile_sizes=[4, 1, 4]).post_init_cudagraph_sizes().compile_sizes == [1, 4]


def test_the_word_follows_the_first_dim() -> None:
    for sizes in ({"batch": [4, 2], "seq": [64]}, [(2, 64), (4, 64)]):
        config = CompilationConfig(compile_sizes=[WORD], cudagraph_capture_sizes=sizes)
        assert config.post_init_cudagraph_sizes().compile_sizes == [2, 4]


def test_settling_refuses_contradictions() -> None:
    config = CompilationConfig(cudagraph_capture_sizes=[4, 8])
    assert config.post_init_cudagraph_sizes([8, 4]) == config
    with pytest.raises(errors.CaptureSizesGivenTwice):
        config.post_init_cudagraph_sizes([4])
    with pytest.raises(errors.SizeOutOfRange, match=r"8, which is outside min_size and max_size \(1 to 6\)"):
        config.post_init_cudagraph_sizes(max_size=6)
    with pytest.raises(errors.SizeOutOfRange, match=r"4, which is outside min_size and max_size \(5 to 8\)"):
        config.post_init_cudagraph_sizes(min_size=5, max_size=8)
    with pytest.raises(errors.SizeOutOfRange, match="max_cudagraph_capture_size holds 9"):
        CompilationConfig(max_cudagraph_capture_size=9).post_init_cudagraph_sizes(max_size=8)
    with pytest.raises(errors.NoCaptureSizes):
        config.post_init_cudagraph_sizes([])
    with pytest.raises(errors.MaxCaptureSizeDisagrees):
        CompilationConfig(max_cudagraph_capture_size=9).post_init_cudagraph_sizes([8])
    for value in (0, -3):
        with pytest.raises(errors.NotPositive):
            config.post_init_cudagraph_sizes(max_size=value)
    with pytest.raises(errors.WrongType):
        config.post_init_cudagraph_sizes(max_size=8.0)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidDimRange):
        config.post_init_cudagraph_sizes(min_size=3, max_size=2)


def test_ranges() -> None:
    assert compile_ranges([4, 16], 64) == [(1, 4), (5, 16), (17, 64)]
    assert compile_ranges(None, 64, 2) == [(2, 64)]
    assert compile_ranges([], 1) == [(1, 1)]
    assert compile_ranges([1, 63, 64], 64) == [(1, 1), (2, 63), (64, 64)]
    config = CompilationConfig(compile_ranges_endpoints=[16, 4, 4])
    assert config.compile_ranges_endpoints == [4, 16]
    assert config.compile_ranges(32, 2) == [(2, 4), (5, 16), (17, 32)]
    with pytest.raises(errors.SizeOutOfRange, match=r"16, .*\(1 to 8\)[\s\S]*max_size=16"):
        config.compile_ranges(8)
    with pytest.raises(errors.InvalidDimRange):
        compile_ranges([], 1, 2)


@pytest.mark.parametrize("endpoint", [0, -4])
def test_invalid_endpoint(endpoint: int) -> None:
    message = refused(errors.InvalidRangeEndpoint, compile_ranges_endpoints=[8, endpoint])
    assert message.startswith(f"Invalid compile range endpoint: {endpoint}")


# -- resolution


def test_resolve_fills_what_is_open_and_says_so() -> None:
    config = CompilationConfig(max_programs=3, cudagraph_mode=None)
    resolved = config.resolve(dims={"batch": (1, 64), "seq": (1, 256)})
    assert resolved.config.backend == "inductor"
    assert resolved.config.cudagraph_mode is CUDAGraphMode.NONE
    assert resolved.config.splitting_ops == ["sizewise::attention"]
    assert resolved.config.compile_sizes is None
    assert set(resolved.sources) == set(CompilationConfig.model_fields)
    assert resolved.sources["max_programs"] == "set"
    assert resolved.sources["self_test"] == "default"
    assert resolved.sources["backend"] == "platform_backend"
    assert resolved.sources["cudagraph_mode"] == "capture_mode"
    assert [change.field for change in resolved.changes] == ["backend", "splitting_ops", "cudagraph_mode"]
    field, before, after, rule, why = resolved.changes[0]
    assert (field, before, after, rule) == ("backend", "", "inductor", "platform_backend") and why
    assert config == CompilationConfig(max_programs=3)


def test_resolve_keeps_what_was_set() -> None:
    config = CompilationConfig(backend="eager", splitting_ops=[], cudagraph_mode="NONE", compile_sizes=[4, 1])
    resolved = config.resolve(dims={"batch": (1, 4)}, device="cuda:0")
    assert resolved.config == config and resolved.changes == ()
    assert resolved.config.resolve().config == resolved.config


def settled(dims: Any, **settings: Any) -> tuple[Any, Any]:
    config = CompilationConfig(**settings).resolve(dims=dims).config
    return config.cudagraph_mode, config.cudagraph_capture_sizes


def test_what_is_captured_where_nothing_was_set() -> None:
    mode, sizes = settled({"batch": (1, 64)})
    assert mode is CUDAGraphMode.FULL and sizes == [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64]
    for low, high in ((1, 1), (1, 512), (3, 5), (100, 4000), (1, 100_000)):
        mode, sizes = settled({"batch": (low, high)})
        assert sizes[0] == low and sizes[-1] == high and len(sizes) <= 16
        assert all(low <= size <= high for size in sizes) and sizes == sorted(set(sizes))
    assert settled({}) == (CUDAGraphMode.FULL, None)
    assert settled({"batch": (1, 64)}, backend="eager") == (CUDAGraphMode.NONE, None)
    assert settled({"batch": (1, 8), "seq": (1, 8)}) == (CUDAGraphMode.NONE, None)
    assert (
        CompilationConfig().resolve(dims={"batch": (1, 8)}, device="cuda").config.cudagraph_mode is CUDAGraphMode.NONE
    )


def test_what_is_captured_is_what_was_set() -> None:
    batch = {"batch": (1, 64)}
    both = {"batch": (1, 64), "seq": (1, 32)}
    assert settled(batch, cudagraph_capture_sizes=[8, 1, 8]) == (CUDAGraphMode.FULL, [1, 8])
    mode, sizes = settled(batch, max_cudagraph_capture_size=42)
    assert mode is CUDAGraphMode.FULL and sizes[-3:] == [32, 40, 42], "the maximum is added, never rounded away"
    assert settled(both, cudagraph_mode="FULL")[1] == {"batch": [1, 16, 32, 64], "seq": [1, 8, 16, 32]}
    assert settled(both, cudagraph_capture_sizes=[(8, 32), (1, 1)])[1] == [(1, 1), (8, 32)]
    assert settled(both, cudagraph_capture_sizes={"batch": [1], "seq": [4, 2]})[1] == {"batch": [1], "seq": [2, 4]}
    for wrong, dims, kind in (
        ([1, 8], both, errors.CaptureSizesOfOtherDims),
        ([(1, 8)], batch, errors.CaptureSizesOfOtherDims),
        ({"batch": [1]}, both, errors.CaptureSizesOfOtherDims),
        ({"batch": [1], "length": [1]}, both, errors.CaptureSizesOfOtherDims),
        ([1], {}, errors.CaptureSizesOfOtherDims),
        ([1, 65], batch, errors.SizeOutOfRange),
        ([(1, 33)], both, errors.SizeOutOfRange),
    ):
        with pytest.raises(kind):
            settled(dims, cudagraph_capture_sizes=wrong)
    with pytest.raises(errors.SizeOutOfRange):
        settled(batch, max_cudagraph_capture_size=65)
    with pytest.raises(errors.SettingWithoutEffect):
        settled(both, max_cudagraph_capture_size=8)
    for setting in ({"cudagraph_capture_sizes": [1]}, {"max_cudagraph_capture_size": 4}, {"allow_partial": True}):
        with pytest.raises(errors.SettingWithoutEffect, match="cudagraph_mode is NONE"):
            settled(batch, cudagraph_mode="NONE", **setting)
    with pytest.raises(errors.NotAvailableYet, match="on cuda"):
        CompilationConfig(cudagraph_mode="PIECEWISE").resolve(dims=batch, device="cuda")


def test_captures_on_cuda_are_what_was_asked_for() -> None:
    batch = {"batch": (1, 64)}
    for settings in ({"cudagraph_mode": "FULL"}, {"cudagraph_capture_sizes": [1, 64]}, {"allow_partial": True}):
        resolved = CompilationConfig(**settings).resolve(dims=batch, device="cuda:1")
        assert resolved.config.cudagraph_mode is CUDAGraphMode.FULL and resolved.config.cudagraph_capture_sizes
    (why,) = [c.why for c in CompilationConfig().resolve(dims=batch, device="cuda").changes if "mode" in c.field]
    assert why == "CUDA graphs of compiled modules are written and not yet measured"


def test_how_often_calls_run_before_their_capture() -> None:
    batch = {"batch": (1, 64)}
    config = CompilationConfig(cudagraph_mode="FULL", cudagraph_num_of_warmups=0)
    assert config.resolve(dims=batch, device="cuda").config.cudagraph_num_of_warmups == 0
    with pytest.raises(errors.SettingWithoutEffect, match="is a tape"):
        config.resolve(dims=batch)
    for settings in ({}, {"cudagraph_mode": "NONE"}):
        with pytest.raises(errors.SettingWithoutEffect, match="cudagraph_mode is NONE"):
            CompilationConfig(cudagraph_num_of_warmups=2, **settings).resolve(dims=batch, device="cuda")
    for wrong in (-1, True, 1.0, "1"):
        assert "an int of at least 0" in refused(errors.WrongType, cudagraph_num_of_warmups=wrong)


def test_resolve_settles_the_word() -> None:
    resolved = CompilationConfig(compile_sizes=[WORD, 3]).resolve(dims={"batch": (2, 13)})
    assert resolved.config.compile_sizes == [2, 3, 4, 5, 6, 7, 8, 12, 13] == resolved.config.cudagraph_capture_sizes
    assert resolved.sources["compile_sizes"] == "settled_sizes"


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "STOCK_TORCH_COMPILE"},
        {"mode": "DYNAMO_TRACE_ONCE"},
        {"mode": "NONE"},
        *({field: CHANGED[field]} for field in NOT_YET),
    ],
)
def test_resolve_refuses_what_would_do_nothing(settings: dict[str, Any]) -> None:
    config = CompilationConfig(**settings)
    with pytest.raises(errors.NotAvailableYet, match=f"^{next(iter(settings))}="):
        config.resolve()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"compile_sizes": [4, 65]}, "compile_sizes holds 65, which is outside the first dim 'batch' (2 to 64)"),
        ({"compile_sizes": [1]}, "compile_sizes holds 1, which is outside the first dim 'batch' (2 to 64)"),
        (
            {"compile_ranges_endpoints": [128]},
            "compile_ranges_endpoints holds 128, which is outside the first dim 'batch' (2 to 64)",
        ),
    ],
)
def test_resolve_checks_sizes_against_the_first_dim(settings: dict[str, Any], named: str) -> None:
    config = CompilationConfig(**settings)
    with pytest.raises(errors.SizeOutOfRange, match=re.escape(named)):
        config.resolve(dims={"batch": (2, 64), "seq": (1, 256)})
    assert config.resolve().config.compile_sizes == config.compile_sizes
    with pytest.raises(errors.SettingWithoutEffect, match="no dim is declared"):
        config.resolve(dims={})


def test_resolve_refuses_inductor_options_of_another_backend() -> None:
    config = CompilationConfig(inductor_compile_config={"max_autotune": True})
    assert config.resolve().config.inductor_compile_config == {"max_autotune": True}
    with pytest.raises(errors.SettingWithoutEffect, match="backend is 'eager'"):
        config.replace(backend="eager").resolve()


@pytest.mark.parametrize("bounds", [(3, 2), (0, 2), (1, 2.0), (True, 2), (1,), 4, None])
def test_resolve_refuses_broken_dims(bounds: Any) -> None:
    with pytest.raises(errors.InvalidDimRange, match=r"dims\['n'\]"):
        CompilationConfig().resolve(dims={"n": bounds})


@pytest.mark.parametrize("device", ["xpu", "mps", "hip:0", ""])
def test_resolve_refuses_other_devices(device: str) -> None:
    with pytest.raises(errors.UnsupportedDevice, match="cpu, cuda"):
        CompilationConfig().resolve(device=device)


def test_a_rule_cannot_change_what_was_set() -> None:
    def needs_eager(config: CompilationConfig, context: Context) -> list[Fill]:
        return [Fill("backend", "eager", "for the test")]

    assert resolve(CompilationConfig(), rules=[needs_eager]).changes == (
        Change("backend", "", "eager", "needs_eager", "for the test"),
    )
    with pytest.raises(errors.RuleAgainstSetting, match="backend='inductor' was set, but the rule needs_eager"):
        resolve(CompilationConfig(backend="inductor"), rules=[needs_eager])


# -- presets and environment


def test_presets() -> None:
    assert preset("default") == {}
    assert preset("reduce-overhead") == {"cudagraph_mode": "FULL"}
    assert preset("max-autotune") == {
        "cudagraph_mode": "FULL",
        "inductor_compile_config": {"max_autotune": True},
    }
    preset("max-autotune")["inductor_compile_config"].clear()
    assert PRESETS["max-autotune"]["inductor_compile_config"] == {"max_autotune": True}
    for name in PRESETS:
        CompilationConfig(**preset(name))
    for mode in ("fast", None):
        with pytest.raises(errors.UnknownPreset, match="default, reduce-overhead, max-autotune"):
            preset(mode)  # type: ignore[arg-type]


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in env.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert env.require_warm() is False and env.log_level() == "WARNING"
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    monkeypatch.setenv("SIZEWISE_LOG", "DEBUG")
    assert env.require_warm() is True and env.log_level() == "DEBUG"
    env.check()
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "0")
    monkeypatch.setenv("SIZEWISE_LOG", "")
    assert env.require_warm() is False and env.log_level() == "WARNING"


def test_environment_values_and_names_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "yes")
    with pytest.raises(errors.InvalidEnvironmentValue, match="one of 0, 1"):
        env.require_warm()
    monkeypatch.setenv("SIZEWISE_LOG", "loud")
    with pytest.raises(errors.InvalidEnvironmentValue, match="DEBUG, INFO"):
        env.check()
    monkeypatch.delenv("SIZEWISE_LOG")
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARM", "1")
    monkeypatch.setenv("SIZEWISE_REQUIRE_WARN", "1")
    with pytest.raises(errors.UnknownEnvironmentVariable, match="write SIZEWISE_REQUIRE_WARM"):
        env.check()


# -- imports


def modules_after(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_importing_the_package_is_light() -> None:
    loaded = modules_after("import sizewise.config as c; c.CompilationMode, c.CUDAGraphMode, dir(c)")
    assert not loaded & {"torch", "pydantic"}
    loaded = modules_after("from sizewise.config import CompilationConfig, env; CompilationConfig().resolve()")
    assert "pydantic" in loaded and "torch" not in loaded
    assert "torch" not in modules_after("import sizewise.monitor")


def test_export_list_is_exact() -> None:
    names = ["CUDAGraphMode", "CompilationConfig", "CompilationMode", "DynamicShapesConfig", "PassConfig"]
    assert sizewise.config.__all__ == names
    assert set(names) <= set(dir(sizewise.config))
    assert all(isinstance(getattr(sizewise.config, name), type) for name in names)
    with pytest.raises(AttributeError, match="CompilationCfg"):
        sizewise.config.CompilationCfg


# -- the errors themselves


def test_every_error_of_this_branch_has_its_own_code_and_a_caught_builtin() -> None:
    own = [kind for kind in vars(errors).values() if getattr(kind, "__module__", "") == errors.__name__]
    kinds = [kind for kind in own if issubclass(kind, SizewiseError)]
    assert len(kinds) == len(own)
    codes = [kind.code for kind in kinds]
    assert codes == [f"SW{101 + index}" for index in range(len(codes))]
    builtins = (ValueError, NotImplementedError, AttributeError, MemoryError)
    for kind in kinds:
        assert issubclass(kind, ConfigError) and issubclass(kind, builtins)
        assert kind.message and kind.remedy
        assert str(kind(**dict.fromkeys(kind.field_names(), "x")))
    assert issubclass(CompilationConfig, Settings)
