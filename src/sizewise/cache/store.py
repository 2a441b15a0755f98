"""The store: look a program up, read it, publish one, make room.

Whatever goes wrong with the disk, the store goes on: what cannot be read is not there, what cannot be written is not
kept, and it says so once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CacheError
from ..errors import cache as errors
from . import lock, manifest, place, tidy
from .entry import Entry, load
from .files import Stage, Unfit, make_folder, no_stage, read, reason, remove, sync_folder, write
from .layout import Layout
from .lock import OnWait, Token

logger = logging.getLogger("sizewise.cache")

DEFAULT_LIMIT = 5 << 30
"""Bytes."""
_ROOM = 10
"""Where the limit is exceeded, a tenth below it is made, so that not every program that comes pays for tidying."""

OnDamage = Callable[[Path, str], object]
"""Called with a file that is not used, and why: a text that fits behind its name."""
Tell = Callable[..., object]
"""Called with the name of an event and its fields as keywords, as `Timeline.record` is."""
_T = TypeVar("_T")


def open_store(root: Path | None = None, *, limit: int = DEFAULT_LIMIT, tell: Tell | None = None) -> Store:
    """The store below ``root``; below SIZEWISE_CACHE_DIR or the user's cache directory without one.

    A folder that others may write is refused, as ssh does: the store is then empty, keeps nothing and says so once;
    ``problem`` is the reason. ``limit`` is in bytes.
    """
    return Store(Path(os.path.realpath(root)) if root is not None else place.cache_root(), limit, tell)


class Store:
    """Programs on disk. Any number of threads and processes may use one folder."""

    def __init__(self, root: Path, limit: int = DEFAULT_LIMIT, tell: Tell | None = None) -> None:
        self.root = root
        self.limit = limit
        self.layout = Layout(place.programs_folder(root))
        self._tell = tell
        self._said: set[str] = set()
        self.problem: CacheError | None = place.refusal(root)
        """Why the folder is not used at all, or None."""
        if self.problem is not None:
            self._say(self.problem)

    @property
    def folder(self) -> Path:
        """The folder that holds everything of the store."""
        return self.layout.folder

    def _say(self, problem: CacheError) -> None:
        if problem.code in self._said:
            return
        self._said.add(problem.code)
        logger.warning("%s", problem)
        if self._tell is not None:
            self._tell("cache.problem", code=problem.code, text=str(problem))

    # -- reading

    def candidates(self, key: str, on_damage: OnDamage | None = None) -> list[Entry]:
        """The programs kept under a key, the one used last first; what is damaged is left out.

        ``on_damage`` is called for each manifest that is left out.
        """
        if self.problem is not None or not manifest.is_digest(key):
            return []
        return self._loaded(lambda: [(key, entry_id) for entry_id in self.layout.ids(key)], on_damage)

    def entries(self) -> list[Entry]:
        """Every program, the one used last first."""
        if self.problem is not None:
            return []
        return self._loaded(lambda: tidy.manifests(self.layout))

    def _loaded(self, names: Callable[[], Iterable[tuple[str, str]]], on_damage: OnDamage | None = None) -> list[Entry]:
        nothing: tuple[list[Entry], list[tidy.Problem]] = ([], [])
        found, damaged = self._or(nothing, "read", lambda: tidy.load_all(self.layout, names()))
        if on_damage is not None:
            for problem in damaged:
                on_damage(problem.path, problem.problem)
        return sorted(found, key=lambda entry: (entry.used, entry.id), reverse=True)

    def size(self) -> int:
        """Bytes of all files in the folder."""
        return self._or(0, "read", lambda: sum(info.st_size for _, info in self.layout.files()))

    def _or(self, otherwise: _T, doing: str, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except OSError as problem:
            self._say(self._unavailable(doing, problem))
            return otherwise

    def _unavailable(self, doing: str, problem: OSError) -> errors.CacheUnavailable:
        return errors.CacheUnavailable(doing=doing, folder=self.folder, problem=reason(problem))

    # -- writing

    @contextmanager
    def building(self, key: str, *, timeout: float, on_wait: OnWait | None = None) -> Iterator[Token]:
        """Wait up to ``timeout`` seconds for the one process that builds a key to be this one; see `Token.state`.

        Look at `candidates` again inside: who was waited for may have published. ``on_wait`` is called now and then
        with the seconds waited and who is waited for. Raises SW607 for what is no key.
        """
        self._check_key(key)
        if not self._ready():
            # Building goes on; who then publishes is told why that is not possible.
            token = Token(key)
            try:
                yield token
            finally:
                token.over = True
            return
        with lock.building(self.layout.locks, key, timeout=timeout, on_wait=on_wait) as token:
            self._say_if_without_locks(token)
            yield token

    def _say_if_without_locks(self, token: Token) -> None:
        problem = token.problem
        if problem is None or problem.errno not in lock.WITHOUT_LOCKS or "locks" in self._said:
            return
        self._said.add("locks")
        text = f"locks do not work in the cache folder {self.folder} ({reason(problem)}): processes that start together"
        text = f"{text} each build, and keep what they built"
        logger.warning("sizewise: %s", text)
        if self._tell is not None:
            self._tell("cache.no_locks", text=text)

    def _ready(self) -> bool:
        try:
            self._prepare()
        except CacheError as problem:
            self._say(problem)
            return False
        return True

    def _prepare(self) -> None:
        """Make the folder where it is missing. Raises SW604, SW606."""
        if self.problem is None and not self.folder.is_dir():
            try:
                make_folder(self.folder)
            except OSError as problem:
                raise self._unavailable("make folders", problem) from problem
            # Somebody else may have been faster.
            self.problem = place.refusal(self.root)
        if self.problem is not None:
            raise self.problem.with_traceback(None)

    def _check_key(self, key: str) -> None:
        if not manifest.is_digest(key):
            raise errors.NotStorable(key=key, problem="that is no SHA-256 in hexadecimal digits")

    def publish(
        self,
        key: str,
        fields: Mapping[str, Any],
        files: Mapping[str, bytes],
        *,
        token: Token,
        stage: Stage = no_stage,
    ) -> Entry | None:
        """`add` that never fails: where the program cannot be kept it says so once and returns None."""
        try:
            return self.add(key, fields, files, token=token, stage=stage)
        except CacheError as problem:
            self._say(problem)
            return None

    def add(
        self,
        key: str,
        fields: Mapping[str, Any],
        files: Mapping[str, bytes],
        *,
        token: Token,
        stage: Stage = no_stage,
    ) -> Entry:
        """Keep a program: its files first, then the manifest that makes it exist.

        ``fields`` are plain JSON and get ``schema``, ``key`` and ``files``; the listing shows ``owner``, ``built``,
        ``torch`` and ``sizes`` of them. ``token`` is that of the `building` block. ``stage`` is for tests.
        Raises SW604 for a folder that is refused, SW606 where it cannot be written, SW607 for what JSON cannot hold,
        SW608 outside of the builder.
        """
        self._check_key(key)
        if refusal := token.refusal(key):
            raise errors.NotTheBuilder(pid=os.getpid(), key=key, problem=refusal)
        try:
            data = manifest.encode(key, fields, files)
        except Unfit as problem:
            raise errors.NotStorable(key=key, problem=str(problem)) from None
        blobs = {manifest.digest_of(content): content for content in files.values()}
        size = len(data) + sum(map(len, blobs.values()))
        if size > self.limit:
            much = f"the program has {size} bytes, the cache is limited to {self.limit}"
            raise errors.CacheUnavailable(doing="keep a program", folder=self.folder, problem=much)
        self._prepare()
        try:
            entry = self._write(key, data, blobs, stage)
        except CacheError:
            raise
        except OSError as problem:
            raise self._unavailable("write", problem) from problem
        self._shrink(entry)
        return entry

    def _write(self, key: str, data: bytes, blobs: Mapping[str, bytes], stage: Stage) -> Entry:
        """Raises OSError."""
        for digest, content in blobs.items():
            if not self._count_on(digest, len(content)):
                write(self.layout.blob(digest), content, lambda step: stage(f"blob {step}"))
        for folder in {self.layout.blob(digest).parent for digest in blobs}:
            sync_folder(folder)
        stage("blobs there")
        entry_id = manifest.digest_of(data)
        path = self.layout.manifest(key, entry_id)
        write(path, data, lambda step: stage(f"manifest {step}"))
        sync_folder(path.parent)
        stage("manifest there")
        for digest, content in blobs.items():
            # `tidy` of another process may have found it unused before the manifest was there.
            if not self.layout.blob(digest).exists():
                write(self.layout.blob(digest), content)
        try:
            return load(self.layout, key, entry_id)
        except Unfit as problem:
            # A file system that gives every file to somebody else.
            raise self._unusable(problem) from None

    def _unusable(self, problem: Unfit) -> errors.CacheUnavailable:
        much = f"what was written there {problem}"
        return errors.CacheUnavailable(doing="read back", folder=self.folder, problem=much)

    def _count_on(self, digest: str, size: int) -> bool:
        """Whether a good blob is there already; it then counts as new, so that it is not tidied away."""
        path = self.layout.blob(digest)
        with contextlib.suppress(OSError, Unfit):
            data, _ = read(path, size)
            if manifest.digest_of(data) == digest:
                os.utime(path, follow_symlinks=False)
                return True
        return False

    def _shrink(self, newest: Entry) -> None:
        if self.size() > self.limit:
            target = self.limit - self.limit // _ROOM
            self._or(None, "make room", lambda: tidy.prune(self.layout, target, keep=newest.id))

    # -- tidying

    def discard(self, entry: Entry | Path) -> None:
        """Take out a program, or a manifest that is none, found to be of no use; its files go when room is made."""
        if self.problem is not None:
            return
        path = entry if isinstance(entry, Path) else self.layout.manifest(entry.key, entry.id)

        def action() -> None:
            with contextlib.suppress(FileNotFoundError):
                remove(path)

        self._or(None, "remove files", action)

    def prune(self, limit: int | None = None) -> tidy.Removed:
        """Bring the store down to ``limit`` bytes, its own without one: the programs used longest ago go first.

        Before that everything is read, and what is damaged is removed. Also removes files that no program names and
        temporary ones, both when older than an hour. Raises SW604, SW606.
        """
        bound = self.limit if limit is None else limit

        def action() -> tidy.Removed:
            return tidy.prune(self.layout, bound, removed=tidy.remove_damaged(self.layout))

        return self._tidied("remove files", action)

    def clear(self) -> tidy.Removed:
        """Remove everything. Raises SW604, SW606."""
        return self._tidied("remove files", lambda: tidy.clear(self.layout))

    def verify(self) -> tidy.Checkup:
        """Read everything and say what is wrong with it. Raises SW604, SW606."""
        return self._tidied("read", lambda: tidy.check(self.layout))

    def _tidied(self, doing: str, action: Callable[[], _T]) -> _T:
        if self.problem is not None:
            raise self.problem.with_traceback(None)
        try:
            return action()
        except OSError as problem:
            raise self._unavailable(doing, problem) from problem
