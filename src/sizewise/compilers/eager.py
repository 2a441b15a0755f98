"""The piece as torch would run it: no compiler, for debugging and where none is installed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from .base import Artifact


class EagerCompiler:
    name = "eager"

    def compile(
        self, graph: fx.GraphModule, example_inputs: Sequence[Any], fake_mode: Any, options: Mapping[str, Any]
    ) -> Artifact:
        started = time.perf_counter()
        forward = graph.forward

        def run(inputs: list[Any]) -> Sequence[Any]:
            result: Sequence[Any] = forward(*inputs)
            return result

        return Artifact(run, self.name, True, graph.code, time.perf_counter() - started)
