"""Every shape of the micro-benchmarks in 8-bit integers: bit for bit what numpy gives, by each
instruction set of x86 that this machine has. AArch64: tests/aarch64/test_integers.py."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from tests.models.test_targets import runs_here
from tests.ops.integer_shapes import NAMES, SHAPES, Shape, suite
from tests.ops.test_integer_products import KINDS, name_of

TARGETS = ("x86-64-v4+avx512vnni", "x86-64-v3+avxvnni", "x86-64-v3", "x86-64-v2")
FEW = 2_000_000  # multiplications of the shapes in every run of the tests


def run(chosen: list[Shape], kinds: tuple[type, type], target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"no {target} here")
    made = suite(chosen, kinds)
    session = api.make_session(target)
    session.store = made.store
    exe = ingot.Executable(pipeline.run_stages(made.graph, session), threads=2)
    names = list(made.wants)
    for name, shape, got in zip(names, chosen, exe.run(names, made.feeds), strict=True):
        assert np.array_equal(got, made.wants[name]), shape


@pytest.mark.parametrize("target", TARGETS[::2])
def test_small_shapes(target: str) -> None:
    small = [shape for shape in SHAPES if shape.products < FEW]
    run(small[:: len(small) // 7], KINDS[0], target)


@pytest.mark.long
@pytest.mark.parametrize("kinds", KINDS, ids=name_of)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_shapes(name: str, target: str, kinds: tuple[type, type]) -> None:
    """u8 · i8, as the benchmarks have it, and every third shape with other signs."""
    chosen = [shape for shape in SHAPES if shape.kind == name]
    run(chosen[:: 1 if kinds is KINDS[0] else 3], kinds, target)
