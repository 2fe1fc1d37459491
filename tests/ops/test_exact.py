"""Exact where ONNX is exact: integers, shifts, NaN, rounding, empty reductions, casts; compiled.

Expected values are numpy's, or written down; where ONNX leaves a result open, the case says what
Ingot does. A model has many nodes, since a compilation takes longer than all of its numbers.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ingot

INTS = [np.dtype(f"{sign}{bits}") for sign in ("int", "uint") for bits in (8, 16, 32, 64)]
NAN, INF = float("nan"), float("inf")
LONG = pytest.mark.long
QUICK = [np.dtype(np.int8)]
KINDS = [QUICK, pytest.param([d for d in INTS if d not in QUICK], marks=LONG)]
FLOATS = [[np.float32], pytest.param([np.float16, np.float64], marks=LONG)]


class Nodes:
    """Nodes with their operands and expected outputs, which are compiled and checked together."""

    def __init__(self, opset: int = 21):
        self.opset, self.nodes, self.inputs, self.wants = opset, [], {}, {}
        self.axes: dict[str, np.ndarray] = {}  # constants

    def add(self, op: str, arrays, want, rtol: float = 0.0, **attrs) -> None:
        number = len(self.nodes)
        names = []
        for i, array in enumerate(arrays):
            name = f"x{number}_{i}" if array is not None else ""
            names.append(name)
            if array is not None:
                is_axis = i and op.startswith(("Reduce", "Cum"))
                (self.axes if is_axis else self.inputs)[name] = np.asarray(array)
        output = f"{op}_{number}"
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attrs))
        self.wants[output] = (np.asarray(want), rtol)

    def model(self) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.inputs.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.wants]
        axes = [numpy_helper.from_array(a, n) for n, a in self.axes.items()]
        graph = helper.make_graph(self.nodes, "exact", infos, outputs, axes)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def check(self) -> None:
        found = ingot.compile(self.model(), jobs=1).run(None, self.inputs)
        wrong = []
        for (name, (want, rtol)), got in zip(self.wants.items(), found):
            is_same = got.dtype == want.dtype and got.shape == want.shape
            if not is_same or not _equal(got, want, rtol):
                wrong.append(f"{name}: {got.dtype}{got.tolist()}, not {want.dtype}{want.tolist()}")
        assert not wrong, "\n".join(wrong)


def _equal(got: np.ndarray, want: np.ndarray, rtol: float) -> bool:
    if got.dtype.kind in "iub":
        return np.array_equal(got, want)
    wide = [a.astype(np.float64) for a in (got, want)]
    signs = [np.signbit(a) & (a == 0) for a in wide]
    is_close = np.allclose(*wide, rtol=rtol, atol=0, equal_nan=True)
    return is_close and (rtol > 0 or np.array_equal(*signs))


def limits(dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 7}
    return np.array(sorted(values | ({-1, -7} if info.min else set())), dtype)


def by_python(function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A function of Python's integers, wrapped into the type."""
    bits = x.dtype.itemsize * 8
    flat = [function(int(a), int(b)) % (1 << bits) for a, b in zip(x.flat, y.flat)]
    return np.array(flat, np.uint64).astype(f"uint{bits}").view(x.dtype).reshape(x.shape)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("kinds", KINDS, ids=["some", "others"])
