"""Operators by name: native semantics, providers, an out-variant, a digest of their source.

An operator is defined with torch's own registry on first use, so that importing Sizewise defines
nothing. Its digest is part of the key of every program that calls it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..locks import ForkLock


@dataclass(frozen=True)
class Operator:
    """One operator.

    ``schema`` is torch's, without the namespace. ``native`` defines the semantics; ``providers`` maps a
    dispatch key (``CPU``, ``CUDA``) to a faster implementation with the same schema. An operator whose
    schema writes to an argument named ``out`` is its own out-variant.
    """

    name: str
    schema: str
    native: Callable[..., Any]
    fake: Callable[..., Any]
    providers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def qualified_name(self) -> str:
        return f"{NAMESPACE}::{self.name}"

    def digest(self) -> str:
        """SHA-256 over the schema and the source of every implementation."""
        parts = [self.schema, inspect.getsource(self.native)]
        parts += [key + inspect.getsource(provider) for key, provider in sorted(self.providers.items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


NAMESPACE = "sizewise"


class OperatorRegistry:
    """The operators of one namespace; `define` makes one known to torch, once per process."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._lock = ForkLock()
        self._library: Any = None
        self._defined: dict[str, Operator] = {}

    def define(self, operator: Operator) -> Any:
        """The ``torch.ops`` overload of ``operator``, defined now if it was not."""
        with self._lock:
            if operator.name not in self._defined:
                if self._library is None:
                    self._library = torch.library.Library(self.namespace, "FRAGMENT")
                self._library.define(operator.schema, tags=(torch.Tag.pt2_compliant_tag,))
                self._library.impl(operator.name, operator.native, "CompositeExplicitAutograd")
                self._library.impl(operator.name, operator.fake, "Meta")
                for key, provider in operator.providers.items():
                    self._library.impl(operator.name, provider, key)
                self._defined[operator.name] = operator
        return getattr(getattr(torch.ops, self.namespace), operator.name).default

    def digests(self) -> dict[str, str]:
        """Qualified name -> digest of every operator defined so far."""
        return {operator.qualified_name: operator.digest() for operator in self._defined.values()}


REGISTRY = OperatorRegistry(NAMESPACE)
"""Process-wide because torch's own operator registry is."""
