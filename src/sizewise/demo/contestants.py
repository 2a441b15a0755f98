"""The contestants: how each is started, called, and asked what it compiled. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .encoder import Tokens
from .traffic import MAX_BATCH, MAX_TOKENS


class Contestant(Protocol):
    def start(self, model: Any, example: Tokens) -> None:
        """Everything the user of this way does before the first call."""

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        """The hidden states."""

    def compilations(self) -> int:
        """Traces and compilations so far."""

    def calls_by_path(self) -> dict[str, int]:
        """Calls so far, by what served them; empty where nobody counts."""


class Sizewise:
    def __init__(self, progress: Callable[[str, float], None]) -> None:
        self._progress = progress
        self._captured: Sizewise | None = None

    def start(self, model: Any, example: Tokens, **options: Any) -> None:
        import sizewise

        batch, seq = sizewise.Dim("batch", min=1, max=MAX_BATCH), sizewise.Dim("seq", min=1, max=MAX_TOKENS)
        shapes = {"input_ids": {0: batch, 1: seq}, "attention_mask": {0: batch, 1: seq}}
        self.fast = sizewise.compile(model, dynamic_shapes=shapes, **options)
        self.fast.warmup_many([((), example)], progress=lambda event: self._progress(event.name, event.seconds))

    def captured(self, example: Tokens, sizes: Sequence[Sequence[int]]) -> Sizewise:
        """The same model with ``sizes``, each (batch, seq), captured; its programs are in the cache by now."""
        if self._captured is None:
            self._captured = Sizewise(lambda name, seconds: None)
            points = [tuple(size) for size in sizes]
            self._captured.start(self.fast.__wrapped__, example, cudagraph_mode="FULL", cudagraph_capture_sizes=points)
        return self._captured

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        hidden: torch.Tensor = self.fast(**tokens).last_hidden_state
        return hidden

    def save(self, path: str) -> None:
        self.fast.save(path)

    def compilations(self) -> int:
        counters = self.fast.counters
        return int(counters.traces + counters.compilations + counters.captures)

    def calls_by_path(self) -> dict[str, int]:
        counters = self.fast.counters
        paths = {path: getattr(counters, f"calls_{path}") for path in ("capture", "program", "eager")}
        return {**paths, "misses": counters.misses}


class SizewiseFromBundle(Sizewise):
    """What a process does that only serves."""

    def __init__(self, bundle: str) -> None:
        super().__init__(lambda name, seconds: None)
        self._bundle = bundle

    def start(self, model: Any, example: Tokens, **options: Any) -> None:
        import sizewise

        self.fast = sizewise.load(self._bundle, model)


class TorchCompile:
    """``torch.compile(dynamic=True)``, as its documentation says to use it for changing sizes."""

    def start(self, model: Any, example: Tokens) -> None:
        self.model = torch.compile(model, dynamic=True)

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        hidden: torch.Tensor = self.model(**tokens).last_hidden_state
        return hidden

    def compilations(self) -> int:
        """Graphs that Dynamo handed to the compiler."""
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def calls_by_path(self) -> dict[str, int]:
        return {}


class Eager:
    def start(self, model: Any, example: Tokens) -> None:
        self.model = model

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        hidden: torch.Tensor = self.model(**tokens).last_hidden_state
        return hidden

    def compilations(self) -> int:
        return 0

    def calls_by_path(self) -> dict[str, int]:
        return {}


def contestant_named(name: str, progress: Callable[[str, float], None]) -> Contestant:
    if name == "sizewise":
        return Sizewise(progress)
    return TorchCompile() if name == "torch.compile" else Eager()
