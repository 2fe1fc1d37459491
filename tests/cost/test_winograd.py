"""The cost model of Winograd convolutions: where they are faster, grids and blocks of tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot import dtypes
from ingot.cost import winograd as winograd_cost
from ingot.cost.tile import Tile
from ingot.cost.winograd import ConvShape, Grid
from ingot.machine import GENERIC
from ingot.target import Target, parse

CORE = GENERIC.core
TARGET = replace(parse("x86-64-v3"), caches=(32 << 10, 512 << 10, 32 << 20), cores=2)
WIDE = replace(parse("x86-64-v4"), caches=(32 << 10, 1 << 20, 32 << 20), cores=2)


def register_tile(conv: ConvShape, target: Target) -> Tile:
    how = winograd_cost.transformed_products(dtypes.f32, target)
    assert how is not None
    return winograd_cost.register_tile(conv, target, how)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 64, 64, 56, 56), True),
        ((None, 64, 64, 56, 56), True),
        ((8, 32, 48, 13, 17), True),
        ((1, 512, 512, 7, 7), True),
        ((1, 512, 512, 4, 4), False),  # bound by reading weights, and Winograd has more of them
        ((1, 512, 512, 1, 1), False),
        ((1, 3, 64, 224, 224), False),  # few channels: the transforms cost more than they save
        ((1, 64, 3, 224, 224), False),
        ((1, 16, 16, 6, 6), False),  # shorter than the barriers
        ((1, 64, 64, 56, 1), False),  # half of every tile is padding
    ],
)
def test_where_winograd_is_profitable(sizes, expected):
    assert winograd_cost.is_profitable(ConvShape(*sizes), dtypes.f32, TARGET) is expected


@pytest.mark.parametrize("target", [TARGET, WIDE], ids=["v3", "v4"])
@pytest.mark.parametrize("width", [33, 56, 75, 77, 112, 223, 301])
@pytest.mark.parametrize("channels", [48, 64, 128, 256])
def test_blocks_divide_the_grid_into_whole_register_tiles(width, channels, target):
    conv = ConvShape(2, channels, channels, 2 * width, width)
    found = winograd_cost.grid(conv, dtypes.f32, target)
    min_grid = conv.min_grid
    assert found.block is not None
    high, wide = found.block
    assert found.rows % high == 0 and found.columns % wide == 0
    best = register_tile(conv, target)
    assert winograd_cost.rows_dividing(best, high * wide, CORE) in winograd_cost.tile_rows(
        best, CORE
    )
    assert min_grid[0] <= found.rows and min_grid[1] <= found.columns
    assert found.rows * found.columns <= 1.15 * min_grid[0] * min_grid[1]


def test_few_tiles_are_not_blocked():
    """The intermediates fit in the cache, or the weights exceed it."""
    for sizes in ((1, 128, 128, 28, 28), (1, 256, 256, 14, 14), (1, 512, 512, 28, 28)):
        conv = ConvShape(*sizes)
        assert winograd_cost.grid(conv, dtypes.f32, TARGET) == Grid(*conv.min_grid)


@pytest.mark.parametrize("target", [TARGET, WIDE], ids=["v3", "v4"])
@pytest.mark.parametrize("outputs", [16, 24, 48, 64, 100, 256])
def test_blocks_of_a_dynamic_grid_are_whole_register_tiles(outputs, target):
    conv = ConvShape(1, 64, outputs, 258, 258, is_dynamic=True)
    found = winograd_cost.grid(conv, dtypes.f32, target)
    assert found.is_dynamic and found.block is not None
    (count,) = found.block
    best = register_tile(conv, target)
    assert winograd_cost.rows_dividing(best, count, CORE) is not None
    assert winograd_cost.MIN_BLOCK_TILES <= count <= winograd_cost.MAX_BLOCK_TILES


def test_register_tiles_follow_the_features():
    narrow, wide = (
        register_tile(ConvShape(1, 64, 64, 56, 56), target) for target in (TARGET, WIDE)
    )
    assert winograd_cost.tile_rows(narrow, CORE) == [6, 5, 4]
    assert wide.lanes == 16 and winograd_cost.tile_rows(wide, CORE)[0] > 6


@pytest.mark.parametrize(
    ("target", "expected"),
    [("x86-64-v3", True), ("x86-64-v2", True), ("x86-64-v4+avx512vnni", False), ("aarch64", False)],
)
def test_integers_take_winograd_where_dot_products_have_two_terms(target, expected):
    """With four terms the direct convolution is as fast; NEON without dotprod has neither."""
    sizes = ConvShape(1, 64, 64, 56, 56)
    assert winograd_cost.is_profitable(sizes, dtypes.i8, parse(target)) is expected
