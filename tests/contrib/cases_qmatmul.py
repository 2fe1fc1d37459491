"""Cases of the matmuls of 8-bit integers, of the quantised LSTM, and of weights of a few bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import numpy_helper

from ingot.frontends.onnx.contrib.nbits import CODES
from tests.contrib.data import bytes_, made_of, one, real, whole
from tests.contrib.harness import Case

KINDS = (np.uint8, np.int8)


def integer_matmuls() -> list[Case]:
    cases = []
    for k in range(12):
        rows, depth, columns = 1 + k % 5, [8, 33, 64, 7][k % 4], 5 + k
        batch = [(), (2,), (2, 3)][k % 3]
        b = bytes_(depth, columns, key=k, dtype=KINDS[k // 2 % 2])
        per_column = k % 3 == 1
        b_scale = np.abs(real(columns, key=k)) * 0.1 if per_column else one(0.03)
        b_zero = bytes_(columns, key=k, dtype=b.dtype) if per_column else np.asarray(5, b.dtype)
        b_zero = None if k % 4 == 3 else b_zero
        bias = real(columns, key=k) if k % 2 else None
        a = bytes_(
            *batch, rows, depth, key=k, dtype=np.uint8 if b.dtype == np.uint8 else KINDS[k % 2]
        )
        a_zero = np.asarray(100, a.dtype) if k % 2 == 0 else None
        more = {"dynamic": k % 3 == 0, "fixed": [(0, len(batch) + 1)], "tolerance": 1e-6}
        integer = [a, b, one(0.02), b_scale, a_zero, b_zero, bias]
        cases.append(Case("MatMulIntegerToFloat", integer, const=(1, 2, 3, 4, 5, 6), **more))
        x = real(*batch, rows, depth, key=(k, "x"), scale=3)
        dynamic = [x, b, b_scale, b_zero, bias]
        cases.append(Case("DynamicQuantizeMatMul", dynamic, const=(1, 2, 3, 4), **more))
        wide = [whole(*s, key=k, low=-3000, high=3000, dtype=np.int16) for s in (x.shape, b.shape)]
        cases.append(Case("MatMulInteger16", wide, dynamic=k % 2 == 0))
        cases.append(gemm(k))
    return cases


def gemm(k: int) -> Case:
    rows, depth, columns = 1 + k % 4, 16 + k, 6
    trans_a, trans_b = k & 1, k >> 1 & 1
    a = bytes_(*((depth, rows) if trans_a else (rows, depth)), key=k)
    b = bytes_(*((columns, depth) if trans_b else (depth, columns)), key=k, dtype=np.int8)
    per_column = k % 3 == 1
    b_scale = np.abs(real(columns, key=k)) * 0.02 if per_column else one(0.01)
    b_zero = np.zeros(columns, np.int8) if per_column else np.asarray(k, np.int8)
    c = [None, whole(columns, key=k, low=-999, high=999), whole(1, columns, key=k, high=500)][k % 3]
    y = [None, None] if k % 2 else [one(0.3), np.asarray(120, np.uint8)]
    attrs = {"transA": trans_a, "transB": trans_b} | ({"alpha": 0.5} if k % 4 == 2 else {})
    inputs = [a, one(0.05), np.asarray(100, np.uint8), b, b_scale, b_zero, c, *y]
    return Case("QGemm", inputs, attrs, const=(1, 2, 3, 4, 5, 6, 7, 8), dynamic=k % 5 == 0,
                tolerance=1e-6)  # fmt: skip


def lstm() -> list[Case]:
    """The state is quantised in every step, so that a last bit may become a step of 1/255."""
    cases = []
    for k in range(12):
        steps, batch, features, hidden = 1 + k % 5, 1 + k % 3, 6, 5
        direction = ("forward", "reverse", "bidirectional")[k % 3]
        count = 2 if k % 3 == 2 else 1
        dtype = KINDS[k // 3 % 2]
        w = bytes_(count, features, 4 * hidden, key=k, dtype=dtype)
        r = bytes_(count, hidden, 4 * hidden, key=(k, "r"), dtype=dtype)
        shape = (count, 4 * hidden) if k % 4 == 1 else (count,)
        points = []
        for n in "wr":
            scale = np.abs(real(*shape, key=(k, n))) * 0.003 + 0.002
            zero = np.zeros(shape, dtype) if k % 2 else np.full(shape, 9, dtype)
            points += [scale, zero]
        state = [real(count, batch, hidden, key=(k, n)) if k % 2 else None for n in "hc"]
        inputs = [
            real(steps, batch, features, key=k), w, r,
            real(count, 8 * hidden, key=k) if k % 3 else None,
            np.arange(steps, steps - batch, -1).clip(1).astype(np.int32) if k % 4 == 3 else None,
            *state, real(count, 3 * hidden, key=(k, "p")) if k % 5 == 2 else None, *points,
        ]  # fmt: skip
        attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        attrs |= {"input_forget": 1} if k == 7 else {}
        attrs |= {"clip": 0.7} if k == 8 else {}
        names = ["HardSigmoid", "Softsign", "Relu"] * count
        attrs |= {"activations": names} if k == 9 else {}
        const = (1, 2, 3, 7, 8, 9, 10, 11)
        fixed = [(0, 2), *((i, a) for i in (5, 6) for a in (0, 2))]
        cases.append(Case("DynamicQuantizeLSTM", inputs, attrs, (0, 1, 2), const,
                          dynamic=k % 3 == 0, fixed=fixed, tolerance=1e-3))  # fmt: skip
    return cases


def few_bits() -> list[Case]:
    cases = []
    for k in range(16):
        bits, block = [4, 8, 2, 4][k % 4], [16, 32, 64, 128, 256][k % 5]
        depth, columns = [64, 96, 256, 100][k // 4 % 4], 6 + k
        blocks = -(-depth // block)
        b = bytes_(columns, blocks, block * bits // 8, key=k)
        scale = real(columns, blocks, key=k, scale=0.1)
        zero: np.ndarray | None = None
        has_groups = k in (7, 8, 12)
        if has_groups:  # with both, ONNX Runtime differs from itself without g_idx
            zero = None
        elif k % 3 == 1:
            zero = bytes_(columns, -(-blocks * bits // 8), key=(k, "z"))
        elif k % 3 == 2 and bits == 4:
            zero = real(columns, blocks, key=(k, "z"), scale=3) + np.float32(8)
        groups = np.sort(whole(depth, key=k, high=blocks)) if has_groups else None
        bias = real(columns, key=k) if k % 4 in (1, 2) and groups is None else None
        a = real(*[(3,), (2, 3), (1,)][k % 3], depth, key=k)
        attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        attrs |= {"accuracy_level": 1} if k % 2 else {}
        rank = a.ndim - 1
        cases.append(Case("MatMulNBits", [a, b, scale, zero, groups, bias], attrs,
                          const=(1, 2, 3, 4, 5), dynamic=k % 2 == 0, fixed=[(0, rank)],
                          tolerance=1e-5))  # fmt: skip
        trans = int(k % 2 == 0)
        count = depth * columns
        codes = bytes_(-(-count // 2), key=(k, "c"))
        largest = np.abs(real(-(-count // block), key=k))
        a = real(3, depth if trans else columns, key=k)
        attrs = {"K": depth, "N": columns, "block_size": block, "quant_type": k // 2 % 2}
        attrs |= {"transB": trans}
        # ONNX Runtime's CPU build ignores transB=0
        weights = decoded(codes, largest, columns, depth, block, k // 2 % 2)
        nodes = [
            made_of("Constant", "", "w", value=numpy_helper.from_array(weights)),
            made_of("MatMul", "i0 w"),
        ]
        cases.append(Case("MatMulBnb4", [a, codes, largest], attrs, const=(1, 2),
                          dynamic=k % 3 == 0, fixed=[(0, 1)], tolerance=1e-5,
                          composed=[] if trans else nodes))  # fmt: skip
    return cases


def decoded(
    codes: np.ndarray, largest: np.ndarray, columns: int, depth: int, block: int, kind: int
) -> np.ndarray:
    both = np.stack([codes >> 4, codes & 15], axis=1).reshape(-1)[: columns * depth]
    scale = np.repeat(largest, block)[: columns * depth]
    return (np.array(CODES[kind], np.float32)[both] * scale).reshape(columns, depth)


def gathers() -> list[Case]:
    cases = []
    for k in range(12):
        bits, block, rows, columns = [4, 8, 2][k % 3], [16, 32][k % 2], 7, [64, 32][k % 2]
        blocks = columns // block
        data = bytes_(rows, columns * bits // 8, key=k)
        scale = real(rows, blocks, key=k, scale=0.1)
        zero = bytes_(rows, -(-blocks * bits // 8), key=(k, "z")) if k % 2 else None
        at = whole(*[(3,), (2, 3), (), (1, 4)][k % 4], key=k, low=-rows, high=rows)
        at = at.astype(np.int64) if k % 2 else at
        attrs = {"bits": bits, "block_size": block, "quantize_axis": 1 if k % 4 else -1}
        at = np.asarray(at + rows * (k == 5), at.dtype)  # out of range: zeros
        cases.append(Case("GatherBlockQuantized", [data, at, scale, zero], attrs, const=(0, 2, 3),
                          dynamic=k % 3 == 0, tolerance=1e-6))  # fmt: skip
    for k in range(8):
        kind = (ml_dtypes.int4, ml_dtypes.uint4)[k % 2]
        data = whole(6, 32, key=k, low=-8 * (1 - k % 2), high=8 + 8 * (k % 2)).astype(kind)
        axes = {"gather_axis": k // 2 % 2, "quantize_axis": k // 4}
        scale = real(*((6, 2) if k // 4 else (1, 32)), key=k)
        zero = whole(*scale.shape, key=k, high=7).astype(kind) if k % 3 else None
        inputs = [data, whole(2, 3, key=k, low=-6, high=6), scale, zero]
        cases.append(Case("GatherBlockQuantized", inputs, {"block_size": 16, **axes},
                          const=(0, 2, 3), note=data.dtype.name, tolerance=1e-6))  # fmt: skip
    return cases


CASES = [*integer_matmuls(), *lstm(), *few_bits(), *gathers()]
