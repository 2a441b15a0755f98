"""The bytes of a manifest: made of a caller's fields and files, read back only if nothing about them is odd.

Three fields are the store's: ``schema`` (a number), ``key`` (the key it is kept under) and ``files`` (name ->
``{"sha256": ..., "size": ...}``, to which a caller may have added fields of its own).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .files import Unfit
from .place import SCHEMA

MAX_BYTES = 16 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)


class Fact(NamedTuple):
    """What a manifest says of a file: 64 hexadecimal digits, and bytes."""

    sha256: str
    size: int


def is_digest(text: str) -> bool:
    """Whether it can be a key, an id or a file's digest: 64 hexadecimal digits in lower case."""
    return _DIGEST.fullmatch(text) is not None


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(key: str, fields: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The bytes of a manifest, always the same for the same content. Raises Unfit for what cannot be read back."""
    facts = {name: Fact(digest_of(data), len(data))._asdict() for name, data in files.items()}
    whole = {**fields, "schema": SCHEMA, "key": key, "files": _table(fields.get("files", {}), facts)}
    changed = [name for name in ("schema", "key") if name in fields and fields[name] != whole[name]]
    if changed:
        raise Unfit(f"the manifest's {changed[0]!r} is not {whole[changed[0]]!r}")
    try:
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Unfit(f"the manifest is not JSON: {problem}") from None
    data = text.encode("ascii")
    again, _ = decode(key, digest_of(data), data)
    # JSON has no tuples and no keys but text: what was given would come back as something else.
    if again != whole:
        raise Unfit("the manifest holds more than JSON does: a key that is no text, or a tuple")
    return data


def _table(given: Any, facts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or (given and set(given) != set(facts)):
        raise Unfit("the manifest's 'files' are not the files that were given")
    table = {}
    for name, fact in facts.items():
        more = given.get(name, {})
        if not isinstance(more, Mapping) or any(more.get(field, value) != value for field, value in fact.items()):
            raise Unfit(f"the manifest's entry for {name!r} is not about the file that was given")
        table[name] = {**more, **fact}
    return table


def decode(key: str, entry_id: str, data: bytes) -> tuple[dict[str, Any], dict[str, Fact]]:
    """The fields of a manifest, and its files. Raises Unfit for everything but a good one."""
    if len(data) > MAX_BYTES:
        raise Unfit(f"has {len(data)} bytes, more than {MAX_BYTES}")
    if digest_of(data) != entry_id:
        raise Unfit("is not what its name says: its SHA-256 is another")
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise Unfit(f"is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise Unfit("is no JSON object")
    if type(found.get("schema")) is not int or found["schema"] != SCHEMA:
        raise Unfit(f"has the schema {str(found.get('schema'))[:20]}, not {SCHEMA}")
    if found.get("key") != key:
        raise Unfit("lies under another key than its own")
    return found, _facts(found.get("files"))


def _no_number(text: str) -> Any:
    raise Unfit(f"is not JSON: it holds {text}")


def _facts(files: Any) -> dict[str, Fact]:
    if not isinstance(files, dict):
        raise Unfit("names no files")
    return {_checked_name(name): _fact(name, told) for name, told in files.items()}


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise Unfit(f"names a file {name[:60]!r}, which is no plain name")
    return name


def _fact(name: str, told: Any) -> Fact:
    sha256, size = (told.get("sha256"), told.get("size")) if isinstance(told, dict) else (None, None)
    if not isinstance(sha256, str) or not is_digest(sha256) or type(size) is not int or size < 0:
        raise Unfit(f"does not say what {name!r} holds")
    return Fact(sha256, size)
