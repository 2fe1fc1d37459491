"""The register tiles of row-major depthwise convolutions, and the choice between layouts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot import dtypes
from ingot.cost.depthwise_rows import MapWindow, is_row_major_cheaper, map_tile
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.machine import of_processor
from ingot.schedule.decide import plan_kernel
from ingot.schedule.table import CPU_RULES
from ingot.target import Target, parse

V3, V4 = parse("x86-64-v3"), parse("x86-64-v4")


def window(rows: int, columns: int, taps: int, stride: int = 1, dilation: int = 1) -> MapWindow:
    return MapWindow((rows, columns), (taps, taps), (stride, stride), (dilation, dilation))


def with_datapath(target: Target, bits: int) -> Target:
    core = replace(target.machine.core, datapath_bits=bits)
    return replace(target, machine=replace(target.machine, core=core))


@pytest.mark.parametrize("target", [V3, V4], ids=lambda t: t.name)
@pytest.mark.parametrize("taps", [3, 5, 7, 15])
@pytest.mark.parametrize("rows", [2, 7, 38, 112])
def test_accumulators_leave_registers_for_the_weights(rows, taps, target):
    tile = map_tile(window(rows, 40, taps), dtypes.f32, target)
    free = target.vector_registers - tile.rows * tile.vectors
    assert free >= min(taps + 1, target.vector_registers // 2)
    assert tile.rows <= rows and tile.lanes <= target.lanes(dtypes.f32)


def test_rows_are_divided_without_remainder_where_registers_allow_it():
    assert map_tile(window(38, 38, 5), dtypes.f32, V4).rows == 19
    assert map_tile(window(56, 56, 3), dtypes.f32, V4).rows == 28


def test_narrow_vectors_where_wide_ones_are_no_faster():
    """38 columns are five vectors of 8 lanes or three of 16, which take six cycles where a port
    is 256 bits wide."""
    assert map_tile(window(38, 38, 5), dtypes.f32, V4).lanes == 16
    assert map_tile(window(38, 38, 5), dtypes.f32, with_datapath(V4, 256)).lanes == 8
    assert map_tile(window(7, 7, 3), dtypes.f32, V4).lanes == 8  # one vector in any case


def test_a_processor_of_family_25_takes_two_cycles_for_512_bits():
    zen = "x86_64; vendor_id : AuthenticAMD; cpu family : {}; model : 17; flags : avx512f"
    assert of_processor(zen.format(25)).core.datapath_bits == 256
    assert of_processor(zen.format(26)).core.datapath_bits == 512


def test_row_major_unless_lanes_are_idle_or_a_map_is_too_large():
    def is_cheaper(w: MapWindow, target: Target = V4, channels: int = 96) -> bool:
        return is_row_major_cheaper(w, channels, dtypes.f32, target)

    assert is_cheaper(window(38, 38, 5)) and is_cheaper(window(38, 38, 5), V3)
    assert is_cheaper(window(14, 14, 3, stride=2)) and is_cheaper(window(28, 28, 3, dilation=2))
    assert not is_cheaper(window(7, 7, 7))  # half of the lanes are idle
    assert not is_cheaper(window(38, 38, 3, stride=3))  # no vector loads
    assert not is_cheaper(window(1000, 1000, 3))  # its copy exceeds L2
    assert not is_cheaper(window(38, 38, 33))  # too long to unroll


def test_small_maps_share_a_copy_and_a_tile():
    """Seven sums are too few for two FMAs of four cycles each, unless a map is done so soon that
    the core begins the next."""

    def blocking(size: int, taps: int, channels: int = 96) -> tuple[int, ...]:
        kernel = row_major(channels, size, taps)
        ((_, plan),) = plan_kernel(kernel, V3, "conv", CPU_RULES)
        assert plan.algorithm == "depthwise_rows" and plan.blocking is not None
        return plan.blocking.sizes

    assert blocking(7, 3) == (6, 1)
    assert blocking(7, 5) == (4, 1)  # 2 x 7 sums and the weights exceed 16 registers
    assert blocking(4, 7) == (4, 2)
    assert blocking(4, 7, channels=97) == (1, 1)
    assert blocking(38, 5) == (1, 1)


def row_major(channels: int, size: int, taps: int) -> ir.Kernel:
    b, space = Build("rows"), size + taps - 1
    x = b.param("X", dtypes.f32, (channels, space, space))
    w = b.param("W", dtypes.f32, (channels, taps, taps))
    y = b.reduce("Y", (channels, size, size), (taps, taps), "add",
                 lambda c, i, j, u, v: x[c, i + u, j + v] * w[c, u, v])  # fmt: skip
    return b.finish([b.compute("Z", y.shape, lambda *p: y[p])])
