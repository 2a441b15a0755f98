"""The key a program is looked up by before anything is traced: all that is known by then and changes the code.

As in ccache there are two levels. What only a trace finds out, the source files and Python values it went through, is
in each candidate's manifest and compared before it is used (`files.read_programs`). Not in the key: where the model's
code lies, names given to layers, the rank, weights.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..ambient import NAMES
from ..calls import Call
from ..dims import DimSpec
from ..passes import PASSES, digests
from . import machine

Factors = dict[str, Any]

_PREFIXES = ("TORCHINDUCTOR_", "TORCH_COMPILE_", "TORCHDYNAMO_")
_NO_FACTORS = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_COMPILE_THREADS")
"""Variables that say where and how fast, and not what."""


def factors(
    module: nn.Module,
    method: str,
    call: Call,
    spec: DimSpec,
    device_type: str,
    state: tuple[Any, ...],
    config: Mapping[str, Any],
) -> Factors:
    """Everything by name; all JSON. ``config`` are the settings that the user set."""
    cls = type(module)
    tensors, constants, shells = call.key()
    return {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "method": method,
        "modules": [f"{name}: {_class_of(part)}" for name, part in module.named_modules()],
        "tensors": _tensors(module),
        "arguments": [list(tensors), [[path, repr(text)] for path, _, text in constants], [repr(s) for s in shells]],
        "argument tensors": _arguments(call, spec),
        "dims": sorted(
            [path, axis, dim.name, dim.min, dim.max] for path, axes in spec.items() for axis, dim in axes.items()
        ),
        "config": dict(config),
        "device": _device(device_type),
        "passes": digests(PASSES),
        **{name: str(value) for name, value in zip(NAMES, state, strict=True)},
        **machine.versions(),
        "processor": hashlib.sha256(" ".join(machine.processor_flags()).encode()).hexdigest(),
        "environment": _environment(),
        "inductor": _inductor_settings(),
    }


def key_of(found: Factors) -> str:
    """SHA-256 (hex) over the factors."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def nearest(found: Factors, entries: Iterable[Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """Of cached ``entries`` the id of the one whose factors differ least from ``found``, and what differs.

    Each difference is (factor, there, here). ('', []) where none is of the same class, of one with the same name, or
    of the same tensors: what differs from a stranger says nothing.
    """
    best: tuple[str, list[tuple[str, str, str]]] = ("", [])
    here = json.loads(json.dumps(found))
    for entry in entries:
        saved = entry.manifest.get("factors")
        if not isinstance(saved, dict) or not _related(saved, here):
            continue
        differing = [
            (name, *_shown(saved.get(name), here.get(name)))
            for name in sorted(saved.keys() | here.keys())
            if saved.get(name) != here.get(name)
        ]
        # Another class is another program, however much else is the same.
        if not best[0] or _distance(differing) < _distance(best[1]):
            best = (entry.id, differing)
    return best


def _related(saved: Factors, here: Factors) -> bool:
    """Whether one may be the other after an edit: a class that was renamed, or moved to another module."""
    names = [str(factors.get("class")).rpartition(".")[2] for factors in (saved, here)]
    return names[0] == names[1] or bool(here.get("tensors") and saved.get("tensors") == here["tensors"])


def _distance(differing: list[tuple[str, str, str]]) -> int:
    return sum(100 if name == "class" else 1 for name, _, _ in differing)


def _shown(saved: Any, here: Any) -> tuple[str, str]:
    """What differs in two values; of lists and dicts the first items that do."""
    if isinstance(saved, dict) and isinstance(here, dict):
        saved, here = sorted(map(str, saved.items())), sorted(map(str, here.items()))
    if isinstance(saved, list) and isinstance(here, list):
        pairs = ((a, b) for a, b in itertools.zip_longest(saved, here, fillvalue="nothing") if a != b)
        saved, here = next(pairs, (saved, here))
    return str(saved), str(here)


def _class_of(part: nn.Module) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _tensors(module: nn.Module) -> list[str]:
    """Every parameter and buffer: shape, strides, dtype, device, and which one before it is the same."""
    seen: dict[int, str] = {}
    found = []
    for kind, named in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            same = seen.setdefault(id(tensor), name)
            tied = f" is {same}" if same != name else ""
            found.append(f"{kind} {name} {tuple(tensor.shape)} {_strides(tensor)} {tensor.dtype} {tensor.device}{tied}")
    return found


def _strides(tensor: torch.Tensor) -> str:
    return str(tensor.stride()) if tensor.layout == torch.strided else str(tensor.layout)


def _arguments(call: Call, spec: DimSpec) -> list[str]:
    """Dtype, device, and the sizes that are no dims; whether it is contiguous does not matter, a copy is made."""
    found = []
    for leaf in call.tensors():
        axes = spec.get(leaf.path, {})
        sizes = [axes[axis].name if axis in axes else size for axis, size in enumerate(leaf.value.shape)]
        found.append(f"{leaf.path} {sizes} {leaf.value.dtype} {leaf.value.device}")
    return found


def _device(device_type: str) -> str:
    if device_type == "cuda":
        major, minor = torch.cuda.get_device_capability()
        return f"{device_type} {torch.cuda.get_device_name()} {major}.{minor}"
    return device_type


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) and name not in _NO_FACTORS
    }


def _inductor_settings() -> dict[str, str]:
    """What was set in ``torch._inductor.config``, where that is imported; nothing is imported to find out.

    Private API: ``ConfigModule._config`` with ``default``, ``env_value_default`` and ``env_value_force`` of its
    entries, ``get_config_copy``. Checked on torch 2.13.0. Where they are missing, a change there is not noticed.
    """
    config = sys.modules.get("torch._inductor.config")
    entries, copy = getattr(config, "_config", None), getattr(config, "get_config_copy", None)
    if not entries or copy is None:
        return {}
    values, found = copy(), {}
    for name, entry in sorted(entries.items()):
        # What a build had set for its time is put back as a setting of its own, equal to the default.
        if name in values and repr(values[name]) not in _defaults(entry):
            found[name] = repr(values[name])
    return found


def _defaults(entry: Any) -> set[str]:
    """The default, and what environment variables, which are a factor of their own, make of it."""
    return {repr(getattr(entry, name, None)) for name in ("default", "env_value_default", "env_value_force")}