def test_integer_arithmetic(kinds):
    """Division truncates, Mod has the divisor's sign, or with fmod the dividend's; all wrap."""
    nodes = Nodes()
    for dtype in kinds:
        x, y = (a.reshape(-1).copy() for a in np.meshgrid(limits(dtype), limits(dtype)))
        for op, function in (("Add", int.__add__), ("Sub", int.__sub__), ("Mul", int.__mul__)):
            nodes.add(op, [x, y], by_python(function, x, y))
        x, y = x[y != 0], y[y != 0]
        nodes.add("Div", [x, y], by_python(truncated, x, y))
        nodes.add("Mod", [x, y], by_python(lambda a, b: a - b * (a // b), x, y))
        nodes.add("Mod", [x, y], by_python(lambda a, b: a - b * truncated(a, b), x, y), fmod=1)
        nodes.add("Abs", [x], by_python(lambda a, b: abs(a), x, y))
        nodes.add("Sign", [x], np.sign(x.astype(object)).astype(dtype))
        if dtype.kind == "i":
            nodes.add("Neg", [x], by_python(lambda a, b: -a, x, y))
    nodes.check()


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_division_by_zero_fails(op):
    nodes = Nodes()
    nodes.add(op, [np.array([1, 2], np.int16), np.array([1, 0], np.int16)], [0, 0])
    with pytest.raises(ingot.IngotError, match="division by zero") as caught:
        ingot.compile(nodes.model(), jobs=1).run(None, nodes.inputs)
    assert f"{op}_0" in str(caught.value)


def test_shifts_of_the_width_or_more_give_zero():
    nodes = Nodes()
    for dtype in INTS[4:]:
        bits = dtype.itemsize * 8
        y = np.array([0, 1, bits - 1, bits, bits + 1, 2 * bits - 1, np.iinfo(dtype).max], dtype)
        x = np.full(y.shape, np.iinfo(dtype).max - 2, dtype)
        left = by_python(lambda a, b: a << b if b < 999 else 0, x, y)
        right = by_python(lambda a, b: a >> b if b < 999 else 0, x, y)
        nodes.add("BitShift", [x, y], left, direction="LEFT")
        nodes.add("BitShift", [x, y], right, direction="RIGHT")
    nodes.check()


def test_powers():
    """An integer base: exact, wraps; a negative exponent truncates. The exponent has a type of its
    own, and none of its bits is lost."""
    nodes = Nodes()
    for dtype in (np.int32, np.int64):
        x = np.array([2, 3, -3, 7, 1, -1, 10, 0, -2, 2, -1], dtype)
        y = np.array([10, 3, 3, 40, -5, -5, -1, 0, 63, -3, -4], dtype)
        whole = [int(float(a) ** int(e)) if e < 0 else int(a) ** int(e) for a, e in zip(x, y)]
        nodes.add("Pow", [x, y], np.array([_wrapped(w, dtype) for w in whole], dtype))
        nodes.add("Pow", [x[:4], np.array([1, 2, 3, 0], np.uint8)], np.array([2, 9, -27, 1], dtype))
    far = np.array([2**32, 2**32 + 1, 2**40 + 1])
    nodes.add("Pow", [np.array([2, -1, 1], np.int32), far], np.array([0, -1, 1], np.int32))
    nodes.add("Pow", [np.array([9, 8], np.int64), np.array([0.5, -0.5], np.float32)], [3, 0])
    odd = np.array([2**24 + 1, 2**24 + 3, 2**24])
    nodes.add("Pow", [np.array([-1, -1, -1], np.float32), odd], np.array([-1, -1, 1], np.float32))
    nodes.add("Pow", [np.array([2.0, 0.5]), np.array([3, 2], np.int8)], np.array([8, 0.25]))
    nodes.add("Pow", [np.array([4, 9], np.float16), np.array([0.5, 0.5])],
              np.array([2, 3], np.float16))  # fmt: skip
    nodes.check()


def _wrapped(number: int, dtype: type) -> int:
    bits = np.dtype(dtype).itemsize * 8
    low = number % (1 << bits)
    return low - (1 << bits) if low >> (bits - 1) else low


@pytest.mark.parametrize("kinds", FLOATS, ids=["f32", "others"])
def test_floats_at_their_edges(kinds):
    """NaN passes through Max, Min, Clip, Sign and Relu; halves round to even; zeros keep signs."""
    nodes = Nodes()
    for dtype in kinds:
        x = np.array([NAN, INF, -INF, -0.0, 0.0, 0.5, 1.5, -0.5, -2.5, 2.5, 1e4], dtype)
        nodes.add("Round", [x], np.rint(x))
        nodes.add("Floor", [x], np.floor(x))
        nodes.add("Ceil", [x], np.ceil(x))
        nodes.add("Sign", [x], np.sign(x) + dtype(0))
        nodes.add("Max", [x, x[::-1].copy()], np.maximum(x, x[::-1]), rtol=1e-9)
        nodes.add("Min", [x, x[::-1].copy()], np.minimum(x, x[::-1]), rtol=1e-9)
        low, high = dtype(1), dtype(-1)
        nodes.add("Clip", [x, low, high], np.where(np.isnan(x), x, dtype(-1)))
        nodes.add("Relu", [x], np.where(np.isnan(x), x, np.maximum(x, 0)), rtol=1e-9)
        y = np.array([3, 2, 2, 1, -1, 0.3, -0.4, INF, 0, -1, 7], dtype)
        with np.errstate(all="ignore"):
            wide = np.fmod(x.astype(np.float64), y.astype(np.float64))
            nodes.add("Mod", [x, y], wide.astype(dtype), fmod=1)
            nodes.add("Div", [x, y], (x.astype(np.float64) / y).astype(dtype))
        nodes.add("IsNaN", [x], np.isnan(x))
        nodes.add("Not", [np.isnan(x)], ~np.isnan(x))
    nodes.check()


@LONG
def test_clip_with_bounds_in_the_wrong_order():
    nodes = Nodes()
    for dtype in [*INTS, np.dtype(np.float32)]:
        x = np.array([0, 3, 9, 20], dtype)
        nodes.add("Clip", [x, dtype.type(10), dtype.type(5)], np.full(4, 5, dtype))
    nodes.check()


EMPTY = {
    "ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -INF, "ReduceMin": INF, "ReduceL1": 0,
    "ReduceL2": 0, "ReduceSumSquare": 0, "ReduceLogSum": -INF, "ReduceLogSumExp": -INF,
    "ReduceMean": NAN,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=LONG)])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=LONG)])
