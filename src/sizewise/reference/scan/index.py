"""Indexes a distribution: scans its files in worker processes, joins what they found, writes it to the store."""

from __future__ import annotations

import datetime
import gc
import json
import multiprocessing
import os
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from ...errors.record import holes_emptied, pattern_of, record_id, slug_of
from ..store import Distribution, Site, Store, Stored, discard_damaged, writable
from . import found as kinds
from .distributions import Sources, modules_of
from .files import Unreadable, read, read_bytes
from .found import Module
from .link import Linked, linked
from .sites import scan
from .templates import literal_length

Progress = Callable[[int, int], None]
"""Called with (files done, files in all)."""
Job = tuple[str, str, str]
"""(root, module, path) of a file to scan."""

BATCH = 16
FEW_FILES = 40
"""So many are scanned here: starting workers would take longer."""
MOST_WORKERS = 8
WAIT = 30.0
"""Seconds to wait for another process that writes the index."""
_GRAPH_BREAKS = "torch/_dynamo/graph_break_registry.json"
_MOST_GRAPH_BREAKS = 20_000_000
"""Bytes."""


@dataclass(frozen=True)
class Report:
    """What was indexed. ``skipped``: reason -> how many files could not be read for it, or not all of them."""

    name: str
    version: str
    scope: str
    files: int
    skipped: Mapping[str, int]
    records: int
    sites: int
    seconds: float
    path: str
    """The file the index is in."""
    note: str = ""
    """What became of what was in the file before; "" where there is nothing to tell."""


@dataclass
class Scanned:
    """The modules of a distribution as they are read, one after the other."""

    modules: list[Module] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    files: int = 0

    def take(self, results: Iterable[Module | str]) -> None:
        for result in results:
            self.files += 1
            if isinstance(result, str):
                self.skipped[result] += 1
            else:
                self.modules.append(result)
                if result.left_out:
                    self.skipped["too deep in parts"] += 1


def index(sources: Sources, path: Path, progress: Progress | None = None, workers: int | None = None) -> Report:
    """Read a distribution's sources and put what they raise into the index at ``path``.

    A damaged index is built anew; `Report.note` says so. Raises CannotWrite (SW704) where the file cannot be written
    or is locked, IndexUnreadable (SW711) where it is of something else. What was in it stays then.
    """
    started = time.perf_counter()
    # Tried first: a minute of work would be lost.
    note = _with_store(path, Store.check_writable)
    scanned = scan_all(sources, progress, workers)
    records = records_of(sources, scanned.modules)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    distribution = Distribution(sources.name, sources.version, str(sources.root), sources.scope, sources.sha, now)
    note = _with_store(path, lambda store: store.replace(distribution, records)) or note
    return Report(
        sources.name,
        sources.version,
        sources.scope,
        scanned.files,
        dict(scanned.skipped),
        len(records),
        sum(len(record.sites) for record in records),
        time.perf_counter() - started,
        str(path),
        note,
    )


# -- reading


def scan_all(sources: Sources, progress: Progress | None = None, workers: int | None = None) -> Scanned:
    """Scan every module, in ``workers`` processes (0: in this one; by default as many as there are processors)."""
    found: list[Job] = [(str(sources.root), module, path) for module, path in modules_of(sources)]
    jobs = [job for job in found if _is_text(job[2])]
    if workers is None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = 0 if len(jobs) <= FEW_FILES else min(MOST_WORKERS, processors)
    scanned = Scanned()
    scanned.take(["name"] * (len(found) - len(jobs)))
    tell = progress or (lambda done, total: None)
    tell(scanned.files, len(found))
    for results in _in_processes(jobs, workers) if workers else map(scan_batch, _batches(jobs)):
        scanned.take(results)
        tell(scanned.files, len(found))
    scanned.modules.sort(key=lambda module: module.path)
    return scanned


