"""TopK, Unique, NonZero, Compress and Range: sizes that the data decide, k of a call, ties and NaN,
against ONNX Runtime and numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot.support.errors import IngotError
from tests.ops.compiled_nodes import EITHER, compiled, model, node, run, run_peer

RNG = np.random.default_rng(7)
TYPES = [
    np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16,
    np.int32, np.uint32, np.int64, np.uint64,
]  # fmt: skip


def any_values(dtype: Any, *shape: int) -> np.ndarray:
    """Many ties; for integers, values at both ends of their range as well."""
    values = RNG.integers(-5, 6, shape).astype(np.float64)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        ends = RNG.choice(np.array([info.min, info.max, 0, 1], dtype), shape)
        small = np.maximum(values, max(info.min, -5)).astype(dtype)
        return np.where(RNG.random(shape) < 0.2, ends, small)
    odd = RNG.choice([np.nan, np.inf, -np.inf, -0.0], shape)
    return np.where(RNG.random(shape) < 0.2, odd, values).astype(dtype)


def best(x: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Indices of the k best along the last axis, ties by index, NaN the greatest."""
    wide = x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64)
    found = np.empty((*x.shape[:-1], k), np.int64)
    for at in np.ndindex(*x.shape[:-1]):
        keys = [(v != v, 0 if v != v else v) for v in wide[at].tolist()]
        found[at] = sorted(range(len(keys)), key=keys.__getitem__, reverse=largest)[:k]
    return found


@EITHER
@pytest.mark.parametrize("largest", [0, 1])
def test_topk_of_every_type(build, largest: int) -> None:
    nodes, inputs, feeds, wants = [], {}, {}, []
    for number, dtype in enumerate(TYPES):
        x = any_values(dtype, 2, 150)
        feeds[f"x{number}"], inputs[f"x{number}"] = x, (dtype, x.shape)
        outputs = [f"v{number}", f"i{number}"]
        nodes.append(node("TopK", [f"x{number}", "k"], outputs, largest=largest))
        indices = best(x, 9, bool(largest))
        wants += [np.take_along_axis(x, indices, -1), indices]
    exe = build(nodes, inputs, {"k": np.array([9])})
    for got, want in zip(run(exe, **feeds), wants, strict=True):
        wide = [a.astype(np.float64) if a.dtype.itemsize < 8 else a for a in (got, want)]
        np.testing.assert_array_equal(*wide)


