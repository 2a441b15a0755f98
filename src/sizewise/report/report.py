"""What was built, from where, and what each call did: plain data, printable."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..built import Built
from ..captures import Captures
from ..counters import Counters
from ..errors.config import ClassInJson
from ..events import Event, Timeline
from ..key import key_factors, key_of
from ..verify.samples import sizes_in_words

HERE = "built here"


@dataclass(frozen=True)
class Pieces:
    """``total`` pieces in all programs, ``distinct`` by structure, ``compiled`` artifacts (distinct x ranges)."""

    total: int
    compiled: int
    distinct: int


_POLICY = {
    "unbacked": "one trace for every size (unbacked)",
    "backed": "traced from 2, and at 1 apart (backed)",
}


_PHASES = {
    "trace": "",
    "machine": ", what Inductor finds out about a machine, once per process (what the trace did not hide)",
    "compile": "",
    "link": ", the C++ compilers that went on after the last piece's code was made",
    "self_test": "",
    "capture": ", captures and what may be filled up",
}


@dataclass(frozen=True)
class Report:
    """``print(report)`` gives a page; `to_json` the same as JSON."""

    owner: str
    state: str
    pieces: Pieces
    programs: int
    dims: dict[str, dict[str, Any]]
    sizes: list[dict[str, Any]]
    captures: list[dict[str, Any]]
    """Each size that was to be captured: ``captured`` with its bytes and seconds; or, and why, ``padded`` (a larger
    capture serves it) or ``program``."""
    capture_bytes: int
    """Of memory that all captures hold together."""
    padding: dict[str, dict[str, Any]]
    """Per dim whether calls are filled up to the next captured size: ``proved``, ``tested``, or ``refused`` and why."""
    guards: list[str]
    assumptions: list[dict[str, str]]
    config: dict[str, Any]
    cache: dict[str, Any]
    counters: dict[str, int]
    timeline: list[Event]
    blocks: list[str]
    """How equal blocks were traced: one of each run, or all, and then why."""
    code: str
    """The generated caller of each program, with its entry check above it."""

    def to_json(self) -> str:
        """Everything but the code's formatting, as one JSON object."""
        return json.dumps(asdict(self), default=str, indent=2)

    @property
    def source(self) -> str:
        """Where the programs come from: they were built here, or the cache or a bundle and when that was filled."""
        return str(self.cache.get("source", HERE))

    @property
    def then(self) -> str:
        """What to say after counts of an earlier build, with a space before it; '' where all was built here."""
        return "" if self.source == HERE else " when it was built"

    def seconds(self, name: str) -> float:
        return sum(event.seconds for event in self.timeline if event.name == name)

    def __str__(self) -> str:
        lines = [f"{self.owner}: {self.state}"]
        if self.source != HERE:
            lines.append(f"  from      {self.source}")
        lines.append(
            f"  pieces    {self.pieces.total}, of which {self.pieces.distinct} distinct; "
            f"{self.pieces.compiled} compiled{self.then}"
        )
        lines.append(f"  programs  {self.programs}")
        for name, dim in self.dims.items():
            lines.append(f"  dim       {name}: {dim['min']} to {dim['max']}, {_POLICY.get(dim['policy'], 'one size')}")
        lines += [f"  blocks    {how}" for how in self.blocks]
        equal = sum(size["verdict"] == "equal" for size in self.sizes)
        lines.append(
            f"  checked   {equal} of {len(self.sizes)} sizes equal to eager {self.then.strip() or 'before serving'}"
        )
        for size in self.sizes:
            if size["verdict"] != "equal":
                lines.append(f"            {size['verdict']} at {sizes_in_words(size['sizes'])}: {size['why']}")
        lines += self._captures()
        for phase, what in _PHASES.items():
            if phase in ("trace", "compile", "self_test") or self.seconds(phase) >= 0.01:
                lines.append(f"  {phase:<9} {self.seconds(phase):.2f} s{what}")
        lines += [f"  second path  {line}" for line in self.cache.get("second_path", ())]
        counts = ", ".join(f"{name} {value}" for name, value in self.counters.items() if value)
        lines.append(f"  counters  {counts or 'none'}")
        return "\n".join(lines)

    def _captures(self) -> list[str]:
        if not self.captures:
            return []
        done = [each for each in self.captures if each["outcome"] == "captured"]
        held = f"; {self.capture_bytes / 2**20:.2f} MiB" if done else ""
        where = f": {_listed(done)}" if done else ""
        lines = [f"  captures  {len(done)} of {len(self.captures)}{where}{held}"]
        lines += self._modes(done)
        for why in dict.fromkeys(each["why"] for each in self.captures if each["outcome"] != "captured"):
            without = [each for each in self.captures if each["outcome"] != "captured" and each["why"] == why]
            lines.append(f"            not at {_listed(without)}: {why}")
        live = list(dict.fromkeys(name for each in done for name in each["live"]))
        if live:
            lines.append(f"            with memory of their own: {', '.join(live)}")
        for name, verdict in self.padding.items():
            how = "filled up to the next captured size" if verdict["verdict"] != "refused" else "exact sizes only"
            why = f" ({verdict['why']})" if verdict["why"] else ""
            lines.append(f"  padding   {name}: {verdict['verdict']}, {how}{why}")
        return lines

    def _modes(self, done: list[dict[str, Any]]) -> list[str]:
        """How each size is captured, where that is not FULL for all."""
        lines = []
        for mode in dict.fromkeys(each["mode"] for each in done):
            own = [each for each in done if each["mode"] == mode]
            where = _listed(own) if len(own) < len(done) else "all"
            pieces = own[0]["pieces"]
            counted = f", {pieces} captures each" if pieces > 1 else ""
            if mode != "FULL" or len(own) < len(done):
                lines.append(f"            {mode}{counted}: {where}")
        return lines + [f"            {why}" for why in dict.fromkeys(each["why"] for each in done) if why]


