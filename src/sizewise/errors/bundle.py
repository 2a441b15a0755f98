"""Errors of bundles, files that hold built programs: SW611 to SW614."""

from __future__ import annotations

from .base import CacheError


class NotABundle(CacheError, ValueError):
    code = "SW611"
    message = "{path} is not loaded: {problem}."
    remedy = "give a file that fast.save(...) or `sizewise compile -o` wrote; where it is one, write or copy it again."


class BundleDiffers(CacheError, RuntimeError):
    code = "SW612"
    message = "{path} was built for something else: {difference}."
    remedy = "{todo}"


class NotSavable(CacheError, NotImplementedError):
    code = "SW613"
    message = "{owner} cannot be saved: {what}."
    remedy = "warm it up in each process instead, or {hint}"


class CannotSave(CacheError, OSError):
    code = "SW614"
    message = "no bundle can be written to {path}: {problem}."
    remedy = "name a new file, or a bundle to replace, in a directory that exists, has room and can be written."
