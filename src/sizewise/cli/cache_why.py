"""`sizewise cache why`: whether a target's programs are in the cache, and what is in the way.

The JSON answer: {"target": str, "hit": bool, "calls": [{"key": str, "hit": bool, "nearest": str | null,
"differences": [{"factor": str, "cached": str, "here": str}]}]}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from .cache import asked_store
from .output import ANSWER_IS_NO, AsJson, show, show_json, table, users_code
from .settings import Assignments, Backend, config_from
from .targets import TargetArgument, load_target

if TYPE_CHECKING:
    from ..warm import Why

_ID_SHOWN = 12
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
            _show(target, answer)
    if not hit:
        raise typer.Exit(ANSWER_IS_NO)


def _as_data(answer: Why) -> dict[str, Any]:
    differences = [{"factor": name, "cached": cached, "here": here} for name, cached, here in answer.differences]
    return {"key": answer.key, "hit": answer.hit, "nearest": answer.nearest or None, "differences": differences}


def _show(target: str, answer: Why) -> None:
    if answer.hit:
        show(f"{target}: in the cache, under {answer.key[:_ID_SHOWN]}")
    elif not answer.nearest:
        show(f"{target}: not in the cache, which holds nothing to compare with")
    else:
        show(f"{target}: not in the cache. The nearest program there is {answer.nearest[:_ID_SHOWN]}:")
        rows = [(name, _short(cached), _short(here)) for name, cached, here in answer.differences]
        show(table(("what differs", "in the cache", "here"), rows))


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN else f"{text[: _TEXT_SHOWN - 3]}..."