def _is_text(path: str) -> bool:
    """Whether a file's name can be written down: bytes that are not of the system's encoding cannot."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _batches(jobs: Sequence[Job], size: int = BATCH) -> Iterator[Sequence[Job]]:
    return (jobs[start : start + size] for start in range(0, len(jobs), size))


def scan_batch(jobs: Sequence[Job]) -> list[Module | str]:
    """Scan some files: a module each, or the reason why one is skipped."""
    # Trees have no cycles: the collector would only look through them again and again.
    was_on = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [_scan_file(job) for job in jobs]
    finally:
        if was_on:
            gc.enable()


def _scan_file(job: Job) -> Module | str:
    root, module, path = job
    try:
        return scan(read(Path(root, path)), module, path)
    except Unreadable as problem:
        return problem.reason
    except (SyntaxError, ValueError):
        return "syntax"
    except (RecursionError, MemoryError):
        return "too deep"


def _in_processes(jobs: Sequence[Job], workers: int) -> Iterator[list[Module | str]]:
    waiting = list(_batches(jobs))
    while waiting:
        running: dict[Future[list[Module | str]], Sequence[Job]] = {}
        try:
            with _pool(workers) as pool:
                yield from _completed(pool, waiting, running, 2 * workers)
        except BrokenProcessPool:
            if _processes_work():
                for batch in running.values() or [waiting.pop(0)]:
                    yield _one_by_one(batch)
                continue
        except (OSError, ImportError):
            pass
        waiting += running.values()
        break
    # No processes can be started here.
    for batch in waiting:
        yield scan_batch(batch)


def _processes_work() -> bool:
    try:
        with _pool(1) as pool:
            return pool.submit(int).result() == 0
    except (BrokenProcessPool, OSError, ImportError):
        return False


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not forked: the caller may have threads, of a progress line for one.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _completed(
    pool: ProcessPoolExecutor,
    waiting: list[Sequence[Job]],
    running: dict[Future[list[Module | str]], Sequence[Job]],
    most: int,
) -> Iterator[list[Module | str]]:
    # A few at a time: what is done waits in memory for nobody, and a dead worker takes little with it.
    while waiting or running:
        while waiting and len(running) < most:
            running[pool.submit(scan_batch, waiting[0])] = waiting[0]
            del waiting[0]
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            result = future.result()
            del running[future]
            yield result


def _one_by_one(batch: Sequence[Job]) -> list[Module | str]:
    """Scan the files that were read when a worker died: one that kills the interpreter kills only a child."""
    results: list[Module | str] = []
    for job in batch:
        try:
            with _pool(1) as pool:
                results += pool.submit(scan_batch, [job]).result()
        except BrokenProcessPool:
            results.append("crash")
        except (OSError, ImportError):
            results += scan_batch([job])
    return results


# -- records


def records_of(sources: Sources, modules: Sequence[Module]) -> list[Stored]:
    """The records of a distribution: one per class and template, with all its sites."""
    distribution = Distribution(sources.name, sources.version, str(sources.root), sources.scope, sources.sha, "")
    groups: dict[tuple[str, str | None, str], tuple[str, str, list[Site]]] = {}
    ordinals: Counter[tuple[str, ...]] = Counter()
    found = sorted(linked(modules, _graph_breaks(sources.root)), key=lambda one: (one.path, one.line))
    for one in found:
        if one.error_class is None and one.kind != kinds.LOG and not literal_length(one.template):
            continue  # neither what it is nor what it says is known
        where = (one.module, one.qualname, one.kind, one.error_class or "", holes_emptied(one.template))
        site = Site(one.path, one.line, one.qualname, one.condition, one.extra)
        key = (_group(one), one.error_class, one.template)
        if key not in groups:
            name = record_id(sources.name, *where[:4], one.template, ordinals[where])
            groups[key] = (name, one.kind, [site])
        else:
            groups[key][2].append(site)
        ordinals[where] += 1
    return [
        Stored(
            name,
            kind,
            error_class,
            template,
            pattern_for(template, kind, error_class),
            slug_of(template if literal_length(template) else f"{error_class or kind} {template}"),
            literal_length(template),
            tuple(sites),
            distribution,
        )
        for (_, error_class, template), (name, kind, sites) in groups.items()
    ]


def _group(one: Linked) -> str:
    return one.kind if one.kind in (kinds.LOG, kinds.WARN, kinds.GRAPH_BREAK) else "raised"


def pattern_for(template: str, kind: str, error_class: str | None) -> str:
    """The regular expression of a message, with what Python and torch put around the template."""
    if error_class == "KeyError" and template:
        # str(KeyError("text")) is the text's repr; with several arguments it is that of their tuple.
        inner = pattern_of(template.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"))
        escaped = inner.replace("'", r"\\?'")
        return f"(?:'{escaped}'|\"{inner}\"|{pattern_of(template)})"
    if kind == kinds.GRAPH_BREAK:
        # A graph break inside cond, scan and the like has its name on a line of its own.
        head, mark, rest = template.partition("\n  Explanation:")
        return f"{pattern_of(head)}(?:\\n  Higher Order Operator: [^\\n]*)?{pattern_of(mark + rest)}"
    return pattern_of(template)


def _graph_breaks(root: Path) -> Mapping[str, str]:
    """Name of a graph break -> its id in the registry that torch ships."""
    try:
        registry = json.loads(read_bytes(root / _GRAPH_BREAKS, _MOST_GRAPH_BREAKS))
        return {entry["Gb_type"]: name for name, entries in registry.items() for entry in entries}
    except (Unreadable, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


# -- writing


def _with_store(path: Path, do: Callable[[Store], object]) -> str:
    """Do something with the index at ``path``, made anew if it is damaged; what happened to it, or ""."""
    note = ""
    with writable(path):
        for _ in range(2):
            try:
                with Store(path, WAIT) as store:
                    do(store)
                break
            except sqlite3.DatabaseError as problem:
                if note or not discard_damaged(path):
                    raise
                note = f"{path} was damaged ({problem}) and was built anew; other packages have to be indexed again"
    return note
