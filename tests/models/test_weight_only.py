"""Products with weights of 2, 4 or 8 bits: against float64, on every target.

Targets whose code this machine can run are compiled; the legal kernels of the others run in the
interpreter. With quantised activations the result is that of the quantised rows, within the
rounding of f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import dtypes, pipeline
from ingot.backends.cpu import BACKEND
from ingot.codegen.llvm import kernel_assembly
from ingot.graph.ir import ConstRef
from ingot.ops.matmul_packed import quantised
from ingot.ops.packed_codes import pack_panels, pack_rows, unpack_panels, unpack_rows
from ingot.program import interp

VNNI, AVX512, AVX2 = "x86-64-v4+avx512vnni", "x86-64-v4", "x86-64-v3"
COMPILED = (VNNI, AVX512, AVX2, "x86-64-v3+avxvnni", "x86-64-v2")
INTERPRETED = ("aarch64", "aarch64+i8mm")
WITHIN = 3e-6  # of the largest output: rounding of f32


@dataclass(frozen=True)
class Case:
    """A MatMulNBits node. `zero`: "" (the middle), "packed" or "float"."""

    rows: int
    depth: int
    columns: int
    block: int
    bits: int = 4
    zero: str = ""
    bias: bool = False
    level: int = 0
    rows_name: str = ""

    def arrays(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.depth)
        blocks = -(-self.depth // self.block)
        codes = rng.integers(0, 1 << self.bits, (self.columns, blocks * self.block), dtype=np.uint8)
        made = {"codes": codes, "scale": rng.uniform(0.5, 1, (self.columns, blocks))}
        if self.zero == "packed":
            made["zero"] = rng.integers(0, 1 << self.bits, (self.columns, blocks), dtype=np.uint8)
        elif self.zero == "float":
            made["zero"] = rng.uniform(0, 1 << self.bits, (self.columns, blocks))
        made |= {"bias": rng.standard_normal(self.columns)} if self.bias else {}
        return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in made.items()}

    def model(self) -> bytes:
        a, blocks = self.arrays(), -(-self.depth // self.block)
        packed = pack_rows(a["codes"], self.bits)
        operands = {"b": packed.reshape(self.columns, blocks, -1), "scale": a["scale"]}
        if self.zero == "packed":
            padded = np.zeros(
                (self.columns, -(-blocks * self.bits // 8) * 8 // self.bits), np.uint8
            )
            padded[:, :blocks] = a["zero"]
            operands["zero"] = pack_rows(padded, self.bits)
        elif self.zero:
            operands["zero"] = a["zero"]
        names = ["x", "b", "scale", "zero" if self.zero else "", "", "bias" if self.bias else ""]
        operands |= {"bias": a["bias"]} if self.bias else {}
        node = helper.make_node(
            "MatMulNBits", names, ["y"], domain="com.microsoft", K=self.depth, N=self.columns,
            bits=self.bits, block_size=self.block, accuracy_level=self.level,
        )  # fmt: skip
        return model([node], operands, (self.rows_name or self.rows, self.depth), self.columns)

    def rows_of(self, rows: int = 0) -> np.ndarray:
        rng = np.random.default_rng(1)
        return rng.standard_normal((rows or self.rows, self.depth)).astype(np.float32)

    def expected(self, x: np.ndarray) -> np.ndarray:
        a = self.arrays()
        wide = np.zeros((len(x), a["codes"].shape[1]), np.float32)
        wide[:, : self.depth] = x
        if self.level == 4:
            wide = quantised(wide, self.block)
        zero = a.get("zero", np.full_like(a["scale"], 1 << (self.bits - 1))).astype(np.float64)
        codes = a["codes"].reshape(self.columns, -1, self.block).astype(np.float64)
        real = (codes - zero[..., None]) * a["scale"].astype(np.float64)[..., None]
        y = wide.astype(np.float64) @ real.reshape(self.columns, -1).T
        return y + a["bias"] if self.bias else y


def model(
    nodes: list[Any], operands: dict[str, np.ndarray], shape: tuple[Any, int], columns: int
) -> bytes:
    tensors = [
        v if isinstance(v, onnx.TensorProto) else numpy_helper.from_array(v, k)
        for k, v in operands.items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (*shape[:-1], columns))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


CASES = (
    Case(1, 256, 64, 32), Case(1, 256, 200, 128, zero="packed"), Case(2, 100, 33, 16, bias=True),
    Case(5, 200, 130, 64, zero="float", bias=True), Case(33, 96, 40, 32, zero="packed", bias=True),
    Case(1, 512, 48, 256), Case(3, 72, 17, 64, bits=8, zero="packed"), Case(8, 64, 31, 16, bits=8),
    Case(1, 128, 35, 32, bits=8, zero="float"), Case(1, 100, 20, 32, bits=2, zero="packed"),
)  # fmt: skip
CASES += tuple(
    Case(c.rows, c.depth, c.columns, c.block, c.bits, c.zero, c.bias, 4)
    for c in CASES
    if c.zero != "float"
)


def assert_close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=WITHIN * np.abs(want).max())


def can(on: str) -> bool:
    return not BACKEND.why_not_here(BACKEND.target(on))


@pytest.mark.parametrize(
    "case, on",
    [
        pytest.param(c, on, marks=[] if i % 3 == n % 3 and n < 3 else [pytest.mark.long])
        for n, on in enumerate(COMPILED)
        for i, c in enumerate(CASES)
    ],
)
def test_compiled(case: Case, on: str) -> None:
    if not can(on):
        pytest.skip("this machine lacks it")
    exe = ingot.compile(case.model(), target=on, threads=2, jobs=1)
    x = case.rows_of()
    assert_close(exe(x)[0], case.expected(x))
    assert "refused" not in str(exe.report())


@pytest.mark.parametrize(
    "case, on",
    [
        pytest.param(c, on, marks=[] if i in (2, 12) else [pytest.mark.long])
        for on in INTERPRETED
        for i, c in enumerate(CASES)
        if c.rows * c.depth * c.columns <= 20_000
    ],
)
def test_legal_kernels(case: Case, on: str) -> None:
    session, program = planned(case.model(), on)
    x = case.rows_of()
    (got,) = interp.run(program, session.store, {"x": x})
    assert_close(got, case.expected(x))
    assert not [r for _, k in program.kernels for r in k.remarks if r.about == "step"]


def planned(data: bytes, on: str) -> tuple[Any, Any]:
    session = pipeline.open_session(on, jobs=1)
    return session, pipeline.run_stages(data, session, stop_after="barriers")


def test_rows_may_be_dynamic() -> None:
    for level in (0, 4):
        case = Case(1, 96, 40, 32, zero="packed", level=level, rows_name="n")
        exe = ingot.compile(case.model(), jobs=1)
        for rows in (1, 2, 9):
            x = case.rows_of(rows)
            assert_close(exe(x)[0], case.expected(x))


def nbytes(ref: ConstRef) -> int:
    return dtypes.of(ref.dtype).storage_bytes * math.prod(ref.shape)


WORDS = [(0, AVX2, "vcvtdq2ps"), (4, VNNI, "vpdpbusd"), (4, "x86-64-v3+avxvnni", "vpdpbusd"),
         (4, AVX2, "vpmaddwd"), (4, "aarch64+i8mm", "usdot")]  # fmt: skip


@pytest.mark.parametrize("level, on, word", WORDS)
@pytest.mark.parametrize("rows", [1, 33])
def test_the_weights_stay_packed(level: int, on: str, word: str, rows: int) -> None:
    """They take half a byte each in the program, and its inner loop has the instruction."""
    case = Case(rows, 256, 192, 32, level=level)
    _, program = planned(case.model(), on)
    refs = [b.constant for b in program.buffers if b.constant is not None]
    assert sorted(nbytes(ref) for ref in refs) == [192 * 8 * 4, 192 * 256 // 2]
    texts = [kernel_assembly(k, BACKEND.target(on)) for _, k in program.kernels]
    assert any(word in text for text in texts)


def test_an_option_quantises_activations() -> None:
    case = Case(2, 128, 33, 32)
    x, level_4 = case.rows_of(), Case(2, 128, 33, 32, level=4)
    exe = ingot.compile(case.model(), options={"int8_activations": True}, jobs=1)
    assert_close(exe(x)[0], level_4.expected(x))
    assert np.abs(exe(x)[0] - case.expected(x)).max() > 1e-3 * np.abs(case.expected(x)).max()


def test_float_zero_points_keep_float_activations() -> None:
    case = Case(1, 64, 20, 32, zero="float", level=4)
    x = case.rows_of()
    assert_close(
        ingot.compile(case.model(), jobs=1)(x)[0], Case(1, 64, 20, 32, zero="float").expected(x)
    )


@pytest.mark.parametrize("on", [VNNI, AVX2])
def test_extreme_activations(on: str) -> None:
    """Zeros, the smallest and largest numbers, and a block of which one element is far larger."""
    if not can(on):
        pytest.skip("this machine lacks it")
    case = Case(6, 64, 20, 32)
    x = case.rows_of()
    x[0], x[1], x[2] = 0, x[1] * np.float32(1e-30), x[2] * np.float32(1e30)
    x[3, 5] = 1e6
    x[4, 3], x[5, 3] = np.inf, np.nan
    (got,) = ingot.compile(case.model(), target=on, jobs=1)(x)
    want = case.expected(x)
    for row in range(4):
        assert_close(got[row], want[row])
    assert np.isnan(got[4:]).all()


# --- dequantize_linear ---------------------------------------------------------------------------


@lru_cache
def dequantised(kind: str, block: int, is_transposed: bool, has_zero: bool) -> tuple[bytes, Any]:
    """matmul(x, dequantize(w)); `block` 0: a scale for each column, -1: for the tensor."""
    depth, columns = 160, 24
    rng, bits = np.random.default_rng(0), int(kind[-1])
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if "U" not in kind else (0, 1 << bits)
    w = rng.integers(low, high, (depth, columns))
    count = -(-depth // block) if block > 0 else 1
    scale = rng.uniform(0.1, 1, (count, 1 if block < 0 else columns)).astype(np.float32)
    zero = rng.integers(low, high, scale.shape) if has_zero else np.zeros(scale.shape, np.int64)
    spread = [np.repeat(v, block, 0)[:depth] if block > 0 else v for v in (zero, scale)]
    real = (w - spread[0]) * spread[1].astype(np.float64)
    arrays = [v.T if is_transposed else v for v in (w, scale, zero)]
    shapes = [v.shape if block > 0 else (v.size,) if block == 0 else () for v in arrays[1:]]
    type_ = getattr(TensorProto, kind)
    operands: dict[str, Any] = {
        "w": helper.make_tensor("w", type_, arrays[0].shape, arrays[0].ravel()),
        "s": arrays[1].reshape(shapes[0]),
        "z": helper.make_tensor("z", type_, shapes[1], arrays[2].ravel()),
    }
    k_axis = int(is_transposed)
    attrs = {"axis": k_axis, "block_size": block} if block > 0 else {"axis": 1 - k_axis}
    inputs = ["w", "s", "z"] if has_zero else ["w", "s"]
    nodes = [helper.make_node("DequantizeLinear", inputs, ["d"], **attrs)]
    nodes += [helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])] if is_transposed else []
    nodes.append(helper.make_node("MatMul", ["x", "t" if is_transposed else "d"], ["y"]))
    if not has_zero:
        del operands["z"]
    return model(nodes, operands, (3, depth), columns), real


FORMS = [
    ("INT4", 32, False, False), ("UINT4", 16, True, True), ("INT4", 64, True, True),
    ("INT8", 0, False, False), ("INT8", 0, True, False), ("UINT8", 0, False, True),
    ("INT8", 32, False, True), ("INT4", 0, False, False), ("UINT8", -1, False, True),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_dequantised_weights_stay_packed(form: tuple) -> None:
    data, real = dequantised(*form)
    x = np.random.default_rng(1).standard_normal((3, len(real))).astype(np.float32)
    exe = ingot.compile(data, jobs=1)
    assert_close(exe(x)[0], x.astype(np.float64) @ real)
    assert "matmul_packed" in str(exe.report())


# --- arrays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("unit", [8, 16, 32])
def test_panels_hold_the_codes(bits: int, unit: int) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << bits, (21, 96), dtype=np.uint8)
    rows = pack_rows(codes, bits)
    np.testing.assert_array_equal(unpack_rows(rows, bits), codes)
    panels = pack_panels(rows, bits, 16, unit)
    assert panels.nbytes == 32 * 96 * bits // 8
    np.testing.assert_array_equal(unpack_panels(panels, bits, 21), codes)
