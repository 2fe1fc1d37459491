"""Loops that assume no sizes: the samples again, with every size above 1 (and 0) a symbol.

Equal sizes get one symbol, so operands still fit. Sizes that an operator must know (the last axis
of gather_nd's indices) are left as they are, by `KNOWN`.
"""

from __future__ import annotations

import numpy as np
import pytest

import ingot.ops  # noqa: F401  fills the table
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import TABLE, OpDef, Sample
from ingot.graph.types import TensorType
from ingot.loops import interp, ir
from ingot.loops.build import Build
from ingot.loops.script_print import show
from ingot.ops.common import floats
from ingot.ops.pointwise import Pointwise
from ingot.support.errors import IngotError
from tests.ops.single import present, reference
from tests.refusal import refused

POINTWISE = sorted(name for name, op in TABLE.items() if isinstance(op, Pointwise))
MOVES = [
    "where", "clip", "cast", "identity", "transpose", "concat", "pad", "tile", "trilu", "gather",
    "gather_elements", "gather_nd", "scatter_nd", "scatter_elements", "reverse_sequence", "one_hot",
]  # fmt: skip
B, D = arith.Var("b"), arith.Var("d")
KNOWN = {"gather_nd": 1, "scatter_nd": 1, "one_hot": 1}  # operand whose last axis stays static


def symbolic_type(op: str, index: int, array: np.ndarray) -> TensorType:
    shape: list[arith.Expr] = [
        arith.Const(1) if size == 1 else arith.Var(f"d{size}") for size in array.shape
    ]
    if KNOWN.get(op) == index and shape:
        shape[-1] = arith.Const(array.shape[-1])
    return TensorType(dtypes.from_numpy(array.dtype), tuple(shape))


def run_symbolic(
    op: OpDef, arrays: list[np.ndarray | None], types: list[TensorType | None], attrs: dict
) -> list[np.ndarray]:
    sizes: dict[str, int] = {}
    b, operands = Build(op.name), []
    for index, (array, type) in enumerate(zip(arrays, types)):
        if array is None or type is None:
            operands.append(None)
            continue
        operands.append(b.param(f"x{index}", type.dtype, type.shape))
        named = zip(type.shape, array.shape)
        sizes |= {d.name: n for d, n in named if isinstance(d, arith.Var)}
    outputs = op.infer(types, attrs)
    results = op.compute(b, operands, outputs, attrs)
    kernel = b.finish(results, tuple(ir.Size(name) for name in sorted(sizes)))
    made = [
        np.zeros(tuple(arith.evaluate(d, sizes) for d in t.shape), t.dtype.numpy) for t in outputs
    ]
    interp.run(kernel, [*[a for a in arrays if a is not None], *made], sizes)
    return made


@pytest.mark.parametrize("name", [*POINTWISE, *MOVES])
def test_samples_with_symbols(name: str) -> None:
    op = TABLE[name]
    for sample in op.samples():
        arrays = [None if x is None else np.asarray(x) for x in sample.inputs]
        pairs = enumerate(arrays)
        types = [None if x is None else symbolic_type(name, i, x) for i, x in pairs]
        if sample.fails:
            with pytest.raises(IngotError, match=sample.fails):
                run_symbolic(op, arrays, types, dict(sample.attrs))
            continue
        want = reference(op, sample)
        for have, expected in zip(run_symbolic(op, arrays, types, dict(sample.attrs)), want):
            assert have.shape == expected.shape and have.dtype == expected.dtype
            wide = (x.astype(np.float64) for x in (have, expected))
            np.testing.assert_allclose(*wide, sample.rtol, sample.atol)


N, M = arith.Var("n"), arith.Var("m")
SHAPED = [  # operator, input shape with symbols, attributes with symbols, the array
    ("reshape", (N, 12), {"shape": (N, 3, 4)}, floats(5, 12)),
    ("reshape", (N, M, 4), {"shape": (N * M, 4)}, floats(2, 3, 4)),
    ("reshape", (N, M), {"shape": (M, N)}, floats(2, 3)),
    ("reshape", (N, 6), {"shape": (2, N * 3)}, floats(4, 6)),
    ("reshape", (N, 6), {"shape": (N * 6,)}, floats(0, 6)),
    ("slice", (N, M), {"starts": (1, M - 1), "sizes": (N - 1, M), "steps": (1, -1)}, floats(3, 4)),
    ("expand", (N, 1), {"shape": (2, N, M)}, floats(3, 1)),
    ("tile", (N, M), {"repeats": (N, 2)}, floats(3, 2)),
    ("pad", (N, M), {"before": (N, 0), "after": (0, M)}, floats(2, 3)),
    ("pad", (N, M), {"before": (N, 0), "after": (0, M), "mode": "reflect"}, floats(2, 3)),
    ("pad", (N, M), {"before": (-1, 0), "after": (N, M), "mode": "edge"}, floats(3, 2)),
    ("trilu", (N, M), {"upper": True, "k": N - 2}, floats(3, 4)),
    ("fill", (), {"shape": (N, 2)}, floats()),
]


