"""`CompilationConfig`: every setting of a build, under vLLM's names where vLLM has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from ..errors import config as errors
from . import checks, modes, sizes, vllm
from .base import Settings
from .dynamic_shapes import DynamicShapesConfig
from .modes import CompilationMode, CUDAGraphMode
from .passes import PassConfig
from .resolve import Resolved, resolve
from .sizes import CaptureSizes


class CompilationConfig(Settings):
    """Every setting of a build. Frozen; `replace` makes a changed copy.

    A value left at None (or "" for the backend) is open: `resolve` fills it and says which rule did.
    Lists and dicts are copied in; change them with `replace`, not in place.

    Raises:
        A ConfigError (SW1xx) for an unknown name, a wrong type, a wrong value, a contradiction, or a
        setting whose feature does not exist yet.
    """

    elsewhere: ClassVar[Mapping[str, str]] = vllm.COMPILATION
    outside_digest: ClassVar[frozenset[str]] = frozenset(
        {
            "cudagraph_mode",
            "cudagraph_capture_sizes",
            "max_cudagraph_capture_size",
            "cudagraph_num_of_warmups",
            "cudagraph_mm_encoder",
            "encoder_cudagraph_token_budgets",
            "encoder_cudagraph_max_vision_items_per_batch",
            "encoder_cudagraph_max_frames_per_batch",
            "allow_partial",
            "require_proof",
            "max_programs",
            "self_test",
            "cache_dir",
        }
    )

    if TYPE_CHECKING:
        # Else a type checker derives one from the fields, and refuses names of modes and plain dicts.
        def __init__(self, **settings: Any) -> None: ...

    mode: CompilationMode = CompilationMode.PIECEWISE
    """How the module is compiled: a CompilationMode, its name or its number."""

    backend: str = ""
    """What compiles a piece: "inductor", "eager", or "" for the platform's default."""

    custom_ops: list[str] = Field(default_factory=list)
    """Custom operators: one of "all" and "none", then "+op" and "-op"."""

    splitting_ops: list[str | type[Any]] | None = None
    """Where the graph is cut: operators ("namespace::name") and module classes. None is Sizewise's own
    attention operator, [] cuts nowhere."""

    compile_sizes: list[int | str] | None = None
    """Sizes of the first dim that get a program of their own; "cudagraph_capture_sizes" stands for all
    capture sizes until `post_init_cudagraph_sizes` settles it."""

    compile_ranges_endpoints: list[int] | None = None
    """Last sizes of the ranges of the first dim that get a program each; ascending, without duplicates."""

    cudagraph_mode: CUDAGraphMode | None = None
    """What is captured: a CUDAGraphMode or its name. FULL: the whole program; PIECEWISE: each compiled piece, with the
    operators between them run as they are; FULL_AND_PIECEWISE: decode batches FULL and others PIECEWISE;
    FULL_DECODE_ONLY: decode batches only; NONE. The pairs need ``decode`` of `sizewise.compile`."""

    cudagraph_capture_sizes: CaptureSizes | None = None
    """Sizes to capture; ascending, without duplicates. Ints with one dim; {"batch": [...], "seq": [...]}
    (a grid) or tuples with several."""

    max_cudagraph_capture_size: int | None = None
    """The largest size of the default list; it is captured itself, also where it is not on the grid."""

    cudagraph_num_of_warmups: int | None = None
    """Runs of each call before it is captured as a CUDA graph; None is 1. Tapes, on the CPU, need none: there it is
    SW132."""

    cudagraph_mm_encoder: bool = False
    """vLLM's encoder graphs; True is SW105."""

    encoder_cudagraph_token_budgets: list[int] = Field(default_factory=list)
    """vLLM's; tokens per encoder graph."""

    encoder_cudagraph_max_vision_items_per_batch: int = 0
    """vLLM's; 0 is inferred."""

    encoder_cudagraph_max_frames_per_batch: int | None = None
    """vLLM's; None is inferred."""

    inductor_compile_config: dict[str, Any] = Field(default_factory=dict)
    """Options of torch._inductor.config for this build. Plain JSON data."""

    inductor_passes: dict[str, Any] = Field(default_factory=dict)
    """vLLM's passes inside Inductor; anything but empty is SW105."""

    pass_config: PassConfig = Field(default_factory=PassConfig)
    """Switches of graph passes: a PassConfig or a dict of its fields."""

    dynamic_shapes_config: DynamicShapesConfig = Field(default_factory=DynamicShapesConfig)
    """How sizes are made symbolic: a DynamicShapesConfig or a dict of its fields."""

    allow_partial: bool = False
    """Whether a listed capture size that cannot be captured is an outcome instead of an error."""

    require_proof: bool = False
    """Whether dims are filled up to the next captured size only where that is proved, and not where it is tested."""

    max_programs: int = 8
    """Largest number of programs per key."""

    self_test: bool = True
    """Whether each program is compared with the original module at warm-up."""

    cache_dir: str = ""
    """The folder that built programs are kept in; a path, ~ is the home directory. "" is SIZEWISE_CACHE_DIR, or else
    the user's cache directory. It is no part of what is built: two configs that differ here share programs."""

    # -- values that may be written in several ways, or that need a message of their own

    _mode = field_validator("mode", mode="before")(modes.compilation_mode)
    _cudagraph_mode = field_validator("cudagraph_mode", mode="before")(modes.cudagraph_mode)
    _compile_sizes = field_validator("compile_sizes", mode="before")(sizes.checked_compile_sizes)
    _endpoints = field_validator("compile_ranges_endpoints", mode="before")(sizes.checked_endpoints)
    _capture_sizes = field_validator("cudagraph_capture_sizes", mode="before")(sizes.checked_capture_sizes)
    _cache_dir = field_validator("cache_dir", mode="before")(checks.checked_folder)
    _max_capture = field_validator("max_cudagraph_capture_size", mode="before")(checks.checked_max_capture_size)
    _warmups = field_validator("cudagraph_num_of_warmups", mode="before")(checks.checked_warmups)

    @field_validator("custom_ops")
    @classmethod
    def _check_custom_ops(cls, value: list[str]) -> list[str]:
        checks.check_custom_ops(value)
        return value

    @field_validator("splitting_ops", mode="before")
    @classmethod
    def _check_splitting_ops(cls, value: Any) -> Any:
        for op in value if isinstance(value, list) else ():
            checks.check_splitting_op(op)
        return value

    @field_validator("inductor_compile_config", mode="before")
    @classmethod
    def _check_inductor_config(cls, value: Any) -> Any:
        return checks.plain_data("inductor_compile_config", value)

    @field_validator("inductor_passes")
    @classmethod
    def _check_inductor_passes(cls, value: dict[str, Any]) -> dict[str, Any]:
        checks.check_inductor_passes(value)
        return value

    @field_validator("pass_config", mode="before")
    @classmethod
    def _check_pass_config(cls, value: Any) -> Any:
        return checks.checked_group(PassConfig, "pass_config", value)

    @field_validator("dynamic_shapes_config", mode="before")
    @classmethod
    def _check_dynamic_shapes_config(cls, value: Any) -> Any:
        return checks.checked_group(DynamicShapesConfig, "dynamic_shapes_config", value)

    @field_validator("max_programs", mode="before")
    @classmethod
    def _check_max_programs(cls, value: Any) -> int:
        return sizes.positive_int("max_programs", value)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        checks.check_backend(self)
        checks.check_max_capture_size(self)
        checks.check_encoder(self)
        return self

    # -- what is worked out from the settings

    def post_init_cudagraph_sizes(
        self, sizes: CaptureSizes | None = None, *, min_size: int = 1, max_size: int | None = None
    ) -> CompilationConfig:
        """A copy with the capture sizes settled, and compile_sizes as ascending ints.

        ``sizes`` are the capture sizes; None takes the config's own, or else vLLM's default list up to
        max_cudagraph_capture_size (512 where that is open). ``min_size`` and ``max_size`` are the
        smallest and largest size of the first dim; the default list stays between them.

        Raises:
            CaptureSizesGivenTwice (SW129): ``sizes`` differ from the config's own.
            SizeOutOfRange (SW130): a capture size is outside ``min_size``..``max_size``.
            What construction raises for ``sizes``.
        """
        return _settle(self, sizes, min_size, max_size)

    def compile_ranges(self, max_size: int, min_size: int = 1) -> list[tuple[int, int]]:
        """The ranges of sizes that compile_ranges_endpoints cut, as inclusive (start, end) pairs.

        Raises SW130 for an endpoint outside min_size..max_size.
        """
        return sizes.compile_ranges(self.compile_ranges_endpoints, max_size, min_size)

    def resolve(
        self,
        *,
        dims: Mapping[str, tuple[int, int]] | None = None,
        device: str = "cpu",
        decode: Mapping[str, int] | None = None,
    ) -> Resolved:
        """The effective config, with who set each field and what was filled in.

        ``dims`` are name -> (min, max) in the order of their declaration; None leaves sizes unchecked.
        ``decode`` are the sizes that decode batches have, for the modes that treat them in their own way.

        Raises:
            WrongType (SW104): ``dims`` is no dict.
            NotAvailableYet (SW105): a setting whose feature does not exist yet.
            SizeOutOfRange (SW130): a size outside the first dim.
            SettingWithoutEffect (SW132), UnsupportedDevice (SW133), InvalidDimRange (SW134).
            UnknownInductorOption (SW138): this torch has no such option.
            PiecewiseWithoutCompilation (SW142), NoPiecesToCapture (SW143), DecodeNotDeclared (SW144),
            DecodeDoesNotFit (SW145).
        """
        return resolve(self, dims=dims, device=device, decode=decode)


