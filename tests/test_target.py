"""Targets are data: vector shapes follow from features, names are checked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ingot import dtypes, target
from ingot.target import HostFeatures, parse, vector_bits
from tests.refusal import refused

HOST = HostFeatures("x86_64-pc-linux-gnu", "znver3", ("avx2", "avx", "fma", "sse2"), cores=2)


@pytest.mark.parametrize(
    "name, bits, registers, f32_lanes",
    [
        ("x86-64-v2", 128, 16, 4),
        ("x86-64-v3", 256, 16, 8),
        ("x86-64-v4", 512, 32, 16),
        ("aarch64", 128, 32, 4),
        ("wasm32", 128, 16, 4),
    ],
)
def test_known_targets(name, bits, registers, f32_lanes):
    t = parse(name)
    assert (t.name, t.vector_bits, t.vector_registers) == (name, bits, registers)
    assert t.lanes(dtypes.f32) == f32_lanes and t.lanes(dtypes.f64) == f32_lanes // 2
    assert t.lanes(dtypes.i8) == 4 * f32_lanes and t.lanes(dtypes.i4) == 4 * f32_lanes
    assert "softmax" in t.keeps and len(t.caches) == 3
    assert list(t.features) == sorted(set(t.features))


def test_levels_add_features():
    assert parse("x86-64-v3").has("fma") and not parse("x86-64-v2").has("fma")
    assert parse("x86-64-v4").has("avx512f") and not parse("x86-64-v3").has("avx512f")
    assert parse("x86-64-v2").feature_string.startswith("+cmov,+cx16")
    assert parse("aarch64").architecture == "aarch64"


def test_the_host_is_what_the_back_end_saw():
    t = parse("cpu", HOST)
    assert (t.triple, t.cpu, t.cores, t.vector_bits) == (HOST.triple, "znver3", 2, 256)
    assert t.features == ("avx", "avx2", "fma", "sse2")
    seen = HostFeatures("x86_64-pc-linux-gnu", "znver3", ("sse2",), 4, (1, 2, 3))
    assert parse("cpu", seen).caches == (1, 2, 3)
    with refused("bad-target", "'cpu'", hint=("host_features", *target.KNOWN)):
        parse("cpu")


def test_the_cpu_name_decides_nothing():
    """A host that says it is a server part, but whose system hides AVX-512, gets 128 bits."""
    hidden = HostFeatures("x86_64-pc-linux-gnu", "sapphirerapids", ("sse2",))
    assert parse("cpu", hidden).vector_bits == 128
    assert vector_bits([]) == 64


def test_features_can_be_added_and_taken_out():
    t = parse("x86-64-v3+avx512f+no-fma")
    assert t.vector_bits == 512 and t.vector_registers == 32 and not t.has("fma")
    assert parse("cpu+no-avx+no-avx2", HOST).vector_bits == 128


def test_unknown_names_list_near_misses_and_all_names():
    with refused("bad-target", "'x86-64-v5'", hint=("cpu", *target.KNOWN)) as caught:
        parse("x86-64-v5")
    near, _, _ = caught.value.hint.partition("aarch64")
    assert near.count("x86-64-v4") == 2, "once as what may have been meant"
    with refused("bad-target", "''", hint=("cpu", *target.KNOWN)):
        parse("")


def test_targets_compare_and_hash_by_value():
    assert parse("cpu", HOST) == parse("cpu", HOST)
    assert len({parse("x86-64-v3"), parse("x86-64-v3"), parse("x86-64-v2")}) == 2


def test_import_is_free_of_heavy_libraries():
    script = "import sys, ingot.target; print('llvmlite' in sys.modules, 'onnx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
