"""What a worker does with its contestant: start it, serve the traffic, measure, check. Runs in the worker."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch

from .contestants import Contestant, Sizewise, contestant_named
from .corpus import QUERIES, load_sentences
from .encoder import Encoder, Tokens, pool
from .results import OWN
from .traffic import MAX_BATCH

if TYPE_CHECKING:
    from .worker import Events

NEAREST = 3


class Texts:
    """The encoder with its weights, and the job's batches as tokens."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.encoder = Encoder()
        self.sentences = [sentence.text for sentence in load_sentences()]
        # Tokenising is the same for all and is not what is compared.
        self.requests = [self._tokens(request) for request in job["requests"]]
        self.example = self._tokens(job["example"])

    def _tokens(self, request: Sequence[int]) -> Tokens:
        return self.encoder.tokens([self.sentences[index] for index in request])


def serve(job: dict[str, Any], events: Events, orders: SimpleQueue[dict[str, Any]]) -> None:
    """Run one contestant through the job's traffic, report everything as events, then do as ordered."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    began = time.perf_counter()
    texts = Texts(job)
    encoder, requests = texts.encoder, texts.requests
    events.send("ready", seconds=time.perf_counter() - began)
    contestant = contestant_named(job["contestant"], lambda name, s: events.send("phase", name=name, seconds=s))
    with torch.no_grad():
        began = time.perf_counter()
        contestant.start(encoder.model, texts.example)
        first = contestant(texts.example)
        events.send("first", seconds=time.perf_counter() - began)
        before = contestant.calls_by_path()
        served = _serve_traffic(contestant, requests, events)
        after = contestant.calls_by_path()
        events.send("paths", paths={path: after[path] - before[path] for path in after})
        events.send("answers", digests=[digest(answer) for answer in (first, *served)])
        if job["contestant"] != "eager":
            _compare_with_eager(served, encoder.model, requests, events)
        del served
        if job["contestant"] == OWN:
            _find_nearest(contestant, encoder, texts.sentences, events)
        events.send("done")
        while True:
            _obey(orders.get(), contestant, texts, events)


def _obey(order: dict[str, Any], contestant: Contestant, texts: Texts, events: Events) -> None:
    if "time" in order:
        batch, seq = order["time"]
        if order["captured"] and isinstance(contestant, Sizewise):
            contestant = contestant.captured(texts.example, order["captured"])
        _time_once(contestant, texts.encoder, texts.sentences, batch, seq, events)
    elif "save" in order and isinstance(contestant, Sizewise):
        began = time.perf_counter()
        contestant.save(order["save"])
        events.send("saved", seconds=time.perf_counter() - began)
    elif "serve" in order:
        # Until it is killed.
        for tokens in itertools.cycle(texts.requests):
            contestant(tokens)
            events.send("served")


def digest(answer: torch.Tensor) -> str:
    """Equal for answers that are equal bit for bit, their shapes and dtypes included."""
    raw = answer.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{answer.dtype} {tuple(answer.shape)} ".encode() + raw).hexdigest()


def _serve_traffic(contestant: Contestant, requests: Sequence[Tokens], events: Events) -> list[torch.Tensor]:
    """Call after call; the answers are kept, so that what is compared is what was served."""
    answers = []
    began = time.perf_counter()
    for number, tokens in enumerate(requests, 1):
        compiled = contestant.compilations()
        started = time.perf_counter()
        answers.append(contestant(tokens))
        ms = (time.perf_counter() - started) * 1000
        batch, seq = tokens["input_ids"].shape
        more = contestant.compilations() - compiled
        events.send("call", number=number, t=started - began, batch=batch, seq=seq, ms=ms, compilations=more)
    return answers


def _compare_with_eager(served: Sequence[torch.Tensor], model: Any, requests: Sequence[Tokens], events: Events) -> None:
    """The largest differences from eager over every request, after service so that it costs no call time.

    Hidden states of padding are nobody's result and are left out.
    """
    worst = {"embeddings": 0.0, "hidden_states": 0.0}
    for tokens, seen in zip(requests, served, strict=True):
        mask, expected = tokens["attention_mask"], model(**tokens).last_hidden_state
        hidden = (seen - expected).abs()[mask.bool()].max().item()
        pooled = (pool(seen, mask) - pool(expected, mask)).abs().max().item()
        worst["hidden_states"] = _larger(worst["hidden_states"], hidden)
        worst["embeddings"] = _larger(worst["embeddings"], pooled)
    events.send("checked", max_abs_error=worst)


def _larger(first: float, second: float) -> float:
    """The larger one, or NaN where there is one: `max` would lose it."""
    return second if second != second or second > first else first


def _find_nearest(contestant: Contestant, encoder: Encoder, texts: list[str], events: Events) -> None:
    """Embed every sentence and the queries, and report each query's neighbours."""
    stored = _embed(contestant, encoder, texts)
    asked = _embed(contestant, encoder, list(QUERIES))
    best = (asked @ stored.T).topk(NEAREST, dim=1)
    for row, query in enumerate(QUERIES):
        pairs = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
        events.send("nearest", query=query, sentences=[(texts[index], score) for index, score in pairs])


def _embed(contestant: Contestant, encoder: Encoder, texts: list[str]) -> torch.Tensor:
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    rows: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), MAX_BATCH):
        indices = order[start : start + MAX_BATCH]
        tokens = encoder.tokens([texts[index] for index in indices])
        rows.update(zip(indices, pool(contestant(tokens), tokens["attention_mask"]), strict=True))
    return torch.stack([rows[index] for index in range(len(texts))])


def _time_once(
    contestant: Contestant, encoder: Encoder, texts: list[str], batch: int, seq: int, events: Events
) -> None:
    """One timing at an exact size, on the longest sentences there are."""
    tokens = encoder.tokens(sorted(texts, key=len, reverse=True)[:batch], length=seq)
    # Another process has just used the caches of the CPU.
    contestant(tokens)
    started = time.perf_counter()
    contestant(tokens)
    events.send("timing", ms=(time.perf_counter() - started) * 1000)