def test_topk_of_a_call() -> None:
    """k is an input, all sizes are dynamic: columns, remainders, the whole row; against ORT."""
    inputs = {"x": (np.float32, ("a", "b")), "k": (np.int64, (1,))}
    nodes = [node("TopK", ["x", "k"], ["v", "i"], axis=1)]
    exe, proto = compiled(nodes, inputs), model(nodes, inputs)
    for rows, size in ((1, 1), (3, 127), (2, 128), (2, 1000), (1, 5000)):
        x = RNG.standard_normal((rows, size)).astype(np.float32)
        for k in {1, min(10, size), size // 2, size}:
            found, wants = run(exe, x=x, k=[k]), run_peer(proto, x=x, k=[k])
            for got, want in zip(found, wants, strict=True):
                np.testing.assert_array_equal(got, want)
    with pytest.raises(IngotError, match="more elements than the axis has"):
        run(exe, x=x, k=[5001])
    with pytest.raises(IngotError, match="invalid size"):
        run(exe, x=x, k=[-1])


@EITHER
def test_topk_along_other_axes(build) -> None:
    x = any_values(np.float32, 4, 150, 3)
    nodes = [
        node("TopK", ["x", "k"], ["v0", "i0"], axis=0),
        node("TopK", ["x", "k"], ["v1", "i1"], axis=-2, largest=0, sorted=0),
    ]
    found = run(build(nodes, {"x": (np.float32, x.shape)}, {"k": np.array([4])}), x=x)
    for got, axis, largest in zip(found[1::2], (0, 1), (True, False)):
        want = best(np.moveaxis(x, axis, -1), 4, largest)
        np.testing.assert_array_equal(got, np.moveaxis(want, -1, axis))


# --- Unique -------------------------------------------------------------------------------------


def unique(x: np.ndarray, axis: int | None, is_sorted: bool) -> list[np.ndarray]:
    wide = x.astype(np.float64) if x.dtype.itemsize < 8 else x
    found = np.unique(wide, True, True, True, axis=axis)
    first, inverse, counts = (np.asarray(a).reshape(-1) for a in found[1:])
    if not is_sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    kept = x.reshape(-1)[first] if axis is None else np.take(x, first, axis)
    return [kept, first, inverse, counts]


def check_unique(build, cases: list[tuple[np.ndarray, int | None, bool]]) -> None:
    nodes, inputs, feeds, wants = [], {}, {}, []
    for n, (x, axis, is_sorted) in enumerate(cases):
        attrs = {"sorted": int(is_sorted)} | ({} if axis is None else {"axis": axis})
        names = [f"{what}{n}" for what in ("y", "i", "r", "c")]
        nodes.append(node("Unique", [f"x{n}"], names, **attrs))
        shape = [f"s{n}_{k}" if n % 2 else size for k, size in enumerate(x.shape)]
        feeds[f"x{n}"], inputs[f"x{n}"] = x, (x.dtype, shape)
        wants += unique(x, axis, is_sorted)
    for got, want in zip(run(build(nodes, inputs), **feeds), wants, strict=True):
        wide = [a.astype(np.float64) if a.dtype.itemsize < 8 else a for a in (got, want)]
        np.testing.assert_array_equal(*wide)


def few(dtype: Any, *shape: int) -> np.ndarray:
    return RNG.integers(0, 3, shape).astype(dtype)


@EITHER
def test_unique_of_every_type(build) -> None:
    kinds = [*TYPES, np.bool_]
    check_unique(build, [(few(t, 30), None, bool(n % 3)) for n, t in enumerate(kinds)])


@EITHER
def test_unique_along_axes(build) -> None:
    cases = [(few(np.int64, 3, 8, 2), axis, s) for axis in (0, 1, -1) for s in (True, False)]
    cases += [(few(np.float32, 1), None, True), (few(np.int32, 4, 5), None, False)]
    check_unique(build, cases)


def test_unique_compiled() -> None:
    nodes = [node("Unique", ["x"], ["y", "i", "r", "c"], sorted=0)]
    exe = compiled(nodes, {"x": (np.float32, ("n",))})
    for x in (any_values(np.float32, 200), few(np.float32, 7), np.zeros(1, np.float32)):
        for got, want in zip(run(exe, x=x), unique(x, None, False), strict=True):
            np.testing.assert_array_equal(got, want)


# --- sizes bound from data ----------------------------------------------------------------------


@EITHER
def test_nonzero_and_compress(build) -> None:
    nodes = [
        node("NonZero", ["x"], ["points"]),
        node("NonZero", ["flags"], ["places"]),
        node("Compress", ["x", "flags"], ["rows"], axis=0),
        node("Compress", ["x", "flags"], ["some"]),
    ]
    inputs = {"x": (np.float32, ("a", "b", 3)), "flags": (np.bool_, ("a",))}
    exe = build(nodes, inputs)
    for rows, columns, density in ((5, 4, 0.5), (40, 7, 0.05), (3, 1, 0), (9, 2, 1)):
        x = RNG.standard_normal((rows, columns, 3)).astype(np.float32)
        x[RNG.random(x.shape) >= density] = 0
        flags = RNG.random(rows) < density
        points, places, kept, some = run(exe, x=x, flags=flags)
        np.testing.assert_array_equal(points, np.array(np.nonzero(x)))
        np.testing.assert_array_equal(places, np.array(np.nonzero(flags)))
        np.testing.assert_array_equal(kept, x[flags])
        np.testing.assert_array_equal(some, x.reshape(-1)[: len(flags)][flags])


@EITHER
def test_range_of_a_call(build) -> None:
    nodes = [node("Range", ["start", "end", "step"], ["y"])]
    for dtype in (np.int64, np.float32):
        exe = build(nodes, dict.fromkeys(("start", "end", "step"), (dtype, ())))
        for row in ((0, 10, 3), (10, -3, -4), (5, 5, 1), (3, 1, 1)):
            values = np.array(row, dtype)
            found = run(exe, start=values[0], end=values[1], step=values[2])
            np.testing.assert_array_equal(found[0], np.arange(*values, dtype=dtype))
