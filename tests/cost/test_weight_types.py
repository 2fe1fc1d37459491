"""The cost model of narrow weights: bytes against conversions, by rows and by memory level."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot.cost.weight_types import WeightGemm, is_bound_by_weights
from ingot.target import parse

TARGET = replace(parse("x86-64-v4"), caches=(32 << 10, 1 << 20, 32 << 20), cores=2)
MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "model_bytes", "expected"),
    [
        (1, 512 * MIB, True),  # a decoding step: all weights come from memory
        (4, 512 * MIB, True),
        (None, 512 * MIB, True),  # dynamic rows may be one
        (128, 512 * MIB, False),  # bound by arithmetic
        (1, 16 * MIB, True),  # the last-level cache
        (32, 16 * MIB, False),
        (1, 16 << 10, False),  # L1 feeds every FMA
    ],
)
def test_narrow_where_reading_takes_the_time(rows, model_bytes, expected):
    assert is_bound_by_weights(WeightGemm(rows, 2048, 4096), model_bytes, TARGET) is expected


def test_fast_memory_moves_the_border():
    machine = replace(TARGET.machine, core_memory_bytes_per_ns=200.0, memory_bytes_per_ns=400.0)
    gemm = WeightGemm(8, 2048, 4096)
    assert is_bound_by_weights(gemm, 512 * MIB, TARGET)
    assert not is_bound_by_weights(gemm, 512 * MIB, replace(TARGET, machine=machine))
