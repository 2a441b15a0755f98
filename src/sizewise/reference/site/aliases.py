"""Names of pages other than their ids.

Sizewise's own errors answer to their code and slug as well. An indexed error answers to its id and to what was
written as an alias; slugs of indexed errors are shared by many records and name none of them.

The ids and slugs of three records that were published elsewhere for vLLM answer too: with vLLM's own error where vLLM
is indexed, else with the error of Sizewise that starts with the same words (whose slug may be the same).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors.record import holes_emptied
from ..store import Stored


@dataclass(frozen=True)
class Published:
    """An error that was published under names that are not ours."""

    names: tuple[str, ...]
    error_class: str
    template: str
    code: str
    """Sizewise's error with the same words."""


PUBLISHED = (
    Published(
        ("82c172d787b6e198", "cuda-graph-capturing-detected-at-an-inappropriate"),
        "RuntimeError",
        "CUDA graph capturing detected at an inappropriate time. This operation is currently disabled.",
        "SW601",
    ),
    Published(
        ("ddc0dd9b4500d875", "cudagraph-capture-sizes-not-supported-in-compile-s"),
        "NotImplementedError",
        "cudagraph_capture_sizes not supported in compile_sizes.This should be handled in `post_init_cudagraph_sizes`.",
        "SW101",
    ),
    Published(
        ("785b2071474ad1f2", "invalid-backend-for-piecewise-compilation-self-bac"),
        "ValueError",
        "Invalid backend for piecewise compilation: {self.backend}",
        "SW109",
    ),
)


def published_of(stored: Stored) -> Published | None:
    """The published error that an indexed record is, by package, class and template."""
    if stored.distribution.name != "vllm":
        return None
    # The scan writes the classes of a package with their module.
    key = ((stored.error_class or "").rpartition(".")[2], holes_emptied(stored.template))
    return next((one for one in PUBLISHED if (one.error_class, holes_emptied(one.template)) == key), None)


def published_as(code: str) -> Published | None:
    """The published error that starts with the same words as Sizewise's error of this code."""
    return next((one for one in PUBLISHED if one.code == code), None)
