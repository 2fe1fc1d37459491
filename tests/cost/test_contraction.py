"""The cost model of GEMMs: register tiles, cache blocks, prefetch, partial sums."""

import pytest

from ingot.cost import contraction as cost

CACHES = (32 << 10, 512 << 10, 32 << 20)


@pytest.mark.parametrize(
    ("row_tiles", "row_tile_bytes", "panels_bytes", "expected"),
    [
        (None, 4096, 100_000, 1),  # all panels fit in L2, however many rows there are
        (100, 4096, 100_000, 1),
        (22, 18_432, 9_437_184, None),  # one block: panels are read once
        (None, 4096, 4_000_000, None),
        (275, 6384, 1_670_480, 31),  # rows exceed L2, panels fit in the last-level cache
        (275, 6384, 20_000_000, None),  # panels would be read from memory again
        (4000, 18_432, 20_000_000, 800),  # rows exceed the last-level cache
    ],
)
def test_cache_blocks_of_rows(row_tiles, row_tile_bytes, panels_bytes, expected):
    found = cost.row_tiles_per_block(row_tiles, row_tile_bytes, panels_bytes, CACHES)
    assert found == expected
    if row_tiles is not None and found is not None:
        assert -row_tiles % found <= max(found, cost.MAX_PADDED_TILES * row_tiles)


def test_depthwise_tiles_are_tall_and_narrow():
    """No operand reuse: as many accumulators as registers hold, few vectors of weights."""
    tile = cost.register_tile(28, 240, 8, 16, is_depthwise=True)
    assert tile.rows * tile.vectors >= 10 and tile.vectors <= 2
    assert cost.register_tile(cost.ASSUMED_EXTENT, 64, 8, 16) == cost.Tile(6, 2, 8)


@pytest.mark.parametrize(
    ("times", "depth"), [(8, 768), (2, 768), (2, 662), (7, 768), (22, 3072), (9, 512)]
)
def test_about_as_many_lines_are_prefetched_as_there_are(times, depth):
    step = cost.prefetch_step(times, depth)
    assert step is not None and depth % step == 0 and step >= cost.MIN_PREFETCH_STEP
    requests = times * depth // step
    assert requests <= depth
    assert depth <= -(-depth // requests) * requests <= depth * 1.1


def test_a_prime_depth_is_prefetched_at_once_or_not_at_all():
    assert cost.prefetch_step(7, 509) == 509
    assert cost.prefetch_step(510, 509) is None


def test_small_m_fills_whole_tiles():
    """Tiles of four rows wait a little for the FMA latency, but have no padding."""
    assert cost.register_tile(32, 768, 8, 16, panel=16).rows == 4
    assert cost.register_tile(196, 768, 8, 16, panel=16).rows == 6


@pytest.mark.parametrize(("panels", "taps"), [(30, 25), (48, 25), (84, 25), (24, 49), (36, 27)])
def test_depthwise_channel_blocks_fit_in_l1(panels, taps):
    """A tile's window and weights stay in L1; blocks are whole cache lines."""
    caches, touched = (32 << 10, 512 << 10), (taps * 4) * 32
    found = cost.depthwise_channel_blocks(panels, 32, touched, caches)
    assert found and found == sorted(found, reverse=True)
    for count in found:
        assert panels % count == 0 and count < panels and count * 32 % 64 == 0
        assert count * touched <= caches[0] / 2
    assert cost.depthwise_channel_blocks(29, 32, 3000, caches) == []  # prime


def test_large_windows_are_compute_bound():
    assert cost.is_compute_bound_depthwise(25, 32) and not cost.is_compute_bound_depthwise(9, 32)


@pytest.mark.parametrize(
    ("size", "copies", "may"),
    [(1 << 17, 12, True), (1 << 19, 12, False), (1 << 17, 15, True), (1 << 17, 3, False)],
)
def test_a_private_copy_fits_in_l2_and_balances_the_load(size, copies, may):
    assert cost.may_copy_per_thread(size, copies, 2, (32 << 10, 512 << 10)) == may


@pytest.mark.parametrize(
    ("sizes", "split"),
    [
        ([512, 7], None),  # short
        ([4096], (0, 512)),
        ([128, 48], (0, 16)),
        ([3, 3, 512], (2, 512)),  # one partial sum: all channels of one tap
        ([5, 5, 256], (2, 256)),
        ([7, 7, 100], (1, 7)),  # or of a row of taps
        ([1, 25088, 1], (1, 512)),
        ([4099], None),  # prime
        ([4, 0, 5000], None),
    ],
)
def test_long_sums_are_split_into_partial_sums(sizes, split):
    assert cost.partial_sums(sizes) == split


def test_k_is_unrolled_for_tiles_of_few_rows():
    """Each row may need an address register."""
    assert [cost.may_unroll_k(rows) for rows in (1, 6, 13)] == [False, True, False]


def test_narrow_gemms_do_not_get_tall_tiles():
    """13 rows of one vector take 29 instructions for 13 FMAs, 6 of two take 20 for 12."""
    assert cost.register_tile(767, 97, 8, 16) == cost.Tile(6, 2, 8)
    assert cost.register_tile(767, 7, 8, 16).rows > 8  # one vector holds all columns
