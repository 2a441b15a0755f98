"""From what was set to what is in force: named rules, applied in order.

A rule yields the values it fills in, or refuses. It never changes what was set: that is SW131.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import config as errors
from . import captures, checks, sizes
from .modes import CompilationMode, CUDAGraphMode

if TYPE_CHECKING:
    from .compilation import CompilationConfig

DEVICES = ("cpu", "cuda")
DEFAULT_SPLITTING_OPS = ("sizewise::attention",)

_NO_ENCODER = "Sizewise has no encoder graphs yet"
NOT_YET = {
    "encoder_cudagraph_token_budgets": _NO_ENCODER,
    "encoder_cudagraph_max_vision_items_per_batch": _NO_ENCODER,
    "encoder_cudagraph_max_frames_per_batch": _NO_ENCODER,
    "custom_ops": "Sizewise has no custom operators to switch yet",
}
"""Field -> why any value but its default would be ignored."""
_ABOUT_CAPTURES = ("cudagraph_capture_sizes", "max_cudagraph_capture_size", "allow_partial", "require_proof")


class Change(NamedTuple):
    """One value that a rule filled in, and why."""

    field: str
    before: Any
    after: Any
    rule: str
    why: str


class Fill(NamedTuple):
    field: str
    value: Any
    why: str


@dataclass(frozen=True)
class Resolved:
    """The effective config; field -> "default", "set" or the rule that filled it; what was filled in."""

    config: CompilationConfig
    sources: Mapping[str, str]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Context:
    """What a config is resolved for. ``dims`` is None where they are not known."""

    dims: Mapping[str, tuple[int, int]] | None
    device: str
    decode: captures.Decode | None = None
    set: frozenset[str] = frozenset()
    """The fields that the user set."""

    @property
    def kind(self) -> str:
        """The device without its number."""
        return str(self.device).split(":", maxsplit=1)[0]

    @property
    def first_dim(self) -> tuple[str, int, int] | None:
        for name, (minimum, maximum) in (self.dims or {}).items():
            return name, minimum, maximum
        return None


Rule = Callable[["CompilationConfig", Context], Iterable[Fill]]


def supported_device(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    if context.kind not in DEVICES:
        raise errors.UnsupportedDevice(device=str(context.device), legal=", ".join(DEVICES))
    return ()


def pieces_need_compilation(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Pieces are made by compilation in pieces only."""
    mode = config.cudagraph_mode
    if config.mode is not CompilationMode.PIECEWISE and mode is not None and _has_pieces(mode):
        raise errors.PiecewiseWithoutCompilation(cudagraph_mode=mode.name, mode=config.mode.name)
    return ()