def test_reductions_of_nothing(dynamic, dtype):
    """The identity of each; of integers the least or the largest number. The mean is NaN."""
    nodes = Nodes()
    axes = np.array([1])
    for op, value in EMPTY.items():
        nodes.add(op, [np.zeros((2, 0, 3), dtype), axes], np.full((2, 1, 3), value, dtype))
    others = (
        (np.int32, np.uint8) if dtype is np.float32 else (np.int64, np.uint32, np.uint64, np.int8)
    )
    for dtype in others:
        x, info = np.zeros((2, 0), dtype), np.iinfo(dtype)
        kinds = {"ReduceMax": info.min, "ReduceMin": info.max}
        if info.bits >= 32:
            kinds |= {"ReduceSum": 0, "ReduceProd": 1, "ReduceL1": 0, "ReduceSumSquare": 0}
        for op, value in kinds.items():
            nodes.add(op, [x, axes], np.full(2, value, dtype), keepdims=0)
    for op, value in (("ReduceMax", False), ("ReduceMin", True)):
        nodes.add(op, [np.zeros((2, 0), bool), axes], np.full(2, value), keepdims=0)
    nodes.add("Softmax", [np.zeros((3, 0), np.float32)], np.zeros((3, 0), np.float32))
    nodes.add("LogSoftmax", [np.zeros((0, 3), np.float32)], np.zeros((0, 3), np.float32))
    nodes.add("CumSum", [np.zeros((0, 3), np.float32), np.int64(0)], np.zeros((0, 3), np.float32))
    if not dynamic:
        return nodes.check()
    made = nodes.model()
    for info in made.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value == 0:
                dim.dim_param = "n"
    found = ingot.compile(made, jobs=1).run(None, nodes.inputs)
    for got, (want, _) in zip(found, nodes.wants.values()):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "kinds", [[np.uint8, np.float32], pytest.param([*INTS, np.float16, np.float64], marks=LONG)],
    ids=["some", "all"],
)  # fmt: skip
@LONG
def test_argmax_and_argmin(kinds):
    """The first of equal ones, or the last; a NaN counts as the extreme, as in numpy."""
    nodes = Nodes()
    for dtype in kinds:
        x = np.array([[1, 5, 5, 2], [7, 7, 7, 7], [0, 1, 0, 1]], dtype)
        for op, find in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            nodes.add(op, [x], find(x, axis=1), axis=1, keepdims=0)
            last = 3 - find(x[:, ::-1], axis=1)
            nodes.add(op, [x], last, axis=-1, keepdims=0, select_last_index=1)
    holes = np.array([[1, NAN, 3, NAN], [NAN, 2, 3, 4], [1, 2, 3, NAN]], np.float32)
    for op in ("ArgMax", "ArgMin"):
        nodes.add(op, [holes], np.array([1, 0, 3]), axis=1, keepdims=0)
    nodes.check()


