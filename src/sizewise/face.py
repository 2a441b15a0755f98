"""The original's face: what a compiled module shows of the module it stands for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn, Self

from torch import nn

from .errors import state as errors
from .errors import trace as trace_errors

_RUN_THE_ORIGINAL = ("generate", "generate_batch")
"""Methods of a transformers model that would call the original forward without saying so."""


class Face(nn.Module):
    """A module whose attributes are those of ``__wrapped__``, to read and to write.

    Who derives from it has ``_sw_owner``, the name that errors use, and ``state``.
    """

    _sw_owner: str

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The same as calling the module."""
        return self(*args, **kwargs)

    @property
    def training(self) -> bool:
        return bool(self.__dict__["__wrapped__"].training)

    def train(self, mode: bool = True) -> Self:
        """Refused for ``mode=True``; ``train(False)`` is `eval`, which changes nothing here.

        Raises:
            TrainRefused (SW504).
        """
        if mode:
            raise errors.TrainRefused(owner=self._sw_owner)
        self.__dict__["__wrapped__"].eval()
        return self

    def _refuse_training(self) -> NoReturn:
        raise trace_errors.TrainingMode(owner=self._sw_owner, submodule="the module itself")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """``.to()``, ``.half()`` and the like act on the original; what was built for it is stale."""
        self.__dict__["__wrapped__"]._apply(fn, recurse)
        return self

    def __getattr__(self, name: str) -> Any:
        if name in _RUN_THE_ORIGINAL and hasattr(self.__dict__["__wrapped__"], name):
            raise errors.GenerateRefused(owner=self._sw_owner, name=name)
        module = self.__dict__["__wrapped__"]
        try:
            return getattr(module, name)
        except AttributeError:
            _refuse_failing_property(module, name)
            wrapped = type(module).__name__
            raise errors.ForwardedMissing(owner=type(self).__name__, name=name, wrapped=wrapped) from None

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["__wrapped__"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["__wrapped__"], name)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.__dict__["__wrapped__"])

    def __getitem__(self, index: Any) -> Any:
        """A part of the original, where it has parts by index."""
        return self.__dict__["__wrapped__"][index]

    def __iter__(self) -> Any:
        return iter(self.__dict__["__wrapped__"])

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.__dict__["__wrapped__"])})

    def __repr__(self) -> str:
        return f"CompiledModule({self._sw_owner}, {self.state})\n{self.__dict__['__wrapped__']!r}"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise errors.NotPicklable(owner=self._sw_owner)

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise errors.NotPicklable(owner=self._sw_owner)


def _refuse_failing_property(module: nn.Module, name: str) -> None:
    """Raises PropertyFails (SW514) where ``name`` is there and fails: a module's own words then deny that it is."""
    found = inspect.getattr_static(module, name, None)
    if not isinstance(found, property | functools.cached_property):
        return
    try:
        found.__get__(module)
    except AttributeError as problem:
        raise errors.PropertyFails(name=name, wrapped=type(module).__name__, cause=problem) from problem
