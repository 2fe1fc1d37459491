"""Resize and Upsample against ONNX Runtime: every mode, coordinate rule and rounding, sizes static
and dynamic, through the interpreter; a few compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ingot
from ingot import dtypes
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.ops.common import floats, integers
from ingot.ops.resize_interpolation import COORDINATES, ROUNDINGS
from tests.ops.test_against_onnxruntime import Case, build, i64
from tests.refusal import refused

IMAGE = floats(1, 2, 5, 7)
SIZES = (i64(1, 2, 8, 3), i64(1, 2, 10, 21), i64(1, 2, 1, 4))
SCALES = (np.array([1, 1, 2, 3], np.float32), np.array([1, 1, 0.6, 1.7], np.float32))


def by_sizes(mode: str, sizes: np.ndarray, x: np.ndarray = IMAGE, **attrs: Any) -> Case:
    dynamic, opset = attrs.pop("dynamic", False), attrs.pop("opset", 19)
    inputs = [x, None, None, sizes]
    return Case("Resize", inputs, {"mode": mode, **attrs}, (3,), opset, dynamic=dynamic)


def by_scales(mode: str, scales: np.ndarray, x: np.ndarray = IMAGE, **attrs: Any) -> Case:
    dynamic, opset = attrs.pop("dynamic", False), attrs.pop("opset", 19)
    inputs = [x, None, scales]
    return Case("Resize", inputs, {"mode": mode, **attrs}, (2,), opset, dynamic=dynamic)


def cases() -> list[Case]:
    plain = [c for c in COORDINATES if c != "tf_crop_and_resize"]
    found = []
    for rule in plain:
        given = {"coordinate_transformation_mode": rule}
        for dynamic in (False, True):
            found += [
                by_sizes("nearest", s, dynamic=dynamic, nearest_mode=r, **given)
                for r in ROUNDINGS for s in SIZES[:2]
            ]  # fmt: skip
            for mode in ("linear", "cubic"):
                found += [by_sizes(mode, s, dynamic=dynamic, **given) for s in SIZES]
                found += [by_scales(mode, s, dynamic=dynamic, **given) for s in SCALES]
        exact = SCALES[:1] if rule == "half_pixel_symmetric" else SCALES  # its ties are in f64
        found += [by_scales("nearest", s, nearest_mode="floor", **given) for s in exact]
    return [*found, *special_cases()]


def special_cases() -> list[Case]:
    smooth = {"cubic_coeff_a": -0.5, "exclude_outside": 1}
    bytes_ = integers(1, 1, 4, 4, dtype=dtypes.u8, high=200)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    roi = np.array([0, 0, 0.2, 0.4, 1, 1, 0.8, 1.2], np.float32)
    old = {"mode": "nearest"}
    two = np.array([1, 1, 2, 3], np.float32)
    less = np.array([1, 1, 0.5, 0.4], np.float32)
    return [
        by_sizes("cubic", SIZES[0], **smooth),
        by_sizes("linear", i64(2, 3), axes=[2, 3], antialias=1),
        by_sizes("cubic", i64(3, 2), axes=[3, 2], antialias=1),
        by_sizes("linear", i64(2, 3), axes=[2, 3], antialias=1, dynamic=True),
        by_sizes("nearest", i64(9, 9), axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
        by_sizes("linear", i64(9, 9), axes=[2, 3], keep_aspect_ratio_policy="not_smaller"),
        by_sizes("linear", i64(1, 1, 8, 8), bytes_),
        by_sizes("nearest", i64(1, 1, 8, 8), bytes_),
        *[Case("Resize", [IMAGE, roi, None, SIZES[0]], {"mode": m, **crop}, (1, 3), 13)
          for m in ("nearest", "linear", "cubic")],
        by_sizes("linear", i64(1, 2, 3, 4, 5), floats(1, 2, 2, 3, 4)),
        by_sizes("linear", i64(1, 2, 9), floats(1, 2, 4)),
        Case("Upsample", [IMAGE, two], old, (1,), 9), Case("Resize", [IMAGE, less], old, (1,), 10),
        Case("Resize", [IMAGE, two], {"mode": "linear"}, (1,), 10, dynamic=True),
        Case("Upsample", [IMAGE], {**old, "scales": [1.0, 1.0, 2.0, 3.0]}, (), 7),
    ]  # fmt: skip


def run_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


def named(case: Case) -> str:
    kind = [str(v) for v in case.attrs.values()]
    return f"{case}-{'-'.join(kind)}-{'x'.join(map(str, case.inputs[-1].reshape(-1)))}"


@pytest.mark.parametrize("case", cases(), ids=named)
def test_agrees_with_onnxruntime(case: Case) -> None:
    model, feeds = build(case)
    store = ConstantStore()
    graph = import_model(model, store)
    (got,) = interp.run(graph, store, list(feeds.values()))
    want = run_onnxruntime(model, feeds)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_compiled_with_dynamic_sizes(mode: str) -> None:
    model, _ = build(by_scales(mode, SCALES[1], dynamic=True))
    exe = ingot.compile(model)
    for shape in ((1, 2, 5, 7), (2, 3, 9, 4)):
        x = floats(*shape)
        want = run_onnxruntime(model, {"x0": x})
        np.testing.assert_allclose(exe(x)[0], want, 1e-4, 1e-5)


def test_what_is_refused() -> None:
    both = Case("Resize", [IMAGE, None, SCALES[0], SIZES[0]], {}, (2, 3), 13)
    neither = Case("Resize", [IMAGE], {}, (), 13)
    for case in (both, neither):
        with refused("bad-model", "scales", "sizes", where="'it'", hint=False):
            import_model(build(case)[0], ConstantStore())
