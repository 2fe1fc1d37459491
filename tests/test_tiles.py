"""The cost model of contractions: what follows from sizes, registers and caches."""

import pytest

from ingot import tiles

CACHES = (32 << 10, 512 << 10, 32 << 20)


@pytest.mark.parametrize(
    ("row_tiles", "row_tile_bytes", "panels_bytes", "expected"),
    [
        (None, 4096, 100_000, 1),  # all panels stay near, however many rows there are
        (100, 4096, 100_000, 1),
        (22, 18_432, 9_437_184, None),  # rows stay near enough, panels are read once
        (None, 4096, 4_000_000, None),
        (275, 6384, 1_670_480, 31),  # rows do not stay near, panels in the last cache: by blocks
        (275, 6384, 20_000_000, None),  # panels would come from memory again
        (4000, 18_432, 20_000_000, 800),  # rows do not stay even in the last cache
    ],
)
def test_blocks_of_rows(row_tiles, row_tile_bytes, panels_bytes, expected):
    found = tiles.row_tiles_per_block(row_tiles, row_tile_bytes, panels_bytes, CACHES)
    assert found == expected
    if row_tiles is not None and found is not None:
        assert -row_tiles % found <= max(found, tiles.MAX_SPARE * row_tiles)


def test_rows_that_load_their_own_vectors_are_many_and_narrow():
    """Of a depthwise convolution: as many results as registers hold, few vectors of weights."""
    tile = tiles.register_tile(28, 240, 8, 16, is_apart=True)
    assert tile.rows * tile.vectors >= 10 and tile.vectors <= 2
    assert tiles.register_tile(None, 64, 8, 16) == tiles.Tile(6, 2, 8)


@pytest.mark.parametrize(
    ("times", "depth"), [(8, 768), (2, 768), (2, 662), (7, 768), (22, 3072), (9, 512)]
)
def test_about_as_many_lines_are_fetched_as_there_are(times, depth):
    step = tiles.fetch_step(times, depth)
    assert step is not None and depth % step == 0 and step >= tiles.LEAST_FETCH_STEP
    shares = times * depth // step
    assert shares <= depth
    assert depth <= -(-depth // shares) * shares <= depth * 1.1


def test_a_depth_with_no_divisor_is_fetched_in_one_go_or_not_at_all():
    assert tiles.fetch_step(7, 509) == 509
    assert tiles.fetch_step(510, 509) is None


def test_few_rows_fill_whole_tiles():
    """Tiles of four rows wait a little for their own sums, but none is half empty."""
    assert tiles.register_tile(32, 768, 8, 16, panel=16).rows == 4
    assert tiles.register_tile(196, 768, 8, 16, panel=16).rows == 6


@pytest.mark.parametrize(("panels", "taps"), [(30, 25), (48, 25), (84, 25), (24, 49), (36, 27)])
def test_windows_go_down_the_map_with_few_channels(panels, taps):
    """So many that a tile's window and weights stay in the first-level cache, in whole lines."""
    caches, touched = (32 << 10, 512 << 10), (taps * 4) * 32
    found = tiles.window_panels(panels, 32, touched, caches)
    assert found and found == sorted(found, reverse=True)
    for count in found:
        assert panels % count == 0 and count < panels and count * 32 % tiles.LINE_BYTES == 0
        assert count * touched <= caches[0] / 2
    assert tiles.window_panels(29, 32, 3000, caches) == []  # nothing divides them


def test_what_is_large_for_a_window():
    assert tiles.is_large_window(25, 32) and not tiles.is_large_window(9, 32)


@pytest.mark.parametrize(
    ("size", "shares", "may"),
    [(1 << 17, 12, True), (1 << 19, 12, False), (1 << 17, 15, True), (1 << 17, 3, False)],
)
def test_a_copy_of_its_own_stays_near_and_leaves_nobody_idle(size, shares, may):
    assert tiles.may_copy_near(size, shares, 2, (32 << 10, 512 << 10)) == may


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([512, 7], None),  # short
        ([4096], (0, 512)),
        ([128, 48], (0, 16)),
        ([3, 3, 512], (2, 512)),  # a part: all channels of one tap
        ([5, 5, 256], (2, 256)),
        ([7, 7, 100], (1, 7)),  # or of a row of taps
        ([1, 25088, 1], (1, 512)),
        ([4099], None),  # nothing divides it
        ([4, 0, 5000], None),
    ],
)
def test_long_sums_are_cut_into_parts(sizes, cut):
    assert tiles.parts_of_sum(sizes) == cut


def test_steps_are_written_out_for_tiles_of_few_rows():
    """A row may have an address of its own."""
    assert [tiles.may_write_out(rows) for rows in (1, 6, 13)] == [False, True, False]


def test_columns_that_fill_no_two_vectors_do_not_get_tall_tiles():
    """13 rows of one vector are 29 instructions for 13 results, 6 of two are 20 for 12."""
    assert tiles.register_tile(767, 97, 8, 16) == tiles.Tile(6, 2, 8)
    assert tiles.register_tile(767, 7, 8, 16).rows > 8  # no second vector to have