@pytest.mark.parametrize(("name", "shape", "attrs", "x"), SHAPED)
def test_attributes_with_symbols(name: str, shape: tuple, attrs: dict, x: np.ndarray) -> None:
    op, values = TABLE[name], {"n": 2, "m": 4}
    values |= {d.name: size for d, size in zip(shape, x.shape) if isinstance(d, arith.Var)}
    dims = tuple(arith.wrap(d) for d in shape)
    numbers = {k: _numbers(v, values) for k, v in attrs.items()}
    (want,) = reference(op, Sample((x,), numbers))
    b = Build(name)
    operand = b.param("x", dtypes.f32, dims)
    outputs = op.infer([TensorType(dtypes.f32, dims)], attrs)
    kernel = b.finish(op.compute(b, [operand], outputs, attrs), (ir.Size("n"), ir.Size("m")))
    got = np.zeros(tuple(arith.evaluate(d, values) for d in outputs[0].shape), np.float32)
    interp.run(kernel, [*present(Sample((x,))), got], values)
    np.testing.assert_array_equal(got, want)


def test_a_reshape_that_only_run_time_can_refuse() -> None:
    op, attrs, x = TABLE["reshape"], {"shape": (N, M)}, floats(12)
    b = Build("reshape")
    operand = b.param("x", dtypes.f32, (12,))
    outputs = op.infer([TensorType(dtypes.f32, (arith.Const(12),))], attrs)
    kernel = b.finish(op.compute(b, [operand], outputs, attrs), (ir.Size("n"), ir.Size("m")))
    right, wrong = np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32)
    interp.run(kernel, [x, right], {"n": 3, "m": 4})
    np.testing.assert_array_equal(right, x.reshape(3, 4))
    with refused("run-failed", 12, 15, where="reshape", hint=False):
        interp.run(kernel, [x, wrong], {"n": 3, "m": 5})


def _numbers(value: object, sizes: dict[str, int]) -> object:
    if isinstance(value, tuple):
        return tuple(_numbers(v, sizes) for v in value)
    return arith.evaluate(value, sizes) if isinstance(value, arith.Expr) else value


@pytest.mark.parametrize(
    ("shape", "sizes", "wanted"),
    [
        ((B, 6, D), (3, 6, 1), (1, B, 6)),
        ((D, B, 6), (1, 3, 6), (B, 6)),
        ((B, D, 1, D), (3, 1, 1, 1), (B, 1)),
    ],
)
def test_a_squeeze_of_a_symbol_divides_by_nothing(shape, sizes, wanted) -> None:
    """The dropped axis must be 1, which is checked; the others are copied as they are."""
    op, x = TABLE["reshape"], floats(*sizes)
    type = TensorType(dtypes.f32, tuple(map(arith.wrap, shape)))
    b = Build("squeeze")
    operand = b.param("x", type.dtype, type.shape)
    (out,) = op.infer([type], {"shape": wanted})
    kernel = b.finish(op.compute(b, [operand], [out], {"shape": wanted}), (ir.Size("b"),))
    assert not any("%" in text or "//" in text for text in show(kernel).splitlines()[2:])
    (got,) = run_symbolic(op, [x], [type], {"shape": wanted})
    np.testing.assert_array_equal(got, x.reshape(got.shape))
    longer = floats(*(n + 1 if d == D else n for n, d in zip(sizes, shape)))
    with refused("run-failed", "elements", hint=False):
        run_symbolic(op, [longer], [type], {"shape": wanted})


def test_sizes_that_may_differ_do_not_broadcast() -> None:
    types = [TensorType(dtypes.f32, (d,)) for d in (N, M)]
    with refused("bad-type", "n", "m"):
        TABLE["add"].infer(types, {})


def test_equal_sizes_written_differently_broadcast() -> None:
    shapes = ((N + M) * 2, M * 2 + N * 2)
    types = [TensorType(dtypes.f32, (d,)) for d in shapes]
    assert TABLE["add"].infer(types, {})[0].rank == 1


def test_mixed_element_types_are_refused() -> None:
    types = [TensorType(d, (arith.Const(2),)) for d in (dtypes.f32, dtypes.i64)]
    with refused("bad-type", "f32", "i64", where="add", hint="cast"):
        TABLE["add"].infer(types, {})
