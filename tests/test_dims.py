from __future__ import annotations

import pytest
import torch

from sizewise import Dim
from sizewise.dims import dims_of, infer, normalize
from sizewise.errors import trace as errors


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (5, 3, "min 5 > max 3"),
        (0, 4, "size 0"),
        (-1, 4, "negative"),
        (1, 2.0, "2.0 is not an int"),
        (True, 4, "True"),
    ],
)
def test_a_dim_that_is_no_range_is_refused(low: object, high: object, says: str) -> None:
    with pytest.raises(errors.BadDim, match=says):
        Dim("n", low, high)  # type: ignore[arg-type]


def test_a_dim_name_has_to_be_an_identifier() -> None:
    with pytest.raises(errors.BadDim, match="identifier"):
        Dim("batch size", 1, 4)


def test_mapping_and_sequence_forms_agree() -> None:
    batch = Dim("batch", 1, 8)
    assert normalize({"x": {0: batch}}, ["x"], "M") == normalize({"x": (batch, None)}, ["x"], "M")


def test_nested_arguments_get_paths() -> None:
    batch = Dim("batch", 1, 8)
    spec = normalize({"b": {"ids": {0: batch}}, "xs": [{0: batch}, None]}, ["b", "xs"], "M")
    assert set(spec) == {"b['ids']", "xs[0]"}


def test_an_unknown_argument_names_the_nearest() -> None:
    with pytest.raises(errors.UnknownArgument, match="Argument mask not found in the forward method of M") as seen:
        normalize({"mask": {0: Dim("n")}}, ["x", "masks"], "M")
    assert "'masks'" in str(seen.value)


def test_export_dims_are_accepted_and_derived_ones_refused() -> None:
    batch = torch.export.Dim("batch", min=1, max=16)
    assert dims_of(normalize({"x": {0: batch}}, ["x"], "M")) == {"batch": Dim("batch", 1, 16)}
    with pytest.raises(errors.BadDynamicShapes, match="derived"):
        normalize({"x": {0: 2 * batch}}, ["x"], "M")


def test_one_name_has_one_range() -> None:
    with pytest.raises(errors.BadDim, match="two ranges"):
        normalize({"x": {0: Dim("n", 1, 4), 1: Dim("n", 1, 8)}}, ["x"], "M")


@pytest.mark.parametrize("entry", ["batch", 3, {0: "batch"}, {0: 4}])
def test_what_is_no_dim_is_refused(entry: object) -> None:
    with pytest.raises(errors.BadDynamicShapes, match="Unsupported dynamic dimensions"):
        normalize({"x": entry}, ["x"], "M")


def test_dims_are_inferred_from_sizes_that_differ() -> None:
    spec = infer([{"ids": (4, 16), "mask": (4, 16)}, {"ids": (2, 9), "mask": (2, 9)}], "M")
    assert {path: {axis: dim.max for axis, dim in axes.items()} for path, axes in spec.items()} == {
        "ids": {0: 4, 1: 16},
        "mask": {0: 4, 1: 16},
    }
    assert spec["ids"][0].name == spec["mask"][0].name != spec["ids"][1].name


def test_equal_calls_have_no_dims() -> None:
    with pytest.raises(errors.NoDynamicDims, match="No dynamic dimensions found in the forward method of M"):
        infer([{"x": (4,)}, {"x": (4,)}], "M")
