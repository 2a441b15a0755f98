"""Sizes of declared axes as positive symbols: what torch then need not write down as ``Max(1, size)``.

Torch makes an unbacked size a symbol of any sign, and strides made from it keep a ``Max(1, size)`` that every
simplification afterwards works on. The sizes of a `Dim` start at 1: the entry check says so.

Private API: ``ShapeEnv.create_unbacked_symint`` with its ``source``, ``symbolic_shapes.make_symbol``. Checked on torch
2.13.0. Where one is missing, sizes stay symbols of any sign.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def positive_sizes() -> Iterator[None]:
    """Within, unbacked symbols of the sizes of inputs that this thread makes are positive.

    The caller traces alone (`dynamo.TRACING`).
    """
    from torch._dynamo.source import TensorPropertySource
    from torch.fx.experimental import symbolic_shapes

    create = getattr(symbolic_shapes.ShapeEnv, "create_unbacked_symint", None)
    make = getattr(symbolic_shapes, "make_symbol", None)
    if create is None or make is None:
        yield
        return
    thread = threading.get_ident()

    def make_positive(*args: Any, **kwargs: Any) -> Any:
        return make(*args, **(kwargs if threading.get_ident() != thread else {**kwargs, "positive": True}))

    def create_positive(self: Any, source: Any = None) -> Any:
        if threading.get_ident() != thread or not isinstance(source, TensorPropertySource):
            return create(self, source)
        with _made_by(symbolic_shapes, make_positive):
            return create(self, source)

    symbolic_shapes.ShapeEnv.create_unbacked_symint = create_positive
    try:
        yield
    finally:
        symbolic_shapes.ShapeEnv.create_unbacked_symint = create


@contextmanager
def _made_by(module: Any, make: Any) -> Iterator[None]:
    original = module.make_symbol
    module.make_symbol = make
    try:
        yield
    finally:
        module.make_symbol = original
