"""Lists of sizes and ranges, as pure functions. A size counts elements along a dim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import config as errors

CAPTURE_SIZES = "cudagraph_capture_sizes"
LARGEST_DEFAULT = 512

CaptureSizes = list[int] | dict[str, list[int]] | list[tuple[int, ...]]


def wrong_type(field: str, value: object, wanted: str) -> errors.WrongType:
    return errors.WrongType(field=field, value=value, kind=type(value).__name__, wanted=wanted)


def positive_int(field: str, value: Any) -> int:
    """The value, if it is an int (not a bool) of at least 1. Raises SW104, SW115."""
    if type(value) is not int:
        raise wrong_type(field, value, "an int")
    if value < 1:
        raise errors.NotPositive(field=field, value=value)
    return value


def default_capture_sizes(max_size: int, *, also: Iterable[int] = ()) -> list[int]:
    """vLLM's list up to ``max_size``: 1, 2, 4, by 8 below 256, by 16 from there.

    ``also`` are sizes to list beside the grid, as far as they do not exceed ``max_size``.
    """
    grid = [1, 2, 4, *range(8, 256, 8), *range(256, max_size + 1, 16)]
    return sorted({size for size in (*grid, *also) if size <= max_size})


def compile_ranges(endpoints: Sequence[int] | None, max_size: int, min_size: int = 1) -> list[tuple[int, int]]:
    """Inclusive (start, end) pairs: [min, e0], [e0+1, e1], ..., [last+1, max].

    Raises SW130 for an endpoint outside min_size..max_size, which would cut nothing, SW134 for an
    empty interval.
    """
    if min_size > max_size:
        raise empty_interval(min_size, max_size)
    ends = sorted(set(endpoints or ()))
    check_within("compile_ranges_endpoints", ends, None, min_size, max_size)
    ends = [end for end in ends if end < max_size] + [max_size]
    starts = [min_size, *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def check_within(field: str, sizes: Iterable[int], dim: str | None, minimum: int, maximum: int) -> None:
    """Raises SW130 for the first size outside minimum..maximum; ``dim`` is None where these were given as arguments."""
    for size in sizes:
        if minimum <= size <= maximum:
            continue
        low, high = min(size, minimum), max(size, maximum)
        if dim is None:
            where = "min_size and max_size"
            wider = f"pass max_size={high}" if size > maximum else f"pass min_size={low}"
        else:
            where = f"the first dim {dim!r}"
            wider = f"let dim {dim!r} go from {low} to {high} (sizes in settings are about the dim declared first)"
        raise errors.SizeOutOfRange(field=field, size=size, dim=where, minimum=minimum, maximum=maximum, wider=wider)


def empty_interval(min_size: int, max_size: int) -> errors.InvalidDimRange:
    instead = "pass a max_size that is not below min_size, by name: max_size=64, min_size=1"
    return errors.InvalidDimRange(field="(min_size, max_size)", value=(min_size, max_size), instead=instead)


def checked_compile_sizes(value: object) -> list[int | str] | None:
    """Ints of at least 1 and the word 'cudagraph_capture_sizes'. Raises SW104, SW114, SW115."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type("compile_sizes", value, "a list of ints or None")
    for index, size in enumerate(value):
        if not isinstance(size, str):
            positive_int(f"compile_sizes[{index}]", size)
        elif size != CAPTURE_SIZES:
            raise errors.UnrecognizedCompileSize(size=size, compile_sizes=value)
    return list(value)


def checked_endpoints(value: object) -> list[int] | None:
    """Sorted, without duplicates. Raises SW104, SW116."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type("compile_ranges_endpoints", value, "a list of ints or None")
    for index, endpoint in enumerate(value):
        if type(endpoint) is not int:
            raise wrong_type(f"compile_ranges_endpoints[{index}]", endpoint, "an int")
        if endpoint <= 0:
            raise errors.InvalidRangeEndpoint(endpoint=endpoint, endpoints=value)
    return sorted(set(value))


def checked_capture_sizes(value: object) -> CaptureSizes | None:
    """Sorted, without duplicates: ints for one dim, a grid by dim or tuples for several.

    Raises SW104, SW115, SW118, SW119.
    """
    if value is None:
        return None
    if not isinstance(value, list | dict):
        raise wrong_type(CAPTURE_SIZES, value, "a list of ints, a list of tuples, a dict of lists or None")
    if not value:
        raise errors.NoCaptureSizes(field=CAPTURE_SIZES, sizes=value)
    if isinstance(value, dict):
        return {_dim_name(name): _sorted_ints(f"{CAPTURE_SIZES}[{name!r}]", v) for name, v in value.items()}
    # JSON has no tuples, so an inner list means one.
    if any(isinstance(size, tuple | list) for size in value):
        return _sorted_tuples(value)
    return _sorted_ints(CAPTURE_SIZES, value)


def sizes_of_first_dim(sizes: CaptureSizes) -> list[int]:
    """The first dim's sizes, ascending; compile_sizes and ranges follow the first dim."""
    if isinstance(sizes, dict):
        return next(iter(sizes.values()))
    return sorted({size[0] if isinstance(size, tuple) else size for size in sizes})


def settled_compile_sizes(compile_sizes: Sequence[int | str] | None, capture: list[int]) -> list[int] | None:
    """Ascending ints without duplicates, the word replaced by the capture sizes."""
    if compile_sizes is None:
        return None
    listed = {size for size in compile_sizes if isinstance(size, int)}
    return sorted(listed.union(capture) if CAPTURE_SIZES in compile_sizes else listed)


def _dim_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise wrong_type(f"{CAPTURE_SIZES}'s key", name, "the name of a dim")
    return name


def _sorted_ints(field: str, value: object) -> list[int]:
    if not isinstance(value, list):
        raise wrong_type(field, value, "a list of ints")
    if not value:
        raise errors.NoCaptureSizes(field=field, sizes=value)
    return sorted({positive_int(f"{field}[{index}]", size) for index, size in enumerate(value)})


def _sorted_tuples(value: list[Any]) -> list[tuple[int, ...]]:
    lengths = {len(size) if isinstance(size, tuple | list) else 0 for size in value}
    if len(lengths) > 1 or 0 in lengths:
        raise errors.MixedCaptureSizes(sizes=value)
    return sorted(
        {
            tuple(positive_int(f"{CAPTURE_SIZES}[{index}][{axis}]", n) for axis, n in enumerate(size))
            for index, size in enumerate(value)
        }
    )