@pytest.mark.parametrize("kinds", KINDS, ids=["some", "others"])
def test_sums_of_every_type(kinds):
    """CumSum and the reductions wrap, in their own type."""
    nodes = Nodes()
    for dtype in kinds:
        if dtype.itemsize < 4:
            continue
        x = np.array([[np.iinfo(dtype).max, 2, 3], [1, np.iinfo(dtype).min, 5]], dtype)
        for attrs in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
            rows = x[:, ::-1] if "reverse" in attrs else x
            total = np.cumsum(rows, axis=1, dtype=dtype)
            total = total - rows if "exclusive" in attrs else total
            total = total[:, ::-1] if "reverse" in attrs else total
            nodes.add("CumSum", [x, np.int32(1)], total, **attrs)
        axes = np.array([1])
        nodes.add("ReduceSum", [x, axes], np.sum(x, 1, dtype=dtype, keepdims=True))
        nodes.add("ReduceProd", [x, axes], np.prod(x, 1, dtype=dtype, keepdims=True))
        nodes.add("ReduceSumSquare", [x, axes], np.sum(x * x, 1, dtype=dtype, keepdims=True))
    for dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        x = np.array([1, 2, 3, -4], dtype)
        nodes.add("CumSum", [x, np.int64(-1)], np.cumsum(x.astype(np.float64)).astype(dtype))
    nodes.check()


# --- casts --------------------------------------------------------------------------------------


@LONG
def test_floats_out_of_range_saturate_as_integers():
    """ONNX leaves it open (ONNX Runtime gives what the processor does). NaN gives 0."""
    nodes = Nodes()
    x = np.array([NAN, INF, -INF, 1e30, -1e30, 300.7, -300.7, 127.9, -0.9, 2.5, -2.5])
    for source in (np.float32, np.float64):
        for dtype in INTS:
            info = np.iinfo(dtype)
            whole = [0 if v != v else info.max if v == INF else info.min if v == -INF else int(v)
                     for v in x.astype(source)]  # fmt: skip
            want = np.array([min(max(w, info.min), info.max) for w in whole], dtype)
            nodes.add("Cast", [x.astype(source)], want, to=helper.np_dtype_to_tensor_dtype(dtype))
    nodes.add("Cast", [x], x != 0, to=TensorProto.BOOL)
    nodes.check()


@pytest.mark.parametrize("kinds", KINDS, ids=["some", "others"])
def test_integers_out_of_range_keep_their_low_bits(kinds):
    nodes = Nodes()
    for source in kinds:
        x = limits(source)
        for dtype in INTS:
            nodes.add("Cast", [x], x.astype(dtype), to=helper.np_dtype_to_tensor_dtype(dtype))
    nodes.check()


NARROW = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1"]


