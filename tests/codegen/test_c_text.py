"""Printed C: every integer operation at the edges of its type, exact square roots, odd names and
constants. Kernels are legalised for one lane and compared with the loop interpreter."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.backends.c import BACKEND, SCALAR
from ingot.codegen import c_weights
from ingot.codegen.c_helpers import Helpers
from ingot.codegen.c_kernel import print_kernel
from ingot.codegen.c_text import Names, bare, comment, string
from ingot.codegen.c_weights import Constant
from ingot.dtypes import DType
from ingot.legalize import legalize_kernel
from ingot.loops import interp, ir
from ingot.runtime.c import compiler
from ingot.support import options
from tests.refusal import refused

INCLUDES = "".join(f"#include <{n}.h>\n" for n in ("float", "stdbool", "stddef", "stdint"))
INTEGERS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]


def library(text: str) -> ctypes.CDLL:
    with options.override(cc_flags="-O1 -pedantic -Wall -Wextra -Werror"):
        return compiler.load(INCLUDES + text, "a test")


def run_in_c(kernel: ir.Kernel, *arrays: np.ndarray) -> None:
    """Run a kernel that cannot fail on whole arrays."""
    helpers = Helpers()
    text = print_kernel(legalize_kernel(kernel, SCALAR), "k", helpers, 1 << 14)
    call = ", ".join(f"p[{i}]" for i in range(len(arrays)))
    entry = f"void run(void *const *p);\nvoid run(void *const *p)\n{{\n    k({call});\n}}\n"
    table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    library(helpers.text() + text + entry).run(table)


def elementwise(dtype: DType, count: int, values: list) -> ir.Kernel:
    """y_n[i] = values[n](a[i], b[i]) for every n."""
    shape, i = (arith.Const(count),), arith.Var("i")
    a, b = ir.Buffer("a", dtype, shape), ir.Buffer("b", dtype, shape)
    made = [make(a[i], b[i]) for make in values]
    outs = [ir.Buffer(f"y{n}", value.dtype, shape) for n, value in enumerate(made)]
    stores = [ir.Store(out, (i,), value) for out, value in zip(outs, made)]
    return ir.Kernel("edges", (a, b, *outs), (), ir.serial("i", count, ir.seq(*stores)))


def assert_as_interpreted(dtype: DType, a: np.ndarray, b: np.ndarray, values: list) -> None:
    kernel = elementwise(dtype, len(a), values)
    outs = [np.zeros(len(a), p.dtype.numpy) for p in kernel.params[2:]]
    run_in_c(kernel, a, b, *outs)
    wants = [np.zeros_like(out) for out in outs]
    interp.run(kernel, (a, b, *wants))
    for n, (out, want) in enumerate(zip(outs, wants)):
        np.testing.assert_array_equal(out, want, err_msg=f"value {n} of {dtype}")


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_at_every_edge(name: str) -> None:
    dtype = dtypes.of(name)
    edges = [dtype.lowest, dtype.lowest + 1, 0, 1, 2, 7, dtype.highest - 1, dtype.highest]
    edges += [-1, -2, -7] if dtype.is_signed else []
    pairs = np.array([(x, y) for x in edges for y in edges], dtype.numpy)
    a, b = (np.ascontiguousarray(pairs[:, i]) for i in (0, 1))
    divides = ("div", "floordiv", "mod", "rem")
    values = [lambda x, y, op=op: ir.Binary(op, x, y) for op in ir.BINARY if op not in divides]
    values += [lambda x, y, op=op: ir.Unary(op, x) for op in ("neg", "not", "abs")]
    values += [lambda x, y, op=op: ir.Compare(op, x, y) for op in ir.COMPARE]
    others = [dtypes.of(n) for n in (*INTEGERS, "f32", "f64", "bool")]
    values += [lambda x, y, to=to: ir.Cast(x, to) for to in others]
    assert_as_interpreted(dtype, a, b, values)
    some = b != 0
    quotients = [lambda x, y, op=op: ir.Binary(op, x, y) for op in divides]
    assert_as_interpreted(dtype, a[some], b[some], quotients)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_floats_saturate_and_keep_nan(name: str) -> None:
    dtype = dtypes.of(name)
    edges = [0.0, -0.0, 0.5, -0.5, 1.9, -1.9, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38]
    edges += [
        s * 2.0**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for d in (0, 1)
    ]
    pairs = np.array([(x, y) for x in edges for y in edges], dtype.numpy)
    a, b = (np.ascontiguousarray(pairs[:, i]) for i in (0, 1))
    to_int = [lambda x, y, n=n: ir.Cast(x, dtypes.of(n)) for n in (*INTEGERS, "bool")]
    compares = [lambda x, y, op=op: ir.Compare(op, x, y) for op in ir.COMPARE]
    bits = dtypes.of(f"u{dtype.bits}")
    exact = [lambda x, y: ir.Bitcast(x, bits), lambda x, y: ir.Bitcast(ir.Unary("abs", x), bits)]
    floats = [lambda x, y, op=op: ir.Binary(op, x, y) for op in ("add", "mul", "min", "max")]
    floats += [lambda x, y: ir.Unary("isnan", x)]
    with np.errstate(all="ignore"):
        assert_as_interpreted(dtype, a, b, [*to_int, *compares, *exact, *floats])


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_square_roots_are_correctly_rounded(name: str) -> None:
    dtype, unsigned = dtypes.of(name), dtypes.of("u" + name[1:])
    random = np.random.default_rng(7).integers(0, dtypes.i64.highest, 1 << 18)
    bits = (random >> (63 - dtype.bits)).astype(unsigned.numpy) if dtype.bits == 32 else random
    x = np.ascontiguousarray(bits).view(dtype.numpy)
    roots = np.arange(1, 1 << 16).astype(dtype.numpy)
    near = [np.nextafter(roots * roots, dtype.numpy.type(to)) for to in (0, np.inf)]
    special = np.array([0.0, -0.0, np.inf, np.nan, -1.0, 1e-45, 5e-324], dtype.numpy)
    x = np.concatenate([x, roots * roots, *near, special])
    out = np.zeros_like(x)
    kernel = elementwise(dtype, len(x), [lambda a, b: ir.Unary("sqrt", a)])
    run_in_c(kernel, x, x.copy(), out)
    with np.errstate(invalid="ignore"):
        want = np.sqrt(x)
    np.testing.assert_array_equal(out, want)
    zeros = x == 0
    np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(want[zeros]))


def test_constants_in_the_file_keep_every_bit() -> None:
    arrays = {
        "f32": np.array([0.1, -0.0, 1e-45, 3.4e38, 1.0, 16777216.0], np.float32),
        "f64": np.array([0.1, np.nan, -np.inf, 5e-324], np.float64),
        "i64": np.array([dtypes.i64.lowest, dtypes.i64.highest, -1, 0], np.int64),
        "i32": np.array([dtypes.i32.lowest, dtypes.i32.highest], np.int32),
        "u64": np.array([0, dtypes.u64.highest], np.uint64),
        "bool": np.array([True, False]),
        "f16": np.array([1.5, -2.0, np.nan], np.float16),
        "i4": np.array([-8, 7], dtypes.i4.numpy),
    }
    constants, block = [], np.zeros(0, np.uint8)
    for n, (name, array) in enumerate(arrays.items()):
        raw = np.frombuffer(array.tobytes(), np.uint8)
        constants.append(Constant(f"c{n}", name, len(block), array.size))
        block = np.concatenate([block, raw, np.zeros(-len(raw) % 64, np.uint8)])
    text = c_weights.embedded(constants, block)
    for c in constants:
        text += f"const void *at_{c.name}(void);\n"
        text += f"const void *at_{c.name}(void)\n{{\n    return {c.name};\n}}\n"
    loaded = library(text)
    for c, array in zip(constants, arrays.values()):
        at = getattr(loaded, f"at_{c.name}")
        at.restype = ctypes.c_void_p
        assert ctypes.string_at(at(), array.nbytes) == array.tobytes(), c.dtype


def test_names_and_texts_are_safe_in_c() -> None:
    names = Names()
    made = [
        names[n] for n in ("int", "x", "größe", "error", "k1", "int64_t", "ingot_run", "int_1_")
    ]
    assert len(set(made)) == len(made)
    assert names["x"] == "x" and not {"int", "error", "k1", "int64_t", "ingot_run"} & set(made)
    assert all(n.isascii() and n.isidentifier() for n in made)
    assert string('a"b\\??/é\n') == r'"a\042b\134\077\077/\303\251\012"'
    assert "*/" not in comment("evil */ #include") and comment("é\n").isascii()
    assert bare("(a + b)") == "a + b" and bare("(a) + (b)") == "(a) + (b)"


def test_vectors_and_other_targets_are_refused() -> None:
    y = ir.Buffer("y", dtypes.f32, (arith.Const(4),))
    wide = ir.Broadcast(ir.Lit(1.0, dtypes.f32), 4)
    kernel = ir.Kernel("wide", (y,), (), ir.Store(y, (arith.Const(0),), wide))
    with refused("codegen-failed", 4):
        print_kernel(kernel, "k", Helpers(), 0)
    with refused("bad-target", "c:fast"):
        BACKEND.target("c:fast")
