"""The store of compiled programs on disk. Imports no torch.

A program is an *entry*: a manifest (JSON) below the key it is looked up by, and files below their SHA-256, which
entries share. Everything is written to a temporary name and renamed, every byte that is read is checked against the
manifest, and whatever is wrong reads as if it were not there.

    programs-1/
      entries/<2 digits of the key>/<key>/<SHA-256 of the manifest>.json
      blobs/<2 digits>/<SHA-256 of the file>
      locks/<key>.lock
"""

from .entry import Entry
from .lock import Token
from .place import cache_root
from .store import DEFAULT_LIMIT, Store, open_store
from .tidy import Checkup, Problem, Removed

__all__ = [
    "DEFAULT_LIMIT",
    "Checkup",
    "Entry",
    "Problem",
    "Removed",
    "Store",
    "Token",
    "cache_root",
    "open_store",
]
