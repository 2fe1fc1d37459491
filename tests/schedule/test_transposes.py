"""Transposes: loads and stores along different axes, in tiles transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import legalize_kernel
from ingot.legalize.split_kernels import split_kernel
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.schedule.default import schedule_kernel
from ingot.target import parse
from tests.legalize.common import check
from tests.native import HOST, Batch

n, m = arith.Var("n"), arith.Var("m")
SHAPES = (
    (8, 8),
    (16, 24),
    (9, 21),
    (5, 7),
    (4, 100),
    (3, 40),
    (33, 4),
    (1, 9),
    (130, 36),
    (28, 601),
)  # the last is parallel
TYPES = ("f32", "f64", "i64", "f16", "bf16", "i16", "u8", "bool", "f8e4m3fn", "i4")


def transposed(rows: arith.IntLike, columns: arith.IntLike, dtype: str = "f32") -> ir.Kernel:
    """Y[i, j] = X[j, i]"""
    return elementwise((columns, rows), (rows, columns), dtype, lambda x, i, j: x[j, i])


def elementwise(shape, made, dtype, value) -> ir.Kernel:
    b = Build("transposed")
    x = b.param("x", dtypes.of(dtype), shape)
    y = b.compute("y", made, lambda *at: value(x, *at))
    names = sorted({v for d in shape for v in arith.free_vars(arith.wrap(d))})
    return b.finish([y], [ir.Size(name, 0) for name in names])


def scheduled(kernel: ir.Kernel, target=HOST) -> ir.Kernel:
    return schedule_kernel(kernel, target, "movement").finished()


def legal(kernel: ir.Kernel, target=HOST) -> list[ir.Kernel]:
    return [legalize_kernel(k, target) for k in split_kernel(scheduled(kernel, target)).kernels]


def shuffles(kernels: list[ir.Kernel]) -> int:
    """Shuffles of whole vectors: lanes taken out one by one are none."""
    values = [e for k in kernels for e in visit.all_exprs(k.body)]
    return sum(isinstance(e, ir.Shuffle) and e.lanes > 1 for e in values)


def bits(shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """Any bits at all, NaNs among them; a bool is 0 or 1, a small integer a byte of its own."""
    random = np.random.default_rng(3)
    if dtype.is_bool or dtype.bits < 8:
        return random.integers(0, 2, shape).astype(dtype.numpy)
    raw = random.integers(0, 256, (*shape, dtype.storage_bytes)).astype(np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


def test_every_type_keeps_its_bits_in_every_shape():
    cases = [(transposed(i, j, t), (i, j), dtypes.of(t)) for i, j in SHAPES for t in TYPES]
    batch = Batch([scheduled(kernel) for kernel, _, _ in cases])
    for number, (_, (i, j), dtype) in enumerate(cases):
        x, y = bits((j, i), dtype), np.zeros((i, j), dtype.numpy)
        batch.run(number, {"x": x, "y": y}, {}, threads=2)
        assert y.tobytes() == np.ascontiguousarray(x.T).tobytes(), (i, j, dtype)


@pytest.mark.parametrize("rows, columns", [(n, m), (n, 24), (20, m)])
def test_dynamic_sizes(rows, columns):
    batch = Batch([scheduled(transposed(rows, columns))])
    for i in (0, 1, 7, 8, 20, 33):
        for j in (0, 3, 8, 24, 31):
            if (i if rows is n else rows, j if columns is m else columns) != (i, j):
                continue
            x, y = bits((j, i), dtypes.f32), np.zeros((i, j), np.float32)
            sizes = {
                name: size for name, size in (("n", i), ("m", j)) if name in batch_sizes(batch)
            }
            batch.run(0, {"x": x, "y": y}, sizes, threads=2)
            assert y.tobytes() == np.ascontiguousarray(x.T).tobytes(), (i, j)


def batch_sizes(batch: Batch) -> set[str]:
    return {s.name for k in batch.split[0].kernels for s in k.sizes}


def test_outer_axes_and_an_expression():
    kernel = elementwise(
        (2, 12, 3, 17), (2, 17, 3, 12), "f32", lambda x, a, b, c, d: x[a, d, c, b] * 2.0
    )
    assert shuffles(legal(kernel)) > 0
    x = np.random.default_rng(1).standard_normal((2, 12, 3, 17), np.float32)
    y = np.zeros((2, 17, 3, 12), np.float32)
    Batch([scheduled(kernel)]).run(0, {"x": x, "y": y}, {}, threads=2)
    np.testing.assert_array_equal(y, x.transpose(0, 3, 2, 1) * np.float32(2))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_tiles_follow_the_vectors_of_the_target(target):
    target = parse(target)
    side = min(target.lanes(dtypes.f32), target.vector_registers // 2)
    kernels = legal(transposed(64, 64), target)
    assert shuffles(kernels) == side * (side.bit_length() - 1)
    loads = [e for k in kernels for e in visit.all_exprs(k.body) if isinstance(e, ir.Load)]
    assert {(e.width, e.stride) for e in loads} == {(side, arith.Const(1))}


def test_every_legalize_step_preserves_semantics():
    check(scheduled(transposed(20, 17), parse("x86-64-v3")))
    check(scheduled(transposed(n, m), parse("x86-64-v3")), {"n": 19, "m": 11})


def test_loads_along_the_lanes_are_not_transposed():
    straight = elementwise((24, 16), (24, 16), "f32", lambda x, i, j: x[i, j])
    middle = elementwise((4, 24, 16), (24, 4, 16), "f32", lambda x, i, j, k: x[j, i, k])
    short = transposed(3, 64)
    assert [shuffles(legal(k)) for k in (straight, middle, short)] == [0, 0, 0]


def test_masked_loads_are_not_transposed():
    def padded(x, i, j):
        inside = ir.Compare("lt", ir.Index(j), ir.Index(arith.Const(10)))
        return ir.Load(x, (j, i), mask=inside, other=ir.Lit(0.0, dtypes.f32))

    kernel = elementwise((10, 16), (16, 16), "f32", padded)
    x, y = bits((10, 16), dtypes.f32), np.zeros((16, 16), np.float32)
    for part in legal(kernel):
        interp.run(part, [{"x": x, "y": y}[p.name].reshape(-1) for p in part.params], {})
    assert shuffles(legal(kernel)) == 0
    np.testing.assert_array_equal(y, np.pad(x.T, ((0, 0), (0, 6))))
