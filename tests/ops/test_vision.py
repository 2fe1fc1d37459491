"""GridSample, AffineGrid, Col2Im, DeformConv, MaxUnpool and Resize by run-time values: compiled,
and compared with ONNX Runtime, with PyTorch, or with ONNX's reference where those lack a case."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import ingot
from ingot import dtypes
from ingot.ops.common import floats, integers
from tests.ops.vision_models import Row, assert_agrees, by_reference, model_of
from tests.refusal import refused

PADDINGS = ("zeros", "border", "reflection")


def grid_rows(modes: tuple[str, ...], operands: tuple[str, str] = ("x", "grid")) -> list[Row]:
    return [
        Row("GridSample", operands, {"mode": m, "padding_mode": p, "align_corners": a})
        for m, p, a in itertools.product(modes, PADDINGS, (0, 1))
    ]


def image_and_grid(channels: int, *sizes: int, points: tuple[int, ...], seed: int) -> dict:
    grid = np.random.default_rng(seed).uniform(-1.6, 1.6, (2, *points, len(sizes)))
    return {"x": floats(2, channels, *sizes), "grid": grid.astype(np.float32)}


def test_grid_sample_of_images() -> None:
    """With the names of opset 16; few channels, and so many that they are vectors."""
    rows = grid_rows(("bilinear", "nearest", "bicubic"))
    feeds = image_and_grid(3, 6, 7, points=(4, 5), seed=0)
    assert_agrees(rows[::7], feeds, 16)
    assert_agrees(grid_rows(("linear",))[:1], image_and_grid(18, 5, 4, points=(9,) * 2, seed=1), 20)


@pytest.mark.long
def test_grid_sample_of_images_in_every_mode() -> None:
    rows = grid_rows(("bilinear", "nearest", "bicubic"))
    assert_agrees(rows, image_and_grid(3, 6, 7, points=(4, 5), seed=8), 16)
    many = image_and_grid(18, 5, 4, points=(3, 3), seed=1)
    assert_agrees(grid_rows(("linear", "nearest", "cubic")), many, 20)


def test_grid_sample_of_volumes() -> None:
    feeds = image_and_grid(2, 3, 4, 5, points=(2, 3, 2), seed=2)
    assert_agrees(grid_rows(("linear", "nearest"))[::4], feeds, 20)


@pytest.mark.long
def test_grid_sample_of_volumes_in_every_mode() -> None:
    feeds = image_and_grid(2, 3, 4, 5, points=(2, 3, 2), seed=2)
    assert_agrees(grid_rows(("linear", "nearest")), feeds, 20)
    small = {"x": floats(1, 1, 3, 2, 3), "grid": feeds["grid"][:1, :1, :2]}
    assert_agrees(grid_rows(("cubic",))[:1], small, 20, peer=by_reference)


def test_grid_sample_with_dynamic_sizes() -> None:
    feeds = image_and_grid(3, 6, 7, points=(4, 5), seed=3)
    other = image_and_grid(1, 1, 9, points=(7, 1), seed=4)
    rows = grid_rows(("linear",))[::2]
    assert_agrees(rows, feeds, 20, others=[other])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_grid_sample_of_other_types(dtype: torch.dtype) -> None:
    feeds = image_and_grid(2, 5, 6, points=(3, 4), seed=5)
    x, grid = (torch.tensor(feeds[n]).to(dtype) for n in ("x", "grid"))
    want = torch.nn.functional.grid_sample(x.double(), grid.double(), "bicubic", "border", False)
    row = Row("GridSample", ("x", "grid"), {"mode": "cubic", "padding_mode": "border"})
    given = {"x": x.numpy(), "grid": grid.numpy()}
    (got,) = ingot.compile(model_of([row], given, 20)).run(None, given)
    assert got.dtype == given["x"].dtype
    loose = 1e-9 if dtype is torch.float64 else 2e-2
    np.testing.assert_allclose(got, want.numpy(), loose, loose)


def test_grid_sample_of_integers_is_nearest() -> None:
    x = integers(2, 1, 4, 5, dtype=dtypes.u8, high=255)
    grid = image_and_grid(1, 4, 5, points=(3, 4), seed=6)["grid"]
    rows = [Row("GridSample", ("x", "grid"), {"mode": "nearest", "padding_mode": "border"})]
    (got,) = ingot.compile(model_of(rows, {"x": x, "grid": grid}, 20)).run(
        None, {"x": x, "grid": grid}
    )
    wide = torch.nn.functional.grid_sample(
        torch.tensor(x).double(), torch.tensor(grid).double(), "nearest", "border", False
    )
    np.testing.assert_array_equal(got, wide.numpy().astype(np.uint8))


def test_what_is_outside_does_not_spoil_the_inside() -> None:
    """A tap outside the image has weight 0, which is no factor: the border may be infinite."""
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    grid = np.array([[[[3, 3], [0.5, 0.5]]]], np.float32)
    row = Row("GridSample", ("x", "grid"), {"mode": "linear"})
    (got,) = ingot.compile(model_of([row], {"x": x, "grid": grid}, 20)).run(
        None, {"x": x, "grid": grid}
    )
    np.testing.assert_array_equal(got.reshape(-1), [0, np.inf])


def test_refused_attributes() -> None:
    feeds = image_and_grid(1, 3, 3, points=(2, 2), seed=7)
    for attrs in ({"mode": "sinc"}, {"padding_mode": "wrap"}):
        model = model_of([Row("GridSample", ("x", "grid"), attrs)], feeds, 20)
        with refused("bad-model", *attrs.values(), where="'node0'", hint=False):
            ingot.compile(model)


def test_affine_grid() -> None:
    for axes, size in ((2, [2, 3, 4, 5]), (3, [2, 1, 2, 3, 4])):
        theta = floats(2, axes, axes + 1)
        feeds = {"theta": theta, "size": np.array(size)}
        rows = [Row("AffineGrid", ("theta", "size"), {"align_corners": a}) for a in (0, 1)]
        assert_agrees(rows, feeds, 20, peer=lambda model, given: [
            torch.nn.functional.affine_grid(
                torch.tensor(given["theta"]), given["size"].tolist(), bool(a)
            ).numpy() for a in (0, 1)
        ])  # fmt: skip


def test_col2im() -> None:
    attrs = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]}
    feeds = {
        "x": floats(2, 6, 12), "moved": floats(1, 8, 16), "line": floats(2, 6, 4),
        "image": np.array([5, 4]), "square": np.array([5, 5]), "length": np.array([6]),
    }  # fmt: skip
    known = {"kernel": np.array([2, 1]), "window": np.array([2, 2]), "three": np.array([3])}
    rows = [
        Row("Col2Im", ("moved", "square", "window"), attrs),
        Row("Col2Im", ("line", "length", "three")),
    ]
    assert_agrees(rows, feeds, 18, known, peer=by_reference)
    folded = torch.nn.functional.fold(torch.tensor(floats(2, 12, 8)), (5, 3), (2, 2))
    row = [Row("Col2Im", ("x", "image", "kernel"))]
    given = {"x": floats(2, 12, 8), "image": np.array([5, 3]), "kernel": np.array([2, 2])}
    assert_agrees(row, given, 18, peer=lambda model, feeds: [folded.numpy()])
    given["image"] = np.array([5, 4])
    model = model_of(row, given, 18)
    with refused("run-failed", "reshape", hint=False, where="node0"):
        ingot.compile(model).run(None, given)


def test_deform_conv() -> None:
    feeds = {
        "x": floats(2, 4, 6, 7), "w": floats(4, 2, 3, 2), "offset": floats(2, 24, 5, 3),
        "bias": floats(4), "mask": floats(2, 12, 5, 3),
    }  # fmt: skip
    attrs = {"group": 2, "offset_group": 2, "strides": [1, 2], "pads": [1, 0, 0, 1]}
    attrs["dilations"] = [1, 2]
    rows = [
        Row("DeformConv", ("x", "w", "offset", "bias", "mask"), attrs),
        Row("DeformConv", ("x", "w", "offset"), attrs),
    ]
    assert_agrees(rows, feeds, 19, peer=by_reference)


def test_max_unpool_inverts_max_pool() -> None:
    x = torch.tensor(floats(2, 3, 8, 6))
    y, where = torch.nn.functional.max_pool2d(x, 2, 2, return_indices=True)
    want = torch.nn.functional.max_unpool2d(y, where, 2, 2).numpy()
    plane = np.arange(6).reshape(2, 3, 1, 1) * 48  # ONNX counts in the whole tensor
    feeds = {"y": y.numpy(), "where": where.numpy() + plane}
    row = Row("MaxUnpool", ("y", "where"), {"kernel_shape": [2, 2], "strides": [2, 2]})
    assert_agrees([row], feeds, 22, peer=lambda model, given: [want])


# --- Resize by values that the run computes -------------------------------------------------------

RULES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_by_run_time_scales(mode: str) -> None:
    rows = [
        Row("Resize", ("x", "", "scales"), {"mode": mode, "coordinate_transformation_mode": rule})
        for rule in RULES
    ]
    feeds = {"x": floats(1, 2, 5, 6), "scales": np.array([1, 1, 2, 1.5], np.float32)}
    other = {"x": floats(2, 1, 8, 4), "scales": np.array([1, 1, 0.5, 0.75], np.float32)}
    assert_agrees(rows, feeds, 19)
    assert_agrees(rows[:1], other, 19)


@pytest.mark.parametrize("mode", ["nearest", pytest.param("linear", marks=pytest.mark.long)])
def test_resize_of_space_by_run_time_scales(mode: str) -> None:
    row = Row("Resize", ("x", "", "scales"), {"mode": mode, "axes": [2, 3]})
    feeds = {"x": floats(1, 2, 5, 6), "scales": np.array([2, 1.5], np.float32)}
    other = {"x": floats(2, 1, 8, 4), "scales": np.array([0.5, 0.75], np.float32)}
    assert_agrees([row], feeds, 19)
    assert_agrees([row], other, 19)


@pytest.mark.long
def test_resize_by_run_time_regions_and_sizes() -> None:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    rows = [
        Row("Resize", ("x", "roi", "", "sizes"), {"mode": mode, **crop})
        for mode in ("nearest", "linear", "cubic")
    ]
    roi = np.array([0, 0, 0.2, 0.4, 1, 1, 0.8, 1.2], np.float32)
    feeds = {"x": floats(1, 2, 5, 7), "roi": roi, "sizes": np.array([1, 2, 4, 1])}
    assert_agrees(rows, feeds, 19)


@pytest.mark.long
def test_resize_keeps_the_aspect_at_run_time() -> None:
    rows = [
        Row("Resize", ("x", "", "", "sizes"), {"mode": mode, "axes": [2, 3], **policy})
        for mode, policy in (
            ("linear", {"keep_aspect_ratio_policy": "not_larger"}),
            ("nearest", {"keep_aspect_ratio_policy": "not_smaller"}),
        )
    ]
    assert_agrees(rows, {"x": floats(1, 2, 5, 7), "sizes": np.array([9, 9])}, 19)


@pytest.mark.long
def test_resize_antialiased_by_run_time_scales() -> None:
    rows = [Row("Resize", ("x", "", "scales"), {"mode": m, "antialias": 1, "axes": [2, 3]})
            for m in ("linear", "cubic")]  # fmt: skip
    feeds = {"x": floats(1, 2, 10, 9), "scales": np.array([0.5, 0.4], np.float32)}
    assert_agrees(rows, feeds, 19, peer=by_reference)


def test_old_resize_rounds_by_the_scale() -> None:
    row = [Row("Resize", ("x", "scales"), {"mode": "nearest"})]
    x = floats(1, 1, 5, 8)
    for scales in ([1, 1, 2, 2], [1, 1, 0.5, 0.4]):
        assert_agrees(row, {"x": x, "scales": np.array(scales, np.float32)}, 10)
