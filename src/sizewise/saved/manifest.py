"""The manifest of saved programs: what they are, for what and with what they were built, and when."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import nn

from ..built import Built, Outcome
from ..calls import Signature
from ..dispatch import Entry
from . import machine
from .files import Differs, Files, Json, read_programs, write_programs

if TYPE_CHECKING:
    from ..config.compilation import CompilationConfig

NOT_KEPT = ("cache_dir",)
"""Settings that are about this machine, and nothing about the programs."""


def make(
    owner: str,
    module: nn.Module,
    method: str,
    entries: Sequence[Entry],
    outcomes: Sequence[Outcome],
    config: CompilationConfig,
    disproved: str = "",
    decode: Mapping[str, int] | None = None,
) -> tuple[Json, Files]:
    """The manifest of ``entries`` and their files; ``disproved`` as `write_programs` takes it; ``decode`` as
    `Built` has it.

    Raises:
        NotWritable: one of them cannot be saved.
    """
    programs, files = write_programs(entries, disproved)
    return {
        "owner": owner,
        "class": class_name(module),
        "method": method,
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sizes": {
            dim.name: f"{dim.min} to {dim.max}"
            for axes in entries[0].program.traced.spec.values()
            for dim in axes.values()
        },
        "versions": machine.versions(),
        "processor": machine.processor_flags(),
        "config": {name: value for name, value in json.loads(config.to_json()).items() if name not in NOT_KEPT},
        "decode": None if decode is None else dict(decode),
        "outcomes": [asdict(outcome) for outcome in outcomes],
        **programs,
    }, files


def load(
    manifest: Json, read: Callable[[str], bytes], module: nn.Module, method: str, signature: Signature, forward: Any
) -> Built:
    """The programs of a manifest, bound to ``module``.

    Raises:
        Differs: something is not what they were built for; the first that is found.
        NotThere: an operator, function or class they need is not in this process.
        Exception: the manifest is not one that `make` made.
    """
    for factor, saved, seen in machine.differences(manifest):
        raise Differs(factor, saved, seen)
    for factor, saved, seen in (
        ("class", manifest["class"], class_name(module)),
        ("method", manifest["method"], method),
    ):
        if saved != seen:
            raise Differs(f"the module's {factor}", saved, seen)
    entries = read_programs(manifest, read, module, signature, forward)
    outcomes = [Outcome(item["sizes"], item["verdict"], item["why"]) for item in manifest["outcomes"]]
    traced = entries[0].program.traced
    return Built(entries, traced.spec, None, outcomes, entries[0].state, manifest["config"], manifest.get("decode"))


def class_name(module: nn.Module) -> str:
    cls = type(module)
    return f"{cls.__module__}.{cls.__qualname__}"
