"""Cases of the operators on quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contrib.data import bytes_, made_of, one, real, whole
from tests.contrib.harness import Case

KINDS = (np.uint8, np.int8)


def point(k: int, dtype: Any, key: object = 0) -> list[np.ndarray]:
    """A scale and a zero point."""
    scale = np.abs(real(1, key=(k, key)))[0] * 0.05 + 0.01
    return [one(scale), np.asarray(bytes_(1, key=(k, key), dtype=dtype)[0] // 4)]


def without_zero(inputs: list, at: int, k: int) -> list:
    """Every third case omits an optional zero point."""
    return [None if i == at and k % 3 == 2 else x for i, x in enumerate(inputs)]


def binaries() -> list[Case]:
    cases = []
    shapes = [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((5,), (2, 1, 1)), ((7, 1), (1, 9)), ((33,), ())]
    for k in range(10):
        dtype = KINDS[k % 2]
        (a, b) = (bytes_(*shape, key=n, dtype=dtype) for n, shape in enumerate(shapes[k % 5]))
        inputs = [a, *point(k, dtype), b, *point(k, dtype, "b"), *point(k, dtype, "c")]
        inputs = without_zero(inputs, (2, 5)[k % 2], k)
        for op in ("QLinearAdd", "QLinearMul"):
            if op == "QLinearMul":
                inputs = [*inputs[:6], one(inputs[1] * inputs[4] * 97), inputs[7]]
            # one rounding more or less than ONNX Runtime, which multiplies by scale ratios
            more = {"dynamic": k % 2 == 0 and k % 5 < 2, "steps": 1}
            # ONNX Runtime's type inference fails where a zero point is absent
            nodes = real_binary(op, inputs) if any(x is None for x in inputs) else []
            cases.append(Case(op, inputs, composed=nodes, **more))
        plain = [a, inputs[2], b, inputs[5]]
        zeros = [made_of("Constant", "", f"z{n}", value=_zero(dtype)) for n in (1, 3)]
        wide = [
            made_of("Cast", name, f"w{n}", to=6)
            for n, name in enumerate(f"i{n}" if plain[n] is not None else f"z{n}" for n in range(4))
        ]
        nodes = [*zeros, *wide, made_of("Sub", "w0 w1", "a"), made_of("Sub", "w2 w3", "b"),
                 made_of("Mul", "a b")]  # fmt: skip
        cases.append(Case("MulInteger", plain, composed=nodes))
        axes = [[0], [-1], [0, 1], [1], [0]][k % 5] if a.ndim > 1 else [0]
        to = 6 if dtype is np.int8 else 12
        nodes = [
            made_of("Constant", "", "axes", value_ints=axes), made_of("Cast", "i0", "w", to=7),
            made_of("ReduceSum", "w axes", "s", keepdims=k % 2), made_of("Cast", "s", to=to),
        ]  # fmt: skip
        cases.append(
            Case("ReduceSumInteger", [a], {"axes": axes, "keepdims": k % 2}, composed=nodes)
        )
    return cases


def real_binary(op: str, inputs: list) -> list:
    names = ["i0 i1 i2", "i3 i4 i5"]
    names = [n[:-3] if inputs[3 * i + 2] is None else n for i, n in enumerate(names)]
    return [
        made_of("DequantizeLinear", names[0], "a"), made_of("DequantizeLinear", names[1], "b"),
        made_of(op.removeprefix("QLinear"), "a b", "c"), made_of("QuantizeLinear", "c i6 i7"),
    ]  # fmt: skip


def _zero(dtype: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(np.zeros((), dtype))


def unaries() -> list[Case]:
    cases = []
    for k in range(10):
        dtype = KINDS[k % 2]
        x = bytes_(*[(3, 4), (2, 5, 7), (5,), (64,), (2, 3, 4, 5)][k % 5], key=k, dtype=dtype)
        inputs = without_zero([x, *point(k, dtype), *point(k, dtype, "y")], (2, 4)[k // 3 % 2], k)
        more = {"dynamic": k % 2 == 0, "steps": 0}
        fine = [*inputs[:3], one(1 / 256), inputs[4]]
        cases += [
            Case("QLinearSigmoid", fine, const=(1, 2, 3, 4), **(more | {"steps": 1})),
            Case("QLinearLeakyRelu", inputs, {"alpha": 0.05 * k}, const=(1, 2, 3, 4), **more),
        ]
        attrs = {"opset": 13 if k % 2 else 11, "axis": [-1, 0][k // 5]}
        zero = np.asarray(0 if dtype is np.uint8 else -128, dtype)
        soft = [*inputs[:3], one(1 / 256), zero]
        cases.append(Case("QLinearSoftmax", soft, attrs, const=(1, 2, 3, 4),
                          **(more | {"steps": 1})))  # fmt: skip
        names = "i0 i1" + (" i2" if inputs[2] is not None else "")
        axes = [0, -1] if x.ndim > 1 else [0]
        nodes = [
            made_of("DequantizeLinear", names, "r"),
            made_of("Constant", "", "axes", value_ints=axes),
            made_of("ReduceMean", "r axes", "m", keepdims=k % 2),
            made_of("QuantizeLinear", "m i3 i4"),
        ]
        full = [*inputs[:4], point(k, dtype, "y")[1]]
        cases.append(Case("QLinearReduceMean", full, {"axes": axes, "keepdims": k % 2},
                          composed=nodes, **more))  # fmt: skip
    return cases


def pools() -> list[Case]:
    cases = []
    for k in range(12):
        dtype, is_last = KINDS[k % 2], int(k // 2 % 2)
        shape = (2, 7 + k, 6, 3) if is_last else (2, 3, 7 + k, 6)
        x = bytes_(*shape, key=k, dtype=dtype)
        inputs = [x, *point(k, dtype), *point(k, dtype, "y")]
        attrs = {"kernel_shape": [3, 2], "strides": [1 + k % 3, 1], "channels_last": is_last}
        attrs |= {"pads": [1, 0, 1, 1], "count_include_pad": k % 2} if k % 3 else {}
        if k % 4 == 3:  # over a window that overhangs, ONNX Runtime counts as the standard does not
            attrs |= {"ceil_mode": 1, "count_include_pad": 0}
        more = {"const": (1, 2, 3, 4), "dynamic": k % 3 == 0, "steps": 1}
        cases += [
            Case("QLinearAveragePool", inputs, attrs, **more),
            Case("QLinearGlobalAveragePool", inputs, {"channels_last": is_last}, **more),
        ]
    return cases


def others() -> list[Case]:
    cases = []
    for k in range(10):
        dtype, axis = KINDS[k % 2], k % 3 - 1
        parts = []
        for n in range(1 + k % 4):
            shape = [2, 3, 4]
            shape[axis] = 1 + n
            parts += [bytes_(*shape, key=(k, n), dtype=dtype), *point(k, dtype, n)]
        inputs = [*point(k, dtype, "y"), *parts]
        const = tuple(i for i in range(len(inputs)) if i < 2 or i % 3 != 2)
        cases.append(Case("QLinearConcat", inputs, {"axis": axis}, const=const, dynamic=k > 5))
        shapes = [((3, 4),) * 3, ((3, 1), (3, 4), (1, 4)), ((1,), (2, 3), (3,))][k % 3]
        condition = whole(*shapes[0], high=2, key=k).astype(bool)
        x, y = (bytes_(*shape, key=(k, n), dtype=dtype) for n, shape in enumerate(shapes[1:]))
        inputs = [
            condition, x, *point(k, dtype), y, *point(k, dtype, "y"), *point(k, dtype, "z"),
        ]  # fmt: skip
        cases.append(Case("QLinearWhere", inputs, const=(2, 3, 5, 6, 7, 8), dynamic=k % 3 == 0))
        cases.append(conv(k))
        cases += quantise(k)
    return cases


def conv(k: int) -> Case:
    dtype, is_last, group = KINDS[k % 2], int(k % 3 == 0), 1 + k % 2
    x = bytes_(2, 6, 7, 4, key=k, dtype=dtype)
    x = x if is_last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    weights = np.int8 if k % 4 else dtype
    w = bytes_(6, 4 // group, 3, 3, key=k, dtype=weights)
    per_channel = k % 2 == 1
    w_scale = np.abs(real(6, key=k)) * 0.01 + 0.002 if per_channel else one(0.004)
    w_zero = np.zeros(6, weights) if per_channel else np.asarray(k % 3, weights)
    bias = whole(6, key=k, low=-9000, high=9000) if k % 2 else None
    y = [one(0.9), np.asarray(100 if dtype is np.uint8 else -3, dtype)]
    inputs = [x, *point(k, dtype), w, w_scale, w_zero, *y, bias]
    attrs = {"channels_last": is_last, "group": group, "strides": [1, 1 + k % 2]}
    attrs |= {"pads": [1, 0, 1, 2]} if k % 3 else {"auto_pad": "SAME_UPPER"}
    fixed = [(0, 3 if is_last else 1)]
    const = tuple(range(1, 9))
    return Case("QLinearConv", inputs, attrs, const=const, dynamic=k > 6, fixed=fixed)


def quantise(k: int) -> list[Case]:
    x, per_axis = real(3, 4, 5, key=k, scale=9), k % 3 == 0
    dtype = (np.uint8, np.int8, np.uint16, np.int16)[k % 4]
    scale = np.abs(real(4, key=k)) * 0.1 + 0.02 if per_axis else one(0.07)
    zero = whole(4, key=k, high=90, dtype=dtype) if per_axis else np.asarray(7 + k, dtype)
    attrs = {"axis": 1} if per_axis else {}
    ints = whole(3, 4, 5, key=k, low=np.iinfo(dtype).min, high=np.iinfo(dtype).max, dtype=dtype)
    more = {"dynamic": k % 2 == 1, "fixed": [(1, 0), (2, 0)]}
    return [
        Case("QuantizeLinear", [x, scale, zero], attrs, **more),
        Case("DequantizeLinear", [ints, scale, zero if k % 4 != 1 else None], attrs, **more),
    ]


CASES = [*binaries(), *unaries(), *pools(), *others()]