@pytest.mark.parametrize("saturate", [0, pytest.param(1, marks=LONG)])
@LONG
def test_narrow_floats(saturate):
    """Every kind of value, against the standard's reference; and back."""
    rng = np.random.default_rng(2)
    x = np.concatenate([
        [NAN, INF, -INF, 0.0, -0.0, 448, 464, 465, 480, 240, 57344, 61440, 65504, 1e-9, 6.1, 5.0],
        rng.standard_normal(60) * 2.0 ** rng.integers(-20, 12, 60),
    ]).astype(np.float32)  # fmt: skip
    for source in (np.float32, np.float16):
        with np.errstate(all="ignore"):
            given = x.astype(source)
        for name in NARROW:
            is_small = name == "FLOAT4E2M1"
            given_here = given[~np.isnan(given)] if is_small else given  # it has no NaN
            check_against_reference(given_here, name, {} if is_small else {"saturate": saturate})


def check_against_reference(x: np.ndarray, name: str, attrs: dict) -> None:
    to = getattr(TensorProto, name)
    nodes = Nodes(opset=25)
    nodes.add("Cast", [x], x, to=to, **attrs)
    made = nodes.model()
    (want,) = ReferenceEvaluator(made).run(None, nodes.inputs)
    (got,) = ingot.compile(made, jobs=1).run(None, nodes.inputs)
    wide = [a.astype(np.float32) for a in (got, want)]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(*wide, err_msg=f"{x.dtype} to {name}")


@pytest.mark.parametrize(
    "name", ["INT4", *[pytest.param(n, marks=LONG) for n in ("UINT4", "INT2", "UINT2")]]
)
def test_integers_of_a_few_bits_keep_their_low_bits(name):
    to = getattr(TensorProto, name)
    dtype, bits = helper.tensor_dtype_to_np_dtype(to), int(name[-1])
    nodes = Nodes(opset=25)
    for kind in (np.int8, np.uint8, np.int32, np.float32):
        values = [-9, -8, -3, -1, 0, 1, 2, 3, 5, 7, 8, 15, 16, 100]
        x = np.array([v for v in values if v >= 0 or kind is not np.uint8], kind)
        low = x.astype(np.int64) & ((1 << bits) - 1)
        is_negative = (low >> (bits - 1)).astype(bool) & name.startswith("INT")
        want = np.where(is_negative, low - (1 << bits), low).astype(np.int8)
        nodes.add("Cast", [x], want.astype(dtype), to=to)
    found = ingot.compile(nodes.model(), jobs=1).run(None, nodes.inputs)
    for got, (want, _) in zip(found, nodes.wants.values()):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.int8), want.astype(np.int8))


@pytest.mark.parametrize(("mode", "codes"), [
    ("up", [0, 255, 254, 254, 128, 127, 128, 128, 0, 1, 124]),
    ("down", [0, 255, 254, 254, 127, 127, 127, 127, 0, 0, 123]),
    ("nearest", [0, 255, 254, 254, 127, 127, 128, 128, 0, 1, 124]),
])  # fmt: skip
def test_powers_of_two(mode, codes):
    """f8e8m0: 0, NaN, Inf, above the largest, 1.2, 1, 1.5, 1.8, subnormal numbers, 0.124."""
    x = np.array([0, NAN, INF, 3e38, 1.2, 1, 1.5, 1.8, 2.0**-127, 1.6 * 2.0**-127, 0.124],
                 np.float32)  # fmt: skip
    for saturate in (1, 0):
        nodes = Nodes(opset=25)
        to = TensorProto.FLOAT8E8M0
        nodes.add("Cast", [x], x, to=to, round_mode=mode, saturate=saturate)
        (got,) = ingot.compile(nodes.model(), jobs=1).run(None, nodes.inputs)
        want = np.array(codes, np.uint8)
        if not saturate:
            over = [0, 2] if mode == "down" else [0, 2, 3]
            want[over] = 255
        assert got.view(np.uint8).tolist() == want.tolist(), (mode, saturate)
