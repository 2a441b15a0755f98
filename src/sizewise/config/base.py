"""What every group of settings shares: frozen, strict, and wrong only by a named error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import config as errors
from ..errors.base import SizewiseError
from .sizes import wrong_type


class Settings(BaseModel):
    """Frozen settings. Every refusal is a `ConfigError` with a code, never pydantic's ValidationError."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Names that vLLM has and this class does not -> where what they do belongs."""

    outside_digest: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not change generated code. Every other field, also a new one, is in the digest."""

    def __init__(self, **settings: Any) -> None:
        with named_errors(type(self)):
            super().__init__(**settings)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        if isinstance(obj, dict) and not all(isinstance(name, str) for name in obj):
            raise wrong_type(cls.__name__, obj, "a dict with str keys")
        with named_errors(cls):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        if not isinstance(json_data, str | bytes | bytearray):
            raise wrong_type(cls.__name__, json_data, "JSON text")
        with named_errors(cls):
            return super().model_validate_json(json_data, **options)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        # pydantic's own does not check the update.
        return self.replace(**update) if update else super().model_copy(deep=deep)

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, checked again as a whole. Raises what construction raises."""
        kept = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**kept, **changes})

    def to_json(self) -> str:
        """The fields that were set, as a JSON object; `from_json` gives an equal config.

        Raises SW128 when splitting_ops holds a class.
        """
        return _dumps(_plain(self, stored=True))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The config of a JSON object. Raises SW107, and what construction raises."""
        return cls.model_validate_json(text)

    def digest(self) -> str:
        """sha256 (hex) over the fields that affect generated code, as resolved or as set here."""
        return hashlib.sha256(self._canonical(self.outside_digest).encode()).hexdigest()

    def _canonical(self, without: frozenset[str] = frozenset()) -> str:
        names = set(type(self).model_fields) - without
        return _dumps({name: _plain(getattr(self, name), stored=False) for name in names})

    def __eq__(self, other: object) -> bool:
        # By canonical JSON, as the hash: Python's 1 == 1.0 == True are three different settings.
        if type(other) is not type(self):
            return NotImplemented
        return self._canonical() == other._canonical()

    def __hash__(self) -> int:
        return hash((type(self), self._canonical()))

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # What was set; the defaults of a score of fields would hide it.
        return [(name, getattr(self, name)) for name in type(self).model_fields if name in self.model_fields_set]

    def __setattr__(self, name: str, value: Any) -> None:
        raise errors.SettingsAreFrozen(owner=type(self).__name__, action="set", name=name)

    def __delattr__(self, name: str) -> None:
        raise errors.SettingsAreFrozen(owner=type(self).__name__, action="delete", name=name)


@contextmanager
def named_errors(owner: type[Settings]) -> Iterator[None]:
    """The one place where pydantic's ValidationError becomes the named error it holds or stands for."""
    try:
        yield
    except ValidationError as error:
        raise _named(owner, error) from None


def _named(owner: type[Settings], error: ValidationError) -> SizewiseError:
    details = error.errors(include_url=False)
    # A misspelt name first: other complaints may only follow from it.
    detail = next((d for d in details if d["type"] == "extra_forbidden"), details[0])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, SizewiseError):
        return cause
    if detail["type"] == "extra_forbidden":
        return unknown_setting(owner, str(detail["loc"][-1]), detail["input"])
    if detail["type"] == "json_invalid":
        return errors.InvalidJson(owner=owner.__name__, reason=detail["msg"], text=detail["input"])
    wanted = detail["msg"].removeprefix("Input should be ").replace("a valid ", "a ")
    return wrong_type(_path(detail["loc"]) or owner.__name__, detail["input"], wanted)


def unknown_setting(owner: type[Settings], name: str, value: Any) -> SizewiseError:
    if name in owner.elsewhere:
        where = owner.elsewhere[name]
        return errors.SettingOfVllm(name=name, owner=owner.__name__, value=value, where=where)
    known = sorted(owner.model_fields)
    near = get_close_matches(name, known, n=1)
    return errors.UnknownSetting(
        owner=owner.__name__,
        name=name,
        value=value,
        suggestion=f"write {near[0]!r}; " if near else "",
        known=", ".join(known),
    )


def _path(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _dumps(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, *, stored: bool) -> Any:
    """JSON data: what was set, without classes, if it is to be ``stored``; everything otherwise."""
    if isinstance(value, Settings):
        names = value.model_fields_set if stored else set(type(value).model_fields)
        return {name: _plain(getattr(value, name), stored=stored) for name in names}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, type):
        name = f"{value.__module__}.{value.__qualname__}"
        if stored:
            raise errors.ClassInJson(op=name)
        return f"class {name}"
    if isinstance(value, list | tuple):
        return [_plain(item, stored=stored) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, stored=stored) for key, item in value.items()}
    return value
