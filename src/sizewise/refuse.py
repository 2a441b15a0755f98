"""Modules that cannot be traced once and replayed yet, refused by name before any work is done."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from .errors import trace as errors

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def refuse_unsupported(module: nn.Module, owner: str) -> torch.device | None:
    """The module's one device (None without tensors).

    Raises:
        TrainingMode (SW214), UnsupportedModule (SW215).
    """
    refuse_training(module, owner)
    for name, part in module.named_modules():
        _refuse_module(part, name or "the module itself", owner)
    devices: dict[torch.device, str] = {}
    for name, tensor in _tensors(module):
        _refuse_tensor(tensor, name, owner)
        devices.setdefault(tensor.device, name)
    if len(devices) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in devices.items())
        _refuse(owner, f"its tensors are on several devices ({places})", "the module", "move it to one device.")
    device = next(iter(devices), None)
    if device is not None and device.type not in ("cpu", "cuda"):
        hint = "move the module to the CPU, or to a CUDA device."
        _refuse(owner, f"a module on {device.type}", "the module", hint)
    return device


def refuse_training(module: nn.Module, owner: str) -> None:
    """Raises TrainingMode (SW214)."""
    for name, part in module.named_modules():
        if part.training:
            raise errors.TrainingMode(owner=owner, submodule=f"{name or 'the module itself'}: {type(part).__name__}")


def _tensors(module: nn.Module) -> Any:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _refuse_module(part: nn.Module, name: str, owner: str) -> None:
    if hasattr(part, "_hf_hook"):
        hint = "load the model without device_map, or remove the hooks with accelerate.hooks.remove_hook_from_module."
        _refuse(owner, "a module with accelerate hooks", name, hint)
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(part, (fsdp.FullyShardedDataParallel, fsdp.FSDPModule)):
        _refuse(owner, "an FSDP module", name, "compile the module before it is sharded.")
    if isinstance(part, torch.jit.ScriptModule):
        _refuse(owner, "a TorchScript module", name, "compile the Python module it was made from.")
    if isinstance(part, nn.modules.lazy.LazyModuleMixin) and part.has_uninitialized_params():
        _refuse(owner, "a lazy module without shapes", name, "run it once, so that its parameters exist.")


def _refuse_tensor(tensor: torch.Tensor, name: str, owner: str) -> None:
    if type(tensor) not in _PLAIN:
        cls = type(tensor)
        hint = "use plain tensors; tensor subclasses are not supported yet."
        _refuse(owner, f"a tensor subclass ({cls.__module__}.{cls.__qualname__})", name, hint)
    if tensor.is_quantized:
        _refuse(owner, "a quantized tensor", name, "use the unquantized module.")
    if tensor.layout != torch.strided:
        _refuse(owner, f"a tensor with layout {tensor.layout}", name, "convert it with to_dense().")
    if tensor.is_meta:
        _refuse(owner, "a tensor on the meta device, without data", name, "load the weights first.")


def _refuse(owner: str, what: str, path: str, hint: str) -> None:
    raise errors.UnsupportedModule(owner=owner, what=what, path=path, hint=hint)