def available(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Refuses what would be accepted and then ignored."""
    if config.mode is not CompilationMode.PIECEWISE:
        raise _not_yet("mode", config.mode.name, "PIECEWISE is the only mode so far")
    mode = config.cudagraph_mode
    if mode not in (None, CUDAGraphMode.NONE, CUDAGraphMode.FULL) and context.kind != "cpu":
        raise _not_yet("cudagraph_mode", mode.name, f"FULL and NONE are the only modes on {context.kind} so far")
    for field, why in NOT_YET.items():
        value = getattr(config, field)
        if value != type(config).model_fields[field].get_default(call_default_factory=True):
            raise _not_yet(field, value, why)
    return ()


def platform_backend(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    if config.backend == "":
        yield Fill("backend", "inductor", f"the default on {context.device}")


def attention_splits(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    if config.splitting_ops is None:
        yield Fill("splitting_ops", list(DEFAULT_SPLITTING_OPS), "attention stays out of compiled pieces")


def capture_mode(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Captures where there is something that captures; sizes that were listed ask for them."""
    if config.cudagraph_mode is not None:
        return
    listed = [name for name in _ABOUT_CAPTURES if getattr(config, name)]
    if context.decode is not None and context.kind == "cpu" and config.backend != "eager":
        yield Fill("cudagraph_mode", CUDAGraphMode.FULL_AND_PIECEWISE, "decode is declared")
    elif listed and context.kind in captures.BACKENDS:
        yield Fill("cudagraph_mode", CUDAGraphMode.FULL, f"{listed[0]} is set")
    else:
        yield Fill("cudagraph_mode", *captures.default_mode(context.dims, context.kind, config.backend))


def pieces_can_be_captured(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Where nothing is split there are no pieces; those of backend 'eager' have no kernels."""
    mode = config.cudagraph_mode
    if mode is None or not _has_pieces(mode):
        return
    if config.backend == "eager":
        other = CUDAGraphMode.FULL_DECODE_ONLY if mode is CUDAGraphMode.FULL_AND_PIECEWISE else CUDAGraphMode.NONE
        why = "pieces of backend 'eager' have no kernels to capture"
    elif config.splitting_ops == []:
        other, why = CUDAGraphMode.FULL, "splitting_ops=[] splits nothing, so that there are no pieces"
    else:
        return
    if "cudagraph_mode" in context.set:
        raise errors.NoPiecesToCapture(cudagraph_mode=mode.name, why=why, instead=other.name)
    yield Fill("cudagraph_mode", other, why)


def decode_is_declared(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Modes that treat decode batches in their own way need to know them, and no other mode does."""
    mode = config.cudagraph_mode or CUDAGraphMode.NONE
    needs = mode.decode_mode() is not mode.mixed_mode()
    if needs and context.decode is None:
        raise errors.DecodeNotDeclared(cudagraph_mode=mode.name)
    stripped = mode is CUDAGraphMode.FULL and "cudagraph_mode" not in context.set and config.splitting_ops == []
    if not needs and context.decode is not None and not stripped:
        why = f"cudagraph_mode is {mode.name}, to which all batches are alike"
        raise errors.SettingWithoutEffect(field="decode", value=dict(context.decode), why=why)
    if context.decode is not None and context.dims is not None:
        captures.check_decode(context.decode, context.dims)
    return ()


def captures_have_a_mode(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Refuses settings about captures where nothing is captured."""
    for field in _ABOUT_CAPTURES if config.cudagraph_mode is CUDAGraphMode.NONE else ():
        if getattr(config, field):
            value, why = getattr(config, field), "cudagraph_mode is NONE"
            raise errors.SettingWithoutEffect(field=field, value=value, why=why)
    return ()


def warmups_have_an_effect(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """Refuses runs before captures that nothing would make."""
    warmups = config.cudagraph_num_of_warmups
    if warmups is None:
        return ()
    why = ""
    if config.cudagraph_mode is CUDAGraphMode.NONE:
        why = "cudagraph_mode is NONE"
    elif context.kind == "cpu":
        why = "on the CPU a capture is a tape, which needs no runs before it"
    if why:
        raise errors.SettingWithoutEffect(field="cudagraph_num_of_warmups", value=warmups, why=why)
    return ()


def capture_sizes(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    """The sizes to capture, within the dims."""
    if config.cudagraph_mode is CUDAGraphMode.NONE or context.dims is None:
        return
    listed = config.cudagraph_capture_sizes
    if listed is not None:
        points = list(captures.capture_points(listed, context.dims))
        _refuse_without_decode(config, context, points)
    elif config.max_cudagraph_capture_size is not None:
        if context.first_dim is None or len(context.dims) > 1:
            why = "it is one number, for one dim"
            maximum = config.max_cudagraph_capture_size
            raise errors.SettingWithoutEffect(field="max_cudagraph_capture_size", value=maximum, why=why)
        name, low, high = context.first_dim
        sizes.check_within("max_cudagraph_capture_size", [config.max_cudagraph_capture_size], name, low, high)
        settled = config.post_init_cudagraph_sizes(min_size=low, max_size=high)
        found = sorted(
            {*sizes.sizes_of_first_dim(settled.cudagraph_capture_sizes or []), *(context.decode or {}).values()}
        )
        yield Fill("cudagraph_capture_sizes", found, "vLLM's list up to the maximum")
    elif context.dims:
        only = config.cudagraph_mode is CUDAGraphMode.FULL_DECODE_ONLY
        default = captures.default_sizes(context.dims, context.decode, only)
        yield Fill("cudagraph_capture_sizes", default, f"at most {captures.MOST}, from small to the largest")


def _refuse_without_decode(config: CompilationConfig, context: Context, points: Sequence[Mapping[str, int]]) -> None:
    """Raises DecodeDoesNotFit (SW145) where no listed size is one of a decode batch."""
    decode = context.decode
    mode = config.cudagraph_mode
    if decode is None or mode is None or mode.decode_mode() is mode.mixed_mode():
        return
    if not any(captures.is_decode(decode, point) for point in points):
        why = f"cudagraph_capture_sizes={config.cudagraph_capture_sizes!r} lists no such size"
        raise errors.DecodeDoesNotFit(decode=dict(decode), why=why, dims=", ".join(map(repr, context.dims or {})))


def settled_sizes(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    if sizes.CAPTURE_SIZES in (config.compile_sizes or ()):
        _, smallest, largest = context.first_dim or ("", 1, None)
        settled = config.post_init_cudagraph_sizes(min_size=smallest, max_size=largest)
        yield Fill("compile_sizes", settled.compile_sizes, "the word stands for the capture sizes")


def sizes_within_first_dim(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    listed = {name: getattr(config, name) for name in ("compile_sizes", "compile_ranges_endpoints")}
    for field, values in listed.items():
        if not values or context.dims is None:
            continue
        if context.first_dim is None:
            raise errors.SettingWithoutEffect(field=field, value=values, why="no dim is declared")
        sizes.check_within(field, values, *context.first_dim)
    return ()


def inductor_options(config: CompilationConfig, context: Context) -> Iterable[Fill]:
    if config.inductor_compile_config and config.backend != "inductor":
        raise errors.SettingWithoutEffect(
            field="inductor_compile_config",
            value=config.inductor_compile_config,
            why=f"backend is {config.backend!r}",
        )
    checks.check_inductor_options(config.inductor_compile_config)
    return ()


RULES: tuple[Rule, ...] = (
    supported_device,
    pieces_need_compilation,
    available,
    platform_backend,
    attention_splits,
    capture_mode,
    pieces_can_be_captured,
    decode_is_declared,
    captures_have_a_mode,
    warmups_have_an_effect,
    capture_sizes,
    settled_sizes,
    sizes_within_first_dim,
    inductor_options,
)


def resolve(
    config: CompilationConfig,
    *,
    dims: Mapping[str, tuple[int, int]] | None = None,
    device: str = "cpu",
    decode: captures.Decode | None = None,
    rules: Sequence[Rule] = RULES,
) -> Resolved:
    """Apply the rules in order. Raises SW104, SW131, SW134, and what the rules raise."""
    sources = {
        name: "set" if name in config.model_fields_set and not _open(getattr(config, name)) else "default"
        for name in type(config).model_fields
    }
    given = frozenset(name for name, source in sources.items() if source == "set")
    context = Context(_checked_dims(dims), device, decode, given)
    changes: list[Change] = []
    for rule in rules:
        for field, value, why in rule(config, context):
            before = getattr(config, field)
            if before == value:
                continue
            if sources[field] == "set":
                raise errors.RuleAgainstSetting(field=field, value=before, rule=rule.__name__, needed=value, why=why)
            config = config.replace(**{field: value})
            sources[field] = rule.__name__
            changes.append(Change(field, before, value, rule.__name__, why))
    return Resolved(config, sources, tuple(changes))


def _open(value: Any) -> bool:
    """Whether a value asks to be filled in."""
    return value is None or value == "" or (isinstance(value, list) and sizes.CAPTURE_SIZES in value)


def _has_pieces(mode: CUDAGraphMode) -> bool:
    return CUDAGraphMode.PIECEWISE in (mode.decode_mode(), mode.mixed_mode())


def _checked_dims(dims: Mapping[str, tuple[int, int]] | None) -> Mapping[str, tuple[int, int]] | None:
    if dims is None:
        return None
    if not isinstance(dims, Mapping):
        raise sizes.wrong_type("dims", dims, 'a dict of (min, max) by name, such as {"batch": (1, 64)}, or None')
    for name, bounds in dims.items():
        pair = tuple(bounds) if isinstance(bounds, tuple | list) else ()
        if len(pair) != 2 or any(type(n) is not int for n in pair) or not 1 <= pair[0] <= pair[1]:
            ends = [getattr(bounds, end, None) for end in ("min", "max")]
            example = tuple(ends) if all(type(end) is int for end in ends) else (1, 64)
            instead = f"give a pair of ints, both included: dims={{{name!r}: {example}}}"
            raise errors.InvalidDimRange(field=f"dims[{name!r}]", value=bounds, instead=instead)
    return dims


def _not_yet(field: str, value: Any, why: str) -> errors.NotAvailableYet:
    return errors.NotAvailableYet(field=field, value=value, why=why, instead=f"leave {field} out")
