"""docs/families.md is true: every model traces and splits as it says, and computes what eager does.

The page is written with Inductor; here the pieces run in eager mode, which traces and splits the same, except
where the compiler decides.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import sizewise
from benchmarks.families import FAMILIES, PAGE, Family, measure

LINES = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| model")]
ROWS = {cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in LINES)}


def test_the_page_has_a_row_for_every_family() -> None:
    assert list(ROWS) == [item.name for item in FAMILIES]


@pytest.mark.slow
@pytest.mark.parametrize("item", FAMILIES, ids=lambda item: item.name)
def test_a_row_is_true(item: Family) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own, about tiny configs
        row = measure(item, backend="inductor" if item.compiler_decides else "eager", calls=6)
    policy, pieces, right = ROWS[item.name]
    assert (row.policy, row.pieces) == (policy, pieces)
    if row.policy == "refused":
        assert row.right == right
        return
    equal, _, tried = row.right.partition(" of ")
    assert equal == tried
    equal, _, tried = right.partition(" of ")
    assert equal == tried, "the page itself has a size that is not right"


def test_another_model_of_the_library_changes_nothing() -> None:
    """transformers keeps registries that grow with every class of model that is made."""
    families = {family.name: family for family in FAMILIES}
    model, example, dims = families["BERT"].make()
    fast = sizewise.compile(model, dynamic_shapes=dims, backend="eager")
    fast.warmup(**example)
    other, inputs, _ = families["ViT"].make()
    with torch.no_grad():
        other(**inputs)
    assert fast.state == "ready"
    fast(**example)