def _settle(
    config: CompilationConfig, given: CaptureSizes | None, min_size: int, max_size: int | None
) -> CompilationConfig:
    sizes.positive_int("min_size", min_size)
    largest = min_size if max_size is None else sizes.positive_int("max_size", max_size)
    if largest < min_size:
        raise sizes.empty_interval(min_size, largest)
    configured = config.cudagraph_capture_sizes
    if given is not None:
        given = sizes.checked_capture_sizes(given)
        if configured is not None and configured != given:
            raise errors.CaptureSizesGivenTwice(given=given, configured=configured)
    capture = given or configured or _default_sizes(config.max_cudagraph_capture_size, min_size, max_size)
    first = sizes.sizes_of_first_dim(capture)
    bound = first[-1] if max_size is None else max_size
    sizes.check_within("cudagraph_capture_sizes", first, None, min_size, bound)
    changes: dict[str, Any] = {"cudagraph_capture_sizes": capture}
    if config.compile_sizes is not None:
        changes["compile_sizes"] = sizes.settled_compile_sizes(config.compile_sizes, first)
    return config.replace(**changes)


def _default_sizes(maximum: int | None, min_size: int, max_size: int | None) -> list[int]:
    """The default list; a maximum that was set is on it, and so are the dim's ends where they fit."""
    if maximum is None:
        maximum = max(min_size, min(sizes.LARGEST_DEFAULT, max_size or sizes.LARGEST_DEFAULT))
        also = [min_size, max_size or min_size]
    else:
        bound = maximum if max_size is None else max_size
        sizes.check_within("max_cudagraph_capture_size", [maximum], None, min_size, bound)
        also = [min_size, maximum]
    return [size for size in sizes.default_capture_sizes(maximum, also=also) if size >= min_size]
