"""A fresh process that takes a killed one's place: to the first answer, then the same requests. Runs in the worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from .contestants import Contestant, SizewiseFromBundle, TorchCompile
from .results import OWN
from .service import Texts, digest
from .watch import Watch, compiler_modules, compilers

if TYPE_CHECKING:
    from .worker import Events


def serve_again(job: dict[str, Any], events: Events, watch: Watch) -> None:
    """Report the first answer, then what it took and the digests of all answers (the first one alone of a peer)."""
    torch.set_num_threads(1)
    texts = Texts(job)
    events.send("ready", seconds=0.0)
    before, known = compiler_modules(), len(watch.started)
    own = job["contestant"] == OWN
    contestant: Contestant = SizewiseFromBundle(job["bundle"]) if own else TorchCompile()
    with torch.no_grad():
        began = time.perf_counter()
        contestant.start(texts.encoder.model, texts.example)
        answers = [contestant(texts.example)]
        events.send("first", seconds=time.perf_counter() - began)
        answers += [contestant(tokens) for tokens in texts.requests] if own else []
    events.send(
        "again",
        digests=[digest(answer) for answer in answers],
        compilations=contestant.compilations(),
        children=watch.started[known:],
        imported=sorted(compiler_modules() - before),
        imported_before=sorted({".".join(name.split(".")[:2]) for name in before}),
        compilers=compilers(),
    )
    events.send("done")
