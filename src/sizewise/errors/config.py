"""Errors of settings: SW1xx."""

from __future__ import annotations

from .base import ConfigError

# -- compile_sizes handed to a backend before they are settled


class CaptureSizesInCompileSizes(ConfigError, NotImplementedError):
    code = "SW101"
    message = (
        "cudagraph_capture_sizes not supported in compile_sizes. "
        "This should be handled in `post_init_cudagraph_sizes`. Seen: compile_sizes={compile_sizes!r}."
    )
    remedy = (
        "give PiecewiseBackend ints: compile_sizes=[1, 2, 4], or what the word stands for, "
        "compile_sizes=config.post_init_cudagraph_sizes().compile_sizes. "
        "For sizewise.compile leave the config as it is: it settles the word at warm-up."
    )


# -- any setting: its name, its type, its moment


class UnknownSetting(ConfigError, ValueError):
    code = "SW102"
    message = "{owner} has no setting {name!r}. Seen: {name}={value!r}."
    remedy = "{suggestion}the settings are: {known}."


class SettingOfVllm(ConfigError, ValueError):
    code = "SW103"
    message = "{name!r} is a setting of vLLM's {owner} that Sizewise does not have. Seen: {name}={value!r}."
    remedy = "leave it out: {where}."


class WrongType(ConfigError, ValueError):
    code = "SW104"
    message = "{field} is not {wanted}. Seen: {value!r} ({kind})."
    remedy = "give {wanted}; values are not converted (True, 2.0 and '8' are not ints)."


class NotAvailableYet(ConfigError, NotImplementedError):
    code = "SW105"
    message = "{field}={value!r} is not available yet: {why}."
    remedy = "{instead}."


class SettingsAreFrozen(ConfigError, AttributeError):
    code = "SW106"
    message = "{owner} cannot be changed. Seen: an attempt to {action} {name!r}."
    remedy = "make a changed, checked copy: config = config.replace(field=value)."


class InvalidJson(ConfigError, ValueError):
    code = "SW107"
    message = "{owner} cannot be read from this JSON: {reason}. Seen: {text!r}."
    remedy = 'give one JSON object of settings, for instance {{"compile_sizes": [1, 8]}}.'


# -- mode, backend, operators


class InvalidCompilationMode(ConfigError, ValueError):
    code = "SW108"
    message = "Invalid compilation mode: {value}. Valid modes are: {legal}. Seen: mode={value!r}."
    remedy = (
        "give one of these names or its number. torch.compile's words (default, reduce-overhead, "
        "max-autotune) are presets and go to sizewise.compile(mode=...), not to the config."
    )


class InvalidPiecewiseBackend(ConfigError, ValueError):
    code = "SW109"
    message = "Invalid backend for piecewise compilation: {backend}. Seen: backend={backend!r}, mode=PIECEWISE."
    remedy = "use backend='inductor', backend='eager', or '' for the platform's default."


class CustomOpSyntax(ConfigError, ValueError):
    code = "SW110"
    message = (
        "Invalid syntax '{op}' for custom op, must be 'all', 'none', '+op' or '-op' "
        "(where 'op' is the registered op name). Seen: custom_ops={custom_ops!r}."
    )
    remedy = "{instead}; leave custom_ops out for sizewise.compile, which has no custom operators to switch yet."


class CustomOpBaseModes(ConfigError, ValueError):
    code = "SW111"
    message = "custom_ops can contain only one base mode: 'all' or 'none'. Seen: custom_ops={custom_ops!r}."
    remedy = "keep one 'all' or one 'none', and list the exceptions as '+op' or '-op'."


class CustomOpConflict(ConfigError, ValueError):
    code = "SW112"
    message = (
        "custom_ops cannot both enable and disable the same operation(s): {ops}. "
        "Remove either the '+' or '-' directive. Seen: custom_ops={custom_ops!r}."
    )
    remedy = "name each operator once."


class InvalidSplittingOp(ConfigError, ValueError):
    code = "SW113"
    message = "splitting_ops holds {op!r}, which is neither an operator's name nor a module class."
    remedy = (
        "write the operator as 'namespace::name' (torch.ops.aten.mm is 'aten::mm'), "
        "or give the class of a module, type(module), not the module."
    )


# -- sizes and ranges


class UnrecognizedCompileSize(ConfigError, ValueError):
    code = "SW114"
    message = (
        "Unrecognized size type in compile_sizes, expect 'cudagraph_capture_sizes', got {size}. "
        "Seen: compile_sizes={compile_sizes!r}."
    )
    remedy = "list positive ints, or the word 'cudagraph_capture_sizes' for all capture sizes."


