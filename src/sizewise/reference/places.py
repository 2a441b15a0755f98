"""Where the index is kept."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from ..config import env


def index_path() -> Path:
    """The index's file: in SIZEWISE_CACHE_DIR, else in the user's cache directory."""
    folder = env.cache_dir() or platformdirs.user_cache_dir("sizewise", appauthor=False)
    return Path(folder) / "errors.sqlite"
