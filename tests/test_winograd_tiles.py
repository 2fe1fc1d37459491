"""Where Winograd's products pay, and how a map is cut into tiles and blocks of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot import dtypes, winograd_tiles
from ingot.target import parse
from ingot.winograd_tiles import Conv, Grid

TARGET = replace(parse("x86-64-v3"), caches=(32 << 10, 512 << 10, 32 << 20), cores=2)
WIDE = replace(parse("x86-64-v4"), caches=(32 << 10, 1 << 20, 32 << 20), cores=2)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 64, 64, 56, 56), True),
        ((None, 64, 64, 56, 56), True),
        ((8, 32, 48, 13, 17), True),
        ((1, 512, 512, 7, 7), True),
        ((1, 512, 512, 4, 4), False),  # nothing but weights, and there would be more of them
        ((1, 512, 512, 1, 1), False),
        ((1, 3, 64, 224, 224), False),  # hardly a product, for as much to move
        ((1, 64, 3, 224, 224), False),
        ((1, 16, 16, 6, 6), False),  # over before threads have met
        ((1, 64, 64, 56, 1), False),  # half of every tile is beyond the edge
    ],
)
def test_where_it_pays(sizes, expected):
    assert winograd_tiles.pays(Conv(*sizes), dtypes.f32, TARGET) is expected


@pytest.mark.parametrize("target", [TARGET, WIDE], ids=["v3", "v4"])
@pytest.mark.parametrize("width", [33, 56, 75, 77, 112, 223, 301])
@pytest.mark.parametrize("channels", [48, 64, 128, 256])
def test_blocks_divide_the_grid_into_whole_register_tiles(width, channels, target):
    conv = Conv(2, channels, channels, 2 * width, width)
    found = winograd_tiles.grid(conv, dtypes.f32, target)
    least = conv.least
    assert found.block is not None
    high, wide = found.block
    assert found.rows % high == 0 and found.columns % wide == 0
    best = winograd_tiles.register_tile(conv, target, dtypes.f32)
    assert winograd_tiles.rows_within(best, high * wide) in winograd_tiles.tile_rows(best)
    assert least[0] <= found.rows and least[1] <= found.columns
    assert found.rows * found.columns <= 1.15 * least[0] * least[1]


def test_few_tiles_stay_together():
    """What goes from stage to stage stays in a cache; or the weights do not."""
    for sizes in ((1, 128, 128, 28, 28), (1, 256, 256, 14, 14), (1, 512, 512, 28, 28)):
        conv = Conv(*sizes)
        assert winograd_tiles.grid(conv, dtypes.f32, TARGET) == Grid(*conv.least)


def test_register_tiles_follow_the_features():
    narrow, wide = (
        winograd_tiles.register_tile(Conv(1, 64, 64, 56, 56), target, dtypes.f32)
        for target in (TARGET, WIDE)
    )
    assert winograd_tiles.tile_rows(narrow) == [6, 5, 4]
    assert wide.lanes == 16 and winograd_tiles.tile_rows(wide)[0] > 6
