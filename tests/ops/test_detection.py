"""NonMaxSuppression, RoiAlign, MaxRoiPool and CropAndResize, compiled, against ONNX Runtime on
seeded random configurations."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot.ops.common import floats
from tests.ops.vision_models import Row, assert_agrees, model_of
from tests.refusal import refused


def boxes_and_scores(seed: int, batches: int, classes: int, n: int) -> dict[str, np.ndarray]:
    """Boxes that often overlap, corners in any order; scores with many ties."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 10, (batches, n, 2))
    sizes = rng.uniform(-4, 4, (batches, n, 2))
    scores = rng.integers(0, 12, (batches, classes, n)) / 12
    boxes = np.concatenate([corners, corners + sizes], -1)
    return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8)]


@pytest.mark.parametrize("seed", [0, *LONG])
def test_nms(seed: int) -> None:
    """Thresholds as constants and as inputs, absent ones, and sizes that are dynamic."""
    rng = np.random.default_rng(seed)
    feeds = boxes_and_scores(seed, 2, 3, 50) | {
        "most": np.array([int(rng.integers(1, 20))]),
        "overlap": np.array([rng.uniform(0.1, 0.7)], np.float32),
    }
    known = {"few": np.array([4]), "least": np.array([0.4], np.float32)}
    names = ("boxes", "scores")
    rows = [
        Row("NonMaxSuppression", (*names, "most", "overlap", "least")),
        Row("NonMaxSuppression", (*names, "few", "overlap")),
        Row("NonMaxSuppression", (*names, "most", "", "least"), {"center_point_box": 1}),
        Row("NonMaxSuppression", names),
    ]
    assert_agrees(rows, feeds, 11, known)


def test_nms_of_dynamic_sizes_and_of_none() -> None:
    row = [Row("NonMaxSuppression", ("boxes", "scores", "few", "overlap"))]
    known = {"few": np.array([5]), "overlap": np.array([0.3], np.float32)}
    feeds, other = boxes_and_scores(3, 1, 2, 20), boxes_and_scores(4, 2, 1, 77)
    assert_agrees(row, feeds, 11, known, others=[other])


def test_nms_is_the_same_on_any_number_of_threads() -> None:
    row = [Row("NonMaxSuppression", ("boxes", "scores", "few", "overlap"))]
    known = {"few": np.array([9]), "overlap": np.array([0.2], np.float32)}
    feeds = boxes_and_scores(5, 3, 8, 400)
    model = model_of(row, feeds, 11, known)
    one, two = (ingot.compile(model, threads=n).run(None, feeds)[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def regions(seed: int, count: int, batches: int, size: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.uniform(-3, size, (count, 2))
    rois = np.concatenate([first, first + rng.uniform(0.2, size, (count, 2))], 1)
    return {"rois": rois.astype(np.float32), "batch": rng.integers(0, batches, count)}


def align_rows(coordinates: bool) -> list[Row]:
    found = []
    for number, (mode, ratio) in enumerate((("avg", 0), ("avg", 2), ("max", 0), ("max", 3))):
        attrs = {"mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.5 + number / 4,
                 "output_height": 2 + number, "output_width": 3}  # fmt: skip
        if coordinates and number % 2:
            attrs["coordinate_transformation_mode"] = "output_half_pixel"
        found.append(Row("RoiAlign", ("x", "rois", "batch"), attrs))
    return found


def test_roi_align() -> None:
    """Many regions of a small map, whose channels become vectors, and few of a large one."""
    many = {"x": floats(2, 19, 7, 9), **regions(0, 12, 2, 9.0)}
    assert_agrees(align_rows(True)[1:3], many, 16)
    few = {"x": floats(2, 5, 30, 40), **regions(1, 2, 2, 30.0)}
    assert_agrees(align_rows(True)[:1], few, 16)


@pytest.mark.long
def test_roi_align_in_every_mode() -> None:
    for seed in range(4):
        many = {"x": floats(2, 19, 7, 9, key=seed), **regions(seed, 12, 2, 9.0)}
        few = {"x": floats(2, 5, 30, 40, key=seed), **regions(seed, 2, 2, 30.0)}
        for feeds in (many, few):
            assert_agrees(align_rows(True), feeds, 16)
            assert_agrees(align_rows(False), feeds, 10)


def test_roi_align_with_dynamic_sizes() -> None:
    first = {"x": floats(2, 4, 7, 9), **regions(2, 5, 2, 9.0)}
    second = {"x": floats(1, 33, 12, 5), **regions(3, 1, 1, 9.0)}
    assert_agrees(align_rows(True)[:2], first, 16, others=[second])


def test_a_region_in_no_batch_fails() -> None:
    feeds = {"x": floats(2, 3, 7, 9), **regions(0, 3, 2, 9.0)}
    exe = ingot.compile(model_of(align_rows(True)[:1], feeds, 16))
    feeds["batch"] = np.array([0, 2, 1])
    with refused("run-failed", "batch", hint=False, where="node0"):
        exe.run(None, feeds)


def test_max_roi_pool() -> None:
    for x, count in ((floats(2, 9, 7, 9), 9), (floats(2, 3, 30, 40), 2)):
        table = regions(4, count, 2, 9.0)
        rois = np.concatenate([table["batch"][:, None], table["rois"]], 1).astype(np.float32)
        rows = [
            Row("MaxRoiPool", ("x", "rois"), {"pooled_shape": shape, "spatial_scale": scale})
            for shape, scale in (([3, 2], 1.0), ([1, 4], 0.6))
        ]
        assert_agrees(rows, {"x": x, "rois": rois}, 9)


def test_crop_and_resize() -> None:
    rng = np.random.default_rng(6)
    feeds = {
        "x": floats(2, 3, 8, 6),
        "rois": rng.uniform(-0.2, 1.2, (5, 4)).astype(np.float32),
        "batch": rng.integers(0, 2, 5).astype(np.int32),
        "crop": np.array([4, 3], np.int32),
    }
    rows = [
        Row("CropAndResize", ("x", "rois", "batch", "crop"), attrs, "com.microsoft")
        for attrs in ({"extrapolation_value": 3.5}, {"mode": "nearest"})
    ]
    assert_agrees(rows, feeds, 17)
    feeds["crop"] = np.array([1, 5], np.int32)
    assert_agrees(rows[:1], feeds, 17)