class NotPositive(ConfigError, ValueError):
    code = "SW115"
    message = "{field} must be at least 1. Seen: {value!r}."
    remedy = "give a positive int."


class InvalidRangeEndpoint(ConfigError, ValueError):
    code = "SW116"
    message = "Invalid compile range endpoint: {endpoint}. Seen: compile_ranges_endpoints={endpoints!r}."
    remedy = "give positive ints; each is the last size of a range, the next range starts one above it."


class InvalidCudagraphMode(ConfigError, ValueError):
    code = "SW117"
    message = "Invalid cudagraph_mode: {value!r}. Valid modes are: {legal}."
    remedy = "{suggestion}"


class NoCaptureSizes(ConfigError, ValueError):
    code = "SW118"
    message = (
        "cudagraph_capture_sizes should contain at least one element when using cuda graph. Seen: {field}={sizes!r}."
    )
    remedy = (
        "leave cudagraph_capture_sizes out: alone for the default list, with cudagraph_mode='NONE' for no captures. "
        "A list needs a size of at least 1."
    )


class MixedCaptureSizes(ConfigError, ValueError):
    code = "SW119"
    message = "cudagraph_capture_sizes mixes sizes of different numbers of dims. Seen: {sizes!r}."
    remedy = "with one dim list ints; with several, list tuples that all have one size per dim."


class MaxCaptureSizeTooSmall(ConfigError, ValueError):
    code = "SW120"
    message = (
        "Maximum cudagraph size should be greater than or equal to 1 when using cuda graph. "
        "Seen: max_cudagraph_capture_size={value!r}."
    )
    remedy = "leave it out; {value} turns no captures off, cudagraph_mode='NONE' does."


class MaxCaptureSizeDisagrees(ConfigError, ValueError):
    code = "SW121"
    message = (
        "customized max_cudagraph_capture_size(={maximum}) should be consistent with the max value of "
        "cudagraph_capture_sizes(={largest}). Seen: cudagraph_capture_sizes={sizes!r}."
    )
    remedy = "leave max_cudagraph_capture_size out, or list {maximum} as the largest capture size."


class MaxCaptureSizeOfSeveralDims(ConfigError, ValueError):
    code = "SW122"
    message = (
        "max_cudagraph_capture_size is one number, but cudagraph_capture_sizes lists sizes per dim. "
        "Seen: max_cudagraph_capture_size={maximum}, cudagraph_capture_sizes={sizes!r}."
    )
    remedy = "leave max_cudagraph_capture_size out, and end each dim's own list at its largest size."


# -- encoder graphs


class EncoderBudgetsNotPositive(ConfigError, ValueError):
    code = "SW123"
    message = "All encoder_cudagraph_token_budgets must be positive, got {budgets}."
    remedy = "leave the list empty: Sizewise has no encoder graphs yet. In vLLM, each is a count of tokens."


class EncoderVisionItemsNegative(ConfigError, ValueError):
    code = "SW124"
    message = "encoder_cudagraph_max_vision_items_per_batch must be non-negative (0 = auto-infer). Seen: {value}."
    remedy = (
        "leave it out, and cudagraph_mm_encoder as well: Sizewise has no encoder graphs yet. In vLLM, 0 is the "
        "automatic number."
    )


class EncoderFramesNegative(ConfigError, ValueError):
    code = "SW125"
    message = "encoder_cudagraph_max_frames_per_batch must be non-negative (None = auto-infer). Seen: {value}."
    remedy = (
        "leave it out, and cudagraph_mm_encoder as well: Sizewise has no encoder graphs yet. In vLLM, None is the "
        "automatic number."
    )


# -- nested settings and values that must survive a file


class InvalidDynamicShapes(ConfigError, ValueError):
    code = "SW126"
    message = "Invalid dynamic_shapes_config.type: {value!r}. Valid types are: {legal}."
    remedy = "leave it out for 'auto' (unbacked first, then backed from 2), or force 'unbacked' or 'backed'."


class NotPlainData(ConfigError, ValueError):
    code = "SW127"
    message = "{field} holds a value that JSON cannot carry. Seen: {value!r} ({kind})."
    remedy = "use None, bool, int, finite float, str, list and dict with str keys only."


class ClassInJson(ConfigError, ValueError):
    code = "SW128"
    message = "splitting_ops holds the class {op}, which JSON cannot carry."
    remedy = "name the operator ('namespace::name') in settings that are stored."


# -- settling and resolving


class CaptureSizesGivenTwice(ConfigError, ValueError):
    code = "SW129"
    message = (
        "post_init_cudagraph_sizes was given sizes, but the config already has others. "
        "Seen: sizes={given!r}, cudagraph_capture_sizes={configured!r}."
    )
    remedy = "give them in one place; config.replace(cudagraph_capture_sizes=...) changes the config's own."


