"""The tree of Sizewise's errors.

    SizewiseError
    ├── ConfigError            a setting, before anything was traced
    ├── TraceError             the module cannot be traced once for every size
    ├── BuildError             a traced program cannot be compiled, or is not equal to eager
    ├── CallError              a call the program was not built for
    ├── StateError             the wrapper or the module is not in a state that allows this
    ├── CaptureError           a capture at the wrong time or of the wrong thing
    ├── CacheError             the store of compiled programs on disk
    └── CommandError           the command line: a target, a file, an option

Every concrete error is a class of its own with a code. It derives from one branch of the
tree and from the built-in class its users already catch. This file imports nothing of Sizewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .record import Record


SHOWN = 2000
"""Characters of a field in a message; the field itself is kept whole."""


class _Shown(Formatter):
    """Formats fields, whatever is among them: what an error has to say is not lost over a value it would show."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        try:
            return super().convert_field(value, conversion)
        except Exception:
            return f"<{type(value).__name__}: its repr failed>"

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            text = str(super().format_field(value, format_spec))
        except Exception:
            return f"<{type(value).__name__}: its repr failed>"
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


_SHOWN = _Shown()


class SizewiseError(Exception):
    """Base of all errors. Raise a concrete subclass with the fields of its templates as keywords.

    A concrete class sets ``code`` (``SWnnn``), ``message`` (what was seen) and ``remedy`` (what to
    do); both are `str.format` templates over the same fields.
    """

    code: ClassVar[str] = ""
    message: ClassVar[str] = ""
    remedy: ClassVar[str] = ""

    def __init__(self, text: str = "", /, **fields: Any) -> None:
        """``text``: the whole text, made before; for libraries that make an error again from its ``args``."""
        self.fields: Mapping[str, Any] = MappingProxyType(fields)
        super().__init__(text or self.render())

    def render(self) -> str:
        seen = _SHOWN.vformat(self.message, (), self.fields)
        todo = _SHOWN.vformat(self.remedy, (), self.fields)
        return f"{seen}\n  What to do: {todo}\n  [{self.code}] sizewise explain {self.code}"

    @property
    def record(self) -> Record:
        """The error's record; what was written about it is read from the package's files."""
        from .own import record_of

        return record_of(type(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # The text as it is: a field may be shown in another way by now. Notes are among the attributes.
        state = {name: list(value) if name == "__notes__" else value for name, value in vars(self).items()}
        return _rebuild, (type(self), str(self), dict(state.pop("fields"))), state

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """The names a raise of this class has to give."""
        parts = [*Formatter().parse(cls.message), *Formatter().parse(cls.remedy)]
        return frozenset(name.split(".")[0].split("[")[0] for _, name, _, _ in parts if name)


def _rebuild(cls: type[SizewiseError], text: str, fields: dict[str, Any]) -> SizewiseError:
    return cls(text, **fields)


class ConfigError(SizewiseError):
    """A setting is wrong on its own or beside another one."""


class TraceError(SizewiseError):
    """The module cannot be traced once for every size in range."""


class BuildError(SizewiseError):
    """A traced program could not be compiled, or its results are not eager's."""


class CallError(SizewiseError):
    """A call differs from everything the program was built for."""


class StateError(SizewiseError):
    """The wrapper, or the module behind it, is not in a state that allows this."""


class CaptureError(SizewiseError):
    """A capture at the wrong time, or of something that cannot be captured."""


class CacheError(SizewiseError):
    """The store of compiled programs cannot be used, or something in it."""


class CommandError(SizewiseError):
    """The command line was given something it cannot use."""
