"""Errors of the store of compiled programs on disk: SW604 to SW608.

Only commands and callers that ask for it see them raised: a compiled module goes on without the store.
"""

from __future__ import annotations

from .base import CacheError


class CacheFolderRefused(CacheError, PermissionError):
    code = "SW604"
    message = "the cache folder {folder} is not used: {place} {problem}."
    remedy = "{todo}, or name a folder that only you can write (SIZEWISE_CACHE_DIR, or cache_dir in the config)."


class CacheFileDamaged(CacheError, OSError):
    code = "SW605"
    message = "the cached file {name!r} of the program {entry} is not used: {problem}."
    remedy = (
        "build the program again, which replaces it; `sizewise cache verify` lists all that is damaged, "
        "`sizewise cache prune` removes it."
    )


class CacheUnavailable(CacheError, OSError):
    code = "SW606"
    message = "cannot {doing} in the cache folder {folder}: {problem}."
    remedy = (
        "make room there or make it writable, or name another folder (SIZEWISE_CACHE_DIR, or cache_dir in the config); "
        "until then programs are built and not kept."
    )


class NotStorable(CacheError, ValueError):
    code = "SW607"
    message = "a program cannot be kept under the key {key!r}: {problem}."
    remedy = (
        "give a key of 64 hexadecimal digits and a manifest that is plain JSON, with every file under a plain name."
    )


class NotTheBuilder(CacheError, RuntimeError):
    code = "SW608"
    message = "process {pid} may not publish under the key {key}: {problem}."
    remedy = "publish inside the `building` block of the process that entered it."
