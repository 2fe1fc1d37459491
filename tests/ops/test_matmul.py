"""MatMul, Gemm, integer matmul and einsum against ONNX Runtime and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from tests.ops.peers import check, check_kernel
from tests.refusal import refused

RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_of(dtype: type, *shape: int) -> np.ndarray:
    """Signed ones keep to 7 bits: without VNNI, ONNX Runtime's u8 · i8 saturates at 16 bits."""
    low, high = (0, 255) if dtype is np.uint8 else (-64, 63)
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((2, 3, 4), (2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("a,b", SHAPES)
def test_matmul(a, b):
    check("MatMul", [real(*a), real(*b)])
    dynamic = {0: range(len(a) - 1)} if len(b) == 2 else {}
    check_kernel("matmul", [real(*a), real(*b)], {}, dynamic)


def test_matmul_of_unknown_inner_size_may_be_empty():
    for k in (0, 6):
        check_kernel("matmul", [real(3, k), real(k, 2)], {}, {0: (0, 1), 1: (0,)})


def test_half_matmul_accumulates_in_single():
    a, b = np.full((1, 4096), 0.1, np.float16), np.ones((4096, 1), np.float16)
    (got,) = lookup("matmul").reference([a, b], {})
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, [[np.float16(0.1).astype(np.float32) * 4096]], rtol=1e-3)


def test_inner_sizes_must_agree():
    with refused("bad-type", 4, "n", where="matmul"):
        lookup("matmul").infer(
            [tensor(dtypes.f32, 2, 4), tensor(dtypes.f32, arith.Var("n"), 3)], {}
        )


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm(trans_a, trans_b):
    a = real(4, 3) if trans_a else real(3, 4)
    b = real(5, 4) if trans_b else real(4, 5)
    flags = {"transA": trans_a, "transB": trans_b}
    for c in (None, real(5), real(3, 1), real(1)):
        check("Gemm", [a, b, c][: 3 if c is not None else 2], alpha=0.5, beta=2.0, **flags)


def test_integer_matmul():
    a, b = bytes_of(np.uint8, 3, 7), bytes_of(np.int8, 7, 4)
    zero_a, zero_b = np.array(130, np.uint8), np.array(-9, np.int8)
    check("MatMulInteger", [a, b])
    check("MatMulInteger", [a, b, zero_a, zero_b])
    check("MatMulInteger", [a, b, zero_a, bytes_of(np.int8, 4)])
    rows = bytes_of(np.uint8, 3)
    exact = (a.astype(np.int32) - rows[:, None]) @ b.astype(np.int32)
    check("MatMulInteger", [a, b, rows], want=[exact.astype(np.int32)])


def test_integer_matmul_never_saturates():
    a, b = np.full((1, 64), 255, np.uint8), np.full((64, 1), -128, np.int8)
    check("MatMulInteger", [a, b], want=[np.array([[-255 * 128 * 64]], np.int32)])


@pytest.mark.parametrize("per_column", [False, True])
def test_quantised_matmul(per_column):
    columns = (4,) if per_column else ()
    scale_b = np.abs(real(*columns)).astype(np.float32) * 0.01 + np.float32(0.01)
    zero_b = bytes_of(np.int8, *columns)
    a, b = bytes_of(np.uint8, 3, 7), bytes_of(np.int8, 7, 4)
    scalars = [np.array(0.02, np.float32), np.array(120, np.uint8)]
    out = [np.array(0.3, np.float32), np.array(77, np.uint8)]
    check("QLinearMatMul", [a, *scalars, b, scale_b, zero_b, *out])


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ij->ji", (3, 4)),
    ("ii->i", (4, 4)), ("ii->", (4, 4)), ("ij->", (3, 4)), ("i,j->ij", (3,), (4,)),
    ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("...i->...", (2, 3)), ("ij,ij->ij", (2, 3), (2, 3)), ("i,i", (5,), (5,)),
    ("ij,jk", (2, 3), (3, 2)),
    ("bij,kj->bki", (2, 3, 4), (5, 4)), ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)), ("ba", (2, 3)), ("...ii->...i", (2, 3, 3)),
    ("abc,cd,d->ab", (2, 3, 4), (4, 5), (5,)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(case):
    equation, *shapes = case
    arrays = [real(*shape) for shape in shapes]
    check("Einsum", arrays, equation=equation, want=[np.einsum(equation, *arrays)])


def test_einsum_with_symbolic_sizes():
    arrays = [real(2, 3, 6, 5), real(2, 3, 7, 5)]
    check("Einsum", arrays, equation="bhqd,bhkd->bhqk", dynamic=(2,))
