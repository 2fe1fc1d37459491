"""merge_axes: which axes become one, and that the kernel stays what it was."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.loops.verify import verify
from ingot.lower.merge_axes import merge_axes

f32 = dtypes.f32
n = arith.Var("n")


def ranks(kernel: ir.Kernel) -> list[int]:
    return [len(b.axes) for b in visit.blocks(kernel.body)]


def results(kernel: ir.Kernel, sizes: dict[str, int]) -> np.ndarray:
    rng = np.random.default_rng(0)
    shapes = [[arith.evaluate(d, sizes) for d in p.shape] for p in kernel.params]
    arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
    interp.run(kernel, arrays, sizes)
    return arrays[-1].reshape(-1)


def assert_merged(kernel: ir.Kernel, want: list[int], **sizes: int) -> None:
    merged = merge_axes(kernel)
    verify(merged)
    assert ranks(merged) == want
    np.testing.assert_array_equal(results(merged, sizes), results(kernel, sizes))


def test_rows_of_a_batch_are_rows():
    b = Build("matmul")
    x, w = b.param("x", f32, (2, 3, 5)), b.param("w", f32, (5, 4))
    y = b.reduce("y", (2, 3, 4), (5,), "add", lambda i, j, o, k: x[i, j, k] * w[k, o])
    bias = b.param("bias", f32, (4,))
    out = b.compute("out", (2, 3, 4), lambda i, j, o: y[i, j, o] + bias[o])
    assert_merged(b.finish([out]), [3, 2])


def test_an_elementwise_nest_of_one_shape_is_flat():
    b = Build("map")
    x, y = b.param("x", f32, (2, 3, n)), b.param("y", f32, (2, 3, n))
    kernel = b.finish([b.compute("out", (2, 3, n), lambda *p: x[p] * y[p])], [ir.Size("n", 1, 9)])
    assert_merged(kernel, [1], n=4)


def test_a_check_of_a_scalar_keeps_no_axes_apart():
    """One image of a batch, at an index that is checked: 12 elements in a row."""
    b = Build("gather")
    x, at = b.param("x", f32, (1, 3, 4)), b.param("at", f32, ())
    b.check((), lambda: ir.Compare("gt", at[()], ir.Lit(100.0, f32)), "range")
    assert_merged(b.finish([b.compute("out", (3, 4), lambda i, j: x[0, i, j])]), [0, 1])


@pytest.mark.parametrize(
    ("given", "value", "want"),
    [
        ((4, 3), lambda x: lambda i, j: x[j, i], 2),  # transposed
        ((4, 4), lambda x: lambda i, j: x[i + 1, j], 2),  # not the whole axis
        ((3, 4), lambda x: lambda i, j: x[i, j] * ir.Cast(ir.Index(j), f32), 2),  # as a value
        ((3, 4), lambda x: lambda i, j: x[i, 0] + x[i, j], 2),  # one alone
        ((3, 4), lambda x: lambda i, j: x[i, j] + x[i, j], 1),
    ],
)
def test_only_axes_indexed_together_merge(given, value, want):
    b = Build("k")
    x = b.param("x", f32, given)
    assert_merged(b.finish([b.compute("out", (3, 4), value(x))]), [want])


def test_a_stage_that_needs_both_keeps_them_for_all():
    b = Build("k")
    x = b.param("x", f32, (3, 4))
    y = b.compute("y", (3, 4), lambda i, j: x[i, j] + x[i, j])
    kernel = b.finish([b.compute("out", (3, 4), lambda i, j: y[i, j] - y[i, 0])])
    assert_merged(kernel, [2, 2])


@pytest.mark.parametrize(("depth", "merged"), [(128, True), (16, False)])
def test_a_window_of_a_group_is_divided_where_sums_are_long(depth: int, merged: bool):
    b = Build("groups")
    x, w = b.param("x", f32, (2, 6, 2 * depth)), b.param("w", f32, (8, depth))

    def term(i, j, o, k):
        return x[i, j + 1, o // 4 * depth + k] * w[o, k]

    y = b.reduce("y", (2, 5, 8), (depth,), "add", term)
    out = b.compute("out", (2, 5, 8), lambda *p: y[p])
    assert_merged(b.finish([out]), [3, 2] if merged else [4, 3])


@pytest.mark.parametrize("rows", [5, n])
def test_a_whole_reduction_follows_memory(rows):
    """Loops in the order of logical axes, over a tensor that is stored channels-last."""
    b = Build("smallest")
    x = b.param("x", f32, (1, rows, 7, 24))
    reduced = (1, 24, rows, 7)
    out = b.reduce("least", (), reduced, "min", lambda i, c, y, z: x[i, y, z, c])
    sizes = [ir.Size("n", 1, 9)] if rows is n else []
    # a dynamic number of rows stays that
    assert_merged(b.finish([out], sizes), [2 if rows is n else 1], **({"n": 3} if sizes else {}))


def test_a_reduction_that_keeps_an_axis_has_its_order():
    b = Build("smallest")
    x = b.param("x", f32, (4, 5, 6))
    out = b.reduce("least", (5,), (6, 4), "min", lambda i, k, j: x[j, i, k])
    kernel = b.finish([out])
    assert merge_axes(kernel) == kernel
