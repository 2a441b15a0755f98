"""Records by a name: a code, an id, a slug, a class of Sizewise's, the id of a graph break, or another name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors.record import holes_emptied
from ..advice import Advice, graph_breaks
from ..site.aliases import PUBLISHED, Published
from ..store import Store, Stored
from .answer import Match, match_of, own_match
from .evidence import Evidence
from .told import Told

_ID = re.compile(r"[0-9a-f]{16}")


def named(name: str, store: Store | None) -> list[Match]:
    """The records of a name, best first: slugs of indexed errors may be shared by several. [] for an unknown name."""
    from . import own

    published = next((one for one in PUBLISHED if name in one.names), None)
    if published is not None and store is not None and (stored := _published(published, store)):
        return [_match(stored, f"published as {name}")]
    if found := own.named(published.code if published is not None else name):
        return [own_match(one) for one in found]
    if store is None:
        return []
    if _ID.fullmatch(name):
        return [_match(stored, "id") for stored in store.get([name]) if stored.sites]
    if broken := graph_breaks.id_of(name):
        return [_match(stored, f"graph break: {broken}") for stored in store.with_extra("gbid", broken)]
    return [_match(stored, "slug") for stored in _by_slug(name, store)]


def told_of_name(name: str, store: Store | None) -> Advice | None:
    """What torch's registry says of the id of a graph break; None for any other name, or without a registry."""
    return graph_breaks.graph_break(graph_breaks.id_of(name), store)


def _match(stored: Stored, why: str) -> Match:
    site = stored.sites[0]
    told = Told("text", stored.error_class, stored.template)
    return match_of(Evidence(stored, told, 1.0, (why,), site, "whole", 0))


def _by_slug(name: str, store: Store) -> Sequence[Stored]:
    # The last word may have been cut.
    words = name.split("-")[:-1] or [name]
    found = [stored for stored in store.search(words, 400) if stored.slug == name and stored.sites]
    return sorted(found, key=lambda stored: (-len(stored.sites), stored.id))


def _published(one: Published, store: Store) -> Stored | None:
    template = holes_emptied(one.template)
    for stored in store.search(one.template.split(), 50):
        same_class = (stored.error_class or "").rpartition(".")[2] == one.error_class
        if stored.distribution.name == "vllm" and same_class and holes_emptied(stored.template) == template:
            return stored
    return None
