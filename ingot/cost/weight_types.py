"""The cost model of narrow weights: where a GEMM stores its constant operand as f16 or bf16.

Narrow weights are widened in registers, when a tile loads them, so each tile of rows converts every
vector again; weights that are widened when compiling are read as twice the bytes:

    wide    max(4 · K · N / rate, cycles of the tiles)
    narrow  max(2 · K · N / rate, cycles of the tiles + CONVERT_CYCLES · vectors · row tiles)

The rate is that of the smallest memory level with room for all weights of the model: between two
uses of one, all others are read. With few rows the first term bounds the time, with many the
second. A dynamic number of rows may be one (a decoding step), which gains more than many rows lose.
Called by passes/widen_weights.py and passes/narrow_weights.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot import dtypes
from ingot.cost.contraction import register_tile
from ingot.target import Target

CONVERT_CYCLES = 1.0  # of widening one vector of weights: one or two instructions; heuristic
MAX_TIME = 0.9  # of narrow weights relative to wide ones, to be worth the conversions; heuristic


@dataclass(frozen=True)
class WeightGemm:
    """A GEMM with constant weights, K x N. `rows`: static or likely; None: any number."""

    rows: int | None
    depth: int
    columns: int


def is_bound_by_weights(gemm: WeightGemm, model_bytes: int, target: Target) -> bool:
    """Is the GEMM faster if its weights are stored in 16 bits? `model_bytes`: of all weights of the
    model, in f32."""
    wide, narrow = (_ns(gemm, bits, model_bytes, target) for bits in (32, 16))
    return narrow <= MAX_TIME * wide


def _ns(gemm: WeightGemm, bits: int, model_bytes: int, target: Target) -> float:
    """Predicted time of one core, which has its share of the columns."""
    lanes, core = target.lanes(dtypes.f32), target.machine.core
    rows = gemm.rows or 1
    tile = register_tile(rows, gemm.columns, lanes, target.vector_registers, core=core)
    row_tiles = -(-rows // tile.rows)
    cycles = tile.cycles_per_k(core) / tile.vectors + (CONVERT_CYCLES if bits < 32 else 0)
    vectors = gemm.depth * gemm.columns / lanes / target.cores
    computing = vectors * row_tiles * cycles / target.machine.clock_ghz
    reading = gemm.depth * gemm.columns * bits / 8 / target.cores
    return max(computing, reading / _bytes_per_ns(model_bytes, target))


def _bytes_per_ns(model_bytes: int, target: Target) -> float:
    """The rate at which one of the cores reads weights."""
    machine = target.machine
    for level, capacity in enumerate(target.caches):
        if model_bytes <= capacity:
            return machine.cache_bytes_per_ns(level)
    return min(machine.core_memory_bytes_per_ns, machine.memory_bytes_per_ns / target.cores)
