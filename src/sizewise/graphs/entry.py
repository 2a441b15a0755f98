"""What a wrapper keeps of one capture, and how a later call is compared with it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .backend import Capture, Session
from .values import leaves, map_tensors, outline

Layout = tuple[torch.Size, torch.dtype, torch.device, tuple[int, ...]]


@dataclass
class Arguments:
    """One call's arguments, keywords by name: its tensors, and the outline of all the rest; and its autocast."""

    values: tuple[tuple[Any, ...], dict[str, Any]]
    tensors: list[torch.Tensor]
    outline: Any
    autocast: tuple[torch.dtype | None, ...]

    @classmethod
    def read(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Raises CannotCapture: an argument of a class that may hold tensors where they are not found."""
        values = (args, dict(sorted(kwargs.items())))
        tensors: list[torch.Tensor] = []
        return cls(values, tensors, outline(values, tensors), autocast())

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other tensors in the place of their own."""
        given = iter(tensors)
        made: tuple[tuple[Any, ...], dict[str, Any]] = map_tensors(self.values, lambda _: next(given))
        return made

    def where(self, index: int) -> str:
        """The name of a tensor among the arguments."""
        return [name for name, value in self.named() if isinstance(value, torch.Tensor)][index]

    def named(self) -> list[tuple[str, Any]]:
        args, kwargs = self.values
        found = [one for index, value in enumerate(args) for one in leaves(value, f"args[{index}]")]
        return [*found, *(one for name, value in kwargs.items() for one in leaves(value, name))]


class Call:
    """The runnable as a function of tensors alone."""

    def __init__(self, runnable: Callable[..., Any], values: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        self._runnable, self._values = runnable, values

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        args, kwargs = map_tensors(self._values, lambda _: next(given))
        return self._runnable(*args, **kwargs)


class Weights:
    """Where the tensors of a runnable were when it was captured."""

    def __init__(self, places: list[tuple[MutableMapping[str, Any], str]], loose: Sequence[torch.Tensor]) -> None:
        self._places = [(container, name, container[name].data_ptr()) for container, name in places]
        self._loose = [(tensor, tensor.data_ptr()) for tensor in loose]

    @classmethod
    def of(cls, runnable: Any, loose: Sequence[torch.Tensor] | None) -> Weights:
        """``loose``: tensors to compare by themselves, instead of those of the module that the runnable belongs to."""
        owner = runnable if isinstance(runnable, torch.nn.Module) else getattr(runnable, "__self__", None)
        if loose is not None or not isinstance(owner, torch.nn.Module):
            return cls([], loose or ())
        places: list[tuple[MutableMapping[str, Any], str]] = []
        for module in owner.modules():
            for container in (module._parameters, module._buffers):
                places += [(container, name) for name, tensor in container.items() if tensor is not None]
        return cls(places, ())

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (*(container[name] for container, name, _ in self._places), *(tensor for tensor, _ in self._loose))

    def moved(self) -> bool:
        """Whether one was replaced, or moved to another address. A module that was added is not seen."""
        for container, name, address in self._places:
            tensor = container.get(name)
            if tensor is None or tensor.data_ptr() != address:
                return True
        return any(tensor.data_ptr() != address for tensor, address in self._loose)


@dataclass
class Entry:
    """One capture. ``inputs``: the tensors whose addresses a replay needs, where inputs are not copied."""

    capture: Capture
    session: Session
    outline: Any
    autocast: tuple[torch.dtype | None, ...]
    layouts: list[Layout]
    weights: Weights
    inputs: list[torch.Tensor]

    def released(self) -> bool:
        """Whether its session was given up, as one is whose block raised; backends may not tell."""
        return getattr(self.capture, "released", False)

    @staticmethod
    def layout(tensor: torch.Tensor) -> Layout:
        return tensor.shape, tensor.dtype, tensor.device, tensor.stride()


def autocast() -> tuple[torch.dtype | None, ...]:
    """The dtype that operators are cast to on a CPU and on a GPU; None where autocast is off."""
    return tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None for kind in ("cpu", "cuda")
    )


def differs(entry: Entry, given: Arguments, strides: bool) -> tuple[str, str, str] | None:
    """(argument, expected, seen) of the first difference between a call and the captured one; None without any.

    Memory is copied element by element, so strides count only where it is not copied.
    """
    if given.outline != entry.outline:
        return "its other arguments", _words(entry.outline), _words(given.outline)
    if given.autocast != entry.autocast:
        return "autocast (CPU, CUDA)", str(entry.autocast), str(given.autocast)
    end = 4 if strides else 3
    for index, (tensor, layout) in enumerate(zip(given.tensors, entry.layouts, strict=True)):
        seen = Entry.layout(tensor)
        if seen[:end] != layout[:end]:
            return given.where(index), _layout_words(layout, strides), _layout_words(seen, strides)
    return None


def written(mine: Sequence[torch.Tensor], versions: Sequence[int], given: Sequence[torch.Tensor]) -> int | None:
    """The first of the copies that was written since it was made of ``given``, or None.

    Operators count their writes in the version; kernels of compiled code do not, so the bits are compared too.
    """
    for index, (copied, version, original) in enumerate(zip(mine, versions, given, strict=True)):
        if copied._version != version or not _same_bits(copied, original):
            return index
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    plain = (tensor.detach().resolve_conj().resolve_neg().contiguous() for tensor in (one, other))
    flat = [tensor.view(-1).view(torch.uint8) for tensor in plain]
    return torch.equal(*flat)


def _layout_words(layout: Layout, strides: bool) -> str:
    shape, dtype, device, stride = layout
    return f"{tuple(shape)} {dtype} on {device}{f' with strides {stride}' if strides else ''}"


def _words(seen: Any) -> str:
    """An outline as a person would write it."""
    if seen is torch.Tensor:
        return "tensor"
    kind, value = seen
    if not isinstance(value, list):
        return repr(value)
    if value and isinstance(value[0], tuple) and len(value[0]) == 2 and isinstance(value[0][0], str):
        return f"{{{', '.join(f'{name}: {_words(part)}' for name, part in value)}}}"
    return f"({', '.join(map(_words, value))})" if kind is tuple else f"[{', '.join(map(_words, value))}]"
