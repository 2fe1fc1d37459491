"""Casts of floats to short integers, with a rounding and a zero point: exact for every edge, in
vector code without a conversion lane by lane."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ingot import dtypes, target
from ingot.codegen.llvm import kernel_assembly
from ingot.legalize import legalize_kernel
from ingot.loops import ir, numeric
from ingot.loops.script_parse import parse
from tests.legalize.common import PLAIN, check
from tests.native import BACKEND, Batch

AVX2, AVX512 = target.parse("x86-64-v3"), target.parse("x86-64-v4")
NEON = target.parse("aarch64")
SIZE = 192
SHORT = ("u8", "i8", "u16", "i16", "u4", "i4")
ZEROS = {"u8": 201, "i8": -77, "u16": 40001, "i16": -30001}


def points(dtype: dtypes.DType, source: dtypes.DType) -> np.ndarray:
    """Ties, neighbours of the limits, everything out of range, zeros, NaN with a payload."""
    low, high = int(dtype.lowest), int(dtype.highest)
    rng = np.random.default_rng(0)
    ends = [n + d for n in (low, high, 0, -high) for d in (-1, -0.5, -0.25, 0, 0.5, 0.75, 1, 1.5)]
    odd = [np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, -1e-40, 3e38, -3e38, 2.0**31, -(2.0**63)]
    some = rng.uniform(2 * low - high, 2 * high, SIZE)
    some[::3] = np.floor(some[::3]) + 0.5
    x = np.resize(np.array([*ends, *odd]), SIZE // 2)
    with np.errstate(over="ignore"):
        made = np.concatenate([x, some[: SIZE - len(x)]]).astype(source.numpy)
    if source is dtypes.f32:
        made[-1:] = np.array([0xFFC12345], np.uint32).view(np.float32)
    return made


def quantiser(source: str, to: str, value: str, width: int = 32) -> ir.Kernel:
    return parse(f"""
@ingot.kernel
def quantise(x: {source}[{SIZE}], z: {to}[1], y: {to}[{SIZE}]):
    for i in range({SIZE // width}):
        for j in vectorized({width}):
            with block("y", spatial=(axis(i * {width} + j, {SIZE}),)) as (p,):
                y[p] = {value.replace("to", to).replace("f_", source)}
""")


FORMS = {
    "cut off": "cast(x[p], to)",
    "rounded": "cast(round(x[p]), to)",
    "zero point": "cast(round(x[p]) + cast(z[0], f_), to)",
    "whole": "cast(round(x[p]) + round(x[p]), to)",
}


@pytest.mark.parametrize("on", [AVX2, PLAIN, NEON], ids=lambda t: t.name)
@pytest.mark.parametrize("to", SHORT)
@pytest.mark.parametrize("form", FORMS)
def test_every_pass_keeps_every_edge(form, to, on):
    for source in ("f32", "f64") if to == "i8" else ("f32",):
        if form == "zero point" and to not in ZEROS:
            continue
        kind = dtypes.of(to)
        x = points(kind, dtypes.of(source))
        zero = np.array([ZEROS.get(to, 0)]).astype(kind.numpy)
        check(quantiser(source, to, FORMS[form]), on=on, given={"x": x, "z": zero})


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "cpu"])
@pytest.mark.parametrize("to", ["u8", "i8", "u16", "i16"])
def test_machine_code_keeps_every_edge(to, name):
    kind = dtypes.of(to)
    x = points(kind, dtypes.f32)
    zero = np.array([ZEROS[to]], kind.numpy)
    kernels = [quantiser("f32", to, form) for form in FORMS.values()]
    batch = Batch(kernels, level=3, target=BACKEND.target(name))
    if not batch.can_run:
        pytest.skip(f"this machine cannot run {name}")
    cast = numeric.cast(dtypes.f32, kind, "saturate")
    with np.errstate(all="ignore"):
        near = np.rint(x)
        want = [cast(v) for v in (x, near, near + np.float32(zero[0]), near + near)]
    for number, expected in enumerate(want):
        got = np.zeros(SIZE, kind.numpy)
        batch.run(number, {"x": x, "z": zero, "y": got}, {})
        np.testing.assert_array_equal(got, expected, list(FORMS)[number])


@pytest.mark.parametrize("to", ["u8", "i8"])
@pytest.mark.parametrize("on", [AVX2, AVX512], ids=lambda t: t.name)
def test_a_vector_is_converted_whole(on, to):
    """No conversion or insertion of single lanes, no instruction that only rounds."""
    for width in (16, 32, 64):
        kernel = quantiser("f32", to, FORMS["zero point"], width)
        words = Counter(
            line.split()[0]
            for line in kernel_assembly(legalize_kernel(kernel, on), on).splitlines()
            if line.startswith("\t") and line.split()
        )
        lane = ("vpinsrb", "vpextrb", "vcvttss2si", "vcvtss2si", "vroundps", "vrndscaleps")
        assert not [word for word in lane if words[word]], (width, words)
        assert words["vmaxps"] and words["vminps"]


def test_a_value_quantised_and_dequantised_stays_a_float():
    form = "cast(cast(cast(round(x[p]) + cast(z[0], f32), u8), i32) - cast(z[0], i32), f32)"
    kernel = parse(f"""
@ingot.kernel
def both_ways(x: f32[{SIZE}], z: u8[1], y: f32[{SIZE}]):
    for i in range({SIZE // 16}):
        for j in vectorized(16):
            with block("y", spatial=(axis(i * 16 + j, {SIZE}),)) as (p,):
                y[p] = {form} * 0.5
""")
    zero = np.array([131], np.uint8)
    for on in (AVX512, PLAIN):
        check(kernel, on=on, given={"x": points(dtypes.u8, dtypes.f32), "z": zero})
    text = kernel_assembly(legalize_kernel(kernel, AVX512), AVX512)
    assert "vrndscaleps" in text
    for word in ("vpmovdb", "vpmovzxbd", "vcvtdq2ps"):
        assert word not in text
