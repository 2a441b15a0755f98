"""`sizewise cache why`: whether a target's programs are in the cache, and what is in the way.

The JSON answer: {"target": str, "hit": bool, "calls": [{"key": str, "hit": bool, "program": str | null,
"nearest": str | null, "differences": [{"factor": str, "cached": str, "here": str}]}]}. ``program`` has what the call
needs, ``nearest`` comes nearest to it; both are an ``id`` of `sizewise cache ls`, which lists the ``key`` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from .cache import ID_SHOWN, asked_store, count, in_a_line
from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code
from .settings import Assignments, Backend, config_from
from .targets import TargetArgument, load_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..cache import Entry
    from ..warm import Why

_TEXT_SHOWN = 160


def why(target: TargetArgument, backend: Backend = None, assignments: Assignments = None, json: AsJson = False) -> None:
    """Say whether a model's programs are in the cache; if not, what differs from the nearest that are.

    Nothing is traced or compiled. The exit code is 1 where something would have to be.

    Example: sizewise cache why app.py:make
    """
    store = asked_store()
    config = config_from(backend, assignments)
    loaded = load_target(target)
    from .. import api
    from ..saved.manifest import class_name
    from ..warm import why as answers_of

    fast: Any = api.compile(loaded.model, dynamic_shapes=loaded.dynamic_shapes, config=config)
    with users_code():
        planned, plan = fast._sw_plan([(loaded.args, loaded.kwargs)])
    answers = answers_of(planned, plan, store)
    hit = all(answer.hit for answer in answers)
    if json:
        show_json({"target": target, "hit": hit, "calls": [_as_data(answer) for answer in answers]})
    else:
        for answer in answers:
            _show(target, answer, class_name(loaded.model), {entry.id: entry for entry in store.entries()})
    if not hit:
        raise typer.Exit(ANSWER_IS_NO)


def _as_data(answer: Why) -> dict[str, Any]:
    differences = [{"factor": name, "cached": cached, "here": here} for name, cached, here in answer.differences]
    found, nearest = (answer.entry, "") if answer.hit else ("", answer.entry)
    return {
        "key": answer.key,
        "hit": answer.hit,
        "program": found or None,
        "nearest": nearest or None,
        "differences": differences,
    }


def _show(target: str, answer: Why, cls: str, entries: Mapping[str, Entry]) -> None:
    known = entries.get(answer.entry)
    # What is damaged is not among the entries.
    name = in_a_line(known) if known is not None else answer.entry[:ID_SHOWN]
    if answer.hit:
        show(f"{target}: in the cache: {name}")
    elif answer.entry:
        show(f"{target}: not in the cache. The nearest program there is {name}:")
        rows = [(name, _short(cached), _short(here)) for name, cached, here in answer.differences]
        show(table(("what differs", "in the cache", "here"), rows))
    elif not entries:
        show(f"{target}: not in the cache; the cache is empty")
    else:
        others = _short(", ".join(sorted({str(entry.manifest.get("class", "?")) for entry in entries.values()})))
        held = f"{count(len(entries), 'program')} of other classes: {others}"
        show(f"{target}: not in the cache, and nothing like it was built: no program of {cls} is there, but {held}")


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 3]}..."