def make_report(
    owner: str,
    state: str,
    built: Built | None,
    captures: Captures | None,
    counters: Counters,
    timeline: Timeline,
) -> Report:
    entries = built.entries if built else []
    programs = [entry.program for entry in entries]
    distinct = {key for program in programs for key in program.piece_keys}
    compiled = {(key, v.sizes) for program in programs for key in program.piece_keys for v in program.variants}
    return Report(
        owner=owner,
        state=state,
        programs=len(programs),
        pieces=Pieces(sum(len(p.piece_keys) for p in programs), len(compiled), len(distinct)),
        dims=_dims(built),
        sizes=[asdict(outcome) for outcome in built.outcomes] if built else [],
        captures=_captures(captures) if captures else [],
        capture_bytes=captures.bytes if captures else 0,
        padding={name: asdict(verdict) for name, verdict in captures.padding.items()} if captures else {},
        guards=list(dict.fromkeys(line for program in programs for line in program.guard_lines())),
        assumptions=[
            {"text": a.text, "verdict": a.verdict, "method": a.method}
            for a in dict.fromkeys(a for program in programs for a in program.traced.assumptions)
        ],
        config=_config(built) if built else {},
        cache=_cache(built) if built else {},
        counters=counters.as_dict(),
        timeline=timeline.events(),
        blocks=list(dict.fromkeys(p.traced.blocks for p in programs if p.traced.blocks)),
        code="\n\n".join(f"{entry.source}\n{entry.program.source}" for entry in entries),
    )


def _listed(captures: list[dict[str, Any]]) -> str:
    """Their sizes; of one dim its name once."""
    points = [each["sizes"] for each in captures]
    if len(points[0]) != 1:
        return "; ".join(map(sizes_in_words, points))
    (name,) = points[0]
    return f"{name} {', '.join(str(point[name]) for point in points)}"


def _captures(captures: Captures) -> list[dict[str, Any]]:
    """From the smallest size to the largest."""
    return sorted(map(asdict, captures.outcomes), key=lambda each: tuple(each["sizes"].values()))


def _config(built: Built) -> dict[str, Any]:
    config = built.config()
    try:
        found: dict[str, Any] = json.loads(config.to_json())
    except ClassInJson:
        # To print, a module class in splitting_ops is as good as its name.
        found = {name: str(getattr(config, name)) for name in config.model_fields_set}
    return found


def _cache(built: Built) -> dict[str, Any]:
    lookups = built.lookups
    second = list(dict.fromkeys(line for entry in built.entries for line in entry.program.second_path))
    found = {"source": _source(built), "second_path": second}
    if not lookups:
        why = "the cache is turned off" if built.examples else "the programs are from a bundle"
        return {"hit": False, "why": why, "keys": _keys(built), **found}
    missed = [lookup.why for lookup in lookups if not lookup.hit]
    why = "; ".join(dict.fromkeys(missed)) or "all programs were there"
    return {"hit": not missed, "why": why, "keys": [lookup.key for lookup in lookups], **found}


def _source(built: Built) -> str:
    """Where the programs come from, and when what was loaded was built."""
    loaded = [entry.program.origin[1] for entry in built.entries if entry.program.origin is not None]
    if not loaded:
        return HERE
    where = "the cache" if built.examples else "a bundle"
    moments = " and ".join(dict.fromkeys(str(manifest.get("built", "")) for manifest in loaded))
    part = f"; {len(built.entries) - len(loaded)} of {len(built.entries)} programs were built here"
    return f"{where}, built {moments}{part if len(loaded) < len(built.entries) else ''}"


def _keys(built: Built) -> list[str]:
    config = built.config()
    return [key_of(key_factors(entry.program, entry.snapshot, config, entry.state)) for entry in built.entries]


def _dims(built: Built | None) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in built.entries if built else []:
        traced = entry.program.traced
        for name, dim in traced.dims.items():
            row = found.setdefault(name, {"min": dim.min, "max": dim.max, "policy": "", "notes": []})
            row["min"], row["max"] = min(row["min"], dim.min), max(row["max"], dim.max)
            row["policy"] = traced.policy.get(name, row["policy"]) or row["policy"]
            row["notes"] = traced.notes
    return found