class SizeOutOfRange(ConfigError, ValueError):
    code = "SW130"
    message = "{field} holds {size}, which is outside {dim} ({minimum} to {maximum})."
    remedy = "keep {field} within {minimum} to {maximum}, or {wider}."


class RuleAgainstSetting(ConfigError, ValueError):
    code = "SW131"
    message = "{field}={value!r} was set, but the rule {rule} needs {needed!r}: {why}."
    remedy = "set {field}={needed!r} or leave it out; Sizewise does not change what you set."


class SettingWithoutEffect(ConfigError, ValueError):
    code = "SW132"
    message = "{field} would have no effect: {why}. Seen: {field}={value!r}."
    remedy = "leave {field} out."


class UnsupportedDevice(ConfigError, ValueError):
    code = "SW133"
    message = "device {device!r} is not supported. Supported are: {legal}."
    remedy = (
        "move the module and its arguments to one of these; where they have to stay, run the original: "
        "sizewise.compile(..., disable=True) gives it back."
    )


class InvalidDimRange(ConfigError, ValueError):
    code = "SW134"
    message = "{field} is not (min, max) with two ints and 1 <= min <= max. Seen: {value!r}."
    remedy = "{instead}."


class UnknownPreset(ConfigError, ValueError):
    code = "SW135"
    message = "Unknown preset {mode!r}. The presets are: {legal}."
    remedy = "{instead}; the presets that capture graphs ({captures}) are refused so far (SW105)."


# -- environment variables


class InvalidEnvironmentValue(ConfigError, ValueError):
    code = "SW136"
    message = "The environment variable {name} has a value that is not legal. Seen: {name}={value!r}."
    remedy = "set it to one of {legal}, or unset it for {default!r}."


class UnknownEnvironmentVariable(ConfigError, ValueError):
    code = "SW137"
    message = "Sizewise reads no environment variable {name}. Seen: {name}={value!r}."
    remedy = "{suggestion}unset it; the variables are: {known}."


# -- a compiler's options, and the ranges of one backend


class UnknownInductorOption(ConfigError, ValueError):
    code = "SW138"
    message = "inductor_compile_config names {name!r}, which torch._inductor.config of torch {version} does not have."
    remedy = "{suggestion}torch._inductor.list_options() lists them all."


class UnknownCompileRange(ConfigError, ValueError):
    code = "SW139"
    message = "{interval} is none of the ranges of this PiecewiseBackend. Its ranges are: {known}."
    remedy = "give compile_range one of these, as a Range; compile_all() compiles them all."


# -- sizes that this machine cannot run


class NotEnoughMemory(ConfigError, MemoryError):
    code = "SW140"
    message = (
        "{owner} cannot be tried at {sizes}, which its dims declare: that takes about {needed} of memory, and "
        "{available}{problem}."
    )
    remedy = "{todo}"


class CaptureSizesOfOtherDims(ConfigError, ValueError):
    code = "SW141"
    message = "cudagraph_capture_sizes={sizes!r} do not fit what is declared: {dims}."
    remedy = "{todo}."


# -- modes of captures


class PiecewiseWithoutCompilation(ConfigError, ValueError):
    code = "SW142"
    message = (
        "Compilation mode should be CompilationMode.VLLM_COMPILE when cudagraph_mode piecewise cudagraphs is used, "
        "cudagraph_mode={cudagraph_mode}. Seen: mode={mode}."
    )
    remedy = "leave mode out: PIECEWISE, which is vLLM's VLLM_COMPILE, is the default."


class NoPiecesToCapture(ConfigError, ValueError):
    code = "SW143"
    message = "cudagraph_mode={cudagraph_mode} captures compiled pieces, and there are none: {why}."
    remedy = "set cudagraph_mode={instead!r}, or leave out what the error names."


class DecodeNotDeclared(ConfigError, ValueError):
    code = "SW144"
    message = (
        "cudagraph_mode={cudagraph_mode} treats decode batches in a way of their own, and what a decode batch is was "
        "not declared."
    )
    remedy = (
        'declare the size that a dim has in every decode batch, as in sizewise.compile(..., decode={{"seq": 1}}), or '
        "set cudagraph_mode='FULL' or 'PIECEWISE', to which all batches are alike."
    )


class DecodeDoesNotFit(ConfigError, ValueError):
    code = "SW145"
    message = "decode={decode!r} does not fit: {why}. The dims are: {dims}."
    remedy = (
        'give the size that a declared dim has in every decode batch, as in decode={{"seq": 1}}, and have '
        "cudagraph_capture_sizes, if they are set, list such sizes."
    )
