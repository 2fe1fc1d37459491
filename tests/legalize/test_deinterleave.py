"""deinterleave: every second element by two contiguous loads and a shuffle."""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import legalize_kernel
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule
from tests.legalize.common import AVX2, check


def strided(stride: int, lanes: int, dtype: dtypes.DType = dtypes.f32) -> ir.Kernel:
    """y[i] = x[stride * i + 1], in one vector; x ends with the last element that is read."""
    b = Build("strided")
    x = b.param("x", dtype, (stride * (lanes - 1) + 2,))
    y = b.compute("y", (lanes,), lambda i: x[i * stride + 1])
    sch = Schedule(b.finish([y]))
    sch.vectorize(sch.loops(sch.block("y"))[0])
    return sch.kernel


def loads_of_x(kernel: ir.Kernel) -> list[ir.Load]:
    return [x for x in visit.loads(kernel.body) if x.buffer.name == "x"]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i8, dtypes.f64], ids=str)
@pytest.mark.parametrize("lanes", [4, 6, 8, 16])
def test_two_contiguous_loads_within_what_the_strided_one_spans(lanes, dtype):
    check(strided(2, lanes, dtype))  # equal after every pass; the interpreter checks the bounds
    loads = loads_of_x(legalize_kernel(strided(2, lanes, dtype), AVX2))
    assert [arith.as_int(x.indices[0]) for x in loads] == [1, lanes]
    assert all(arith.is_const(x.stride, 1) and x.width == lanes for x in loads)


@pytest.mark.parametrize(("stride", "lanes"), [(2, 2), (2, 5), (3, 8), (1, 8)])
def test_other_loads_stay(stride, lanes):
    check(strided(stride, lanes))
    (load,) = loads_of_x(legalize_kernel(strided(stride, lanes), AVX2))
    assert arith.is_const(load.stride, stride)


def test_bools_are_not_shuffled():
    check(strided(2, 8, dtypes.bool_))
    (load,) = loads_of_x(legalize_kernel(strided(2, 8, dtypes.bool_), AVX2))
    assert arith.is_const(load.stride, 2)
