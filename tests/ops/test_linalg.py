"""Det and Inverse, and the small operators of the same opsets: BitCast, CumProd, TensorScatter, and
Trilu by a diagonal of a call; against numpy and ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from ingot.support.errors import IngotError
from tests.ops.compiled_nodes import EITHER, compiled, model, node, run, run_peer

RNG = np.random.default_rng(3)


def matrices(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def test_det_of_dynamic_sizes() -> None:
    exe = compiled([node("Det", ["x"], ["y"])], {"x": (np.float64, ("a", "b", "n", "n"))})
    for shape in ((1, 1, 1, 1), (2, 3, 4, 4), (1, 2, 17, 17), (3, 1, 2, 2)):
        x = matrices(*shape, dtype=np.float64)
        x[0, 0, 0, 0] = 0  # a pivot that must be swapped
        np.testing.assert_allclose(run(exe, x=x)[0], np.linalg.det(x), rtol=1e-10)
    singular = np.ones((1, 1, 3, 3))
    assert run(exe, x=singular)[0] == 0


@EITHER
def test_det_of_types(build) -> None:
    types = {"h": np.float16, "b": ml_dtypes.bfloat16, "f": np.float32}
    nodes = [node("Det", [name], [f"y{name}"]) for name in types]
    feeds = {name: matrices(5, 3, 3, dtype=t) for name, t in types.items()}
    exe = build(nodes, {n: (t, (5, 3, 3)) for n, t in types.items()}, opset=22)
    for (name, dtype), got in zip(types.items(), run(exe, **feeds)):
        want = np.linalg.det(feeds[name].astype(np.float64))
        assert got.dtype == dtype
        limit = {"h": 2e-2, "b": 2e-1, "f": 1e-5}[name]
        np.testing.assert_allclose(got.astype(np.float64), want, atol=limit, rtol=limit)


def test_det_refuses_what_is_not_square() -> None:
    with pytest.raises(IngotError, match="square"):
        compiled([node("Det", ["x"], ["y"])], {"x": (np.float32, (2, 3))})


def test_inverse_against_onnxruntime() -> None:
    nodes = [
        node("Inverse", ["x"], ["y"], domain="com.microsoft"),
        node("Inverse", ["z"], ["w"], domain="com.microsoft"),
    ]
    inputs = {"x": (np.float32, ("a", "n", "n")), "z": (np.float64, ("m", "m"))}
    exe, proto = (f(nodes, inputs, domains=["com.microsoft"]) for f in (compiled, model))
    for batch, n, m in ((1, 1, 1), (2, 2, 3), (3, 5, 4), (1, 8, 9), (7, 3, 2), (2, 30, 25)):
        for _ in range(2):
            x = matrices(batch, n, n) + 2 * np.eye(n, dtype=np.float32)
            z = matrices(m, m, dtype=np.float64)
            found, wants = run(exe, x=x, z=z), run_peer(proto, x=x, z=z)
            for got, want in zip(found, wants, strict=True):
                limit = 2e-3 if got.dtype == np.float32 else 1e-9
                np.testing.assert_allclose(got, want, rtol=limit, atol=limit * np.abs(want).max())


@EITHER
def test_bitcast_between_types(build) -> None:
    groups = [
        (np.int8, np.uint8, np.bool_, ml_dtypes.float8_e5m2),
        (np.int16, np.uint16, np.float16, ml_dtypes.bfloat16),
        (np.int32, np.uint32, np.float32), (np.int64, np.uint64, np.float64),
    ]  # fmt: skip
    nodes, inputs, feeds, wants = [], {}, {}, []
    for group in groups:
        for source in group:
            bits = (
                RNG.integers(0, 2, (2, 3)) if source is np.bool_ else RNG.integers(-99, 99, (2, 3))
            )
            name = f"x{len(feeds)}"
            width = np.dtype(source).itemsize
            feeds[name] = bits.astype(f"int{8 * width}").view(source)
            inputs[name] = (source, ("n", 3))
            for to in group:
                code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
                nodes.append(node("BitCast", [name], [f"y{len(nodes)}"], to=code))
                raw = feeds[name].view(np.uint8)
                wants.append(raw != 0 if to is np.bool_ else feeds[name].view(to))
    for got, want in zip(run(build(nodes, inputs, opset=26), **feeds), wants, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_bitcast_refuses_another_width() -> None:
    with pytest.raises(IngotError, match="differ in width"):
        compiled([node("BitCast", ["x"], ["y"], to=7)], {"x": (np.float32, (3,))}, opset=26)


@EITHER
def test_cumprod_by_axes_of_a_call(build) -> None:
    modes = [{"exclusive": e, "reverse": r} for e in (0, 1) for r in (0, 1)]
    nodes = [node("CumProd", ["x", "axis"], [f"y{i}"], **m) for i, m in enumerate(modes)]
    exe = build(nodes, {"x": (np.float32, (3, "n", 4)), "axis": (np.int64, ())}, opset=26)
    x = matrices(3, 5, 4)
    for axis in (0, 1, -1):
        for got, mode in zip(run(exe, x=x, axis=axis), modes):
            rows = np.moveaxis(x, axis, 0)
            rows = rows[::-1] if mode["reverse"] else rows
            want = np.cumprod(rows, 0)
            if mode["exclusive"]:
                want = np.concatenate([np.ones_like(rows[:1]), want[:-1]])
            want = want[::-1] if mode["reverse"] else want
            np.testing.assert_allclose(got, np.moveaxis(want, 0, axis), rtol=1e-6)


@EITHER
def test_tensor_scatter(build) -> None:
    nodes = [
        node("TensorScatter", ["x", "rows", "at"], ["y0"]),
        node("TensorScatter", ["x", "rows", "at"], ["y1"], mode="circular", axis=2),
        node("TensorScatter", ["x", "rows"], ["y2"], axis=-2),
    ]
    shapes = {"x": ("b", 2, "n", 3), "rows": ("b", 2, "k", 3)}
    inputs = {name: (np.float32, shape) for name, shape in shapes.items()}
    exe = build(nodes, {**inputs, "at": (np.int64, ("b",))}, opset=24)
    x, rows, at = matrices(3, 2, 6, 3), matrices(3, 2, 4, 3), np.array([0, 2, 1])
    wants = [x.copy(), x.copy(), x.copy()]
    for want, start in zip(wants, (at, at, at * 0)):
        for sample, first in enumerate(start):
            want[sample][:, first : first + 4] = rows[sample]
    for got, want in zip(run(exe, x=x, rows=rows, at=at), wants, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(IngotError, match="do not fit"):
        run(exe, x=x, rows=rows, at=[0, 3, 1])


@EITHER
def test_trilu_by_a_diagonal_of_a_call(build) -> None:
    nodes = [node("Trilu", ["x", "k"], [f"y{u}"], upper=u) for u in (0, 1)]
    exe = build(nodes, {"x": (np.int64, (2, "a", "b")), "k": (np.int64, ())})
    for shape in ((2, 4, 5), (2, 1, 3), (2, 3, 1)):
        x = RNG.integers(1, 9, shape)
        for k in (-7, -1, 0, 2, 9):
            low, high = run(exe, x=x, k=k)
            np.testing.assert_array_equal(low, np.tril(x, k))
            np.testing.assert_array_equal(high, np.triu(x, k))
