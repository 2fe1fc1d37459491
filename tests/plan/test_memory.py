"""Memory planning: live buffers do not overlap, and the arena is near its lower bound."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.plan.lifetimes import Lifetime, lifetimes
from ingot.plan.memory import MAIN, Request, assign_offsets, largest_live_bytes
from ingot.program import ir
from tests.models.build import HARD

ROOM = 1.05  # arena size over the largest live set


def requests(*rows: tuple[int, int, int]) -> list[Request]:
    """(units of 64 bytes, first, last) each."""
    return [
        (f"b{i}", arith.Const(64 * units), Lifetime(first, last))
        for i, (units, first, last) in enumerate(rows)
    ]


def planned_bytes(wanted: list[Request]) -> int:
    """The arena's size, after a check that no live buffers overlap."""
    offsets, size = assign_offsets(wanted, {})
    total, ends = arith.as_int(size), []
    assert total is not None
    for name, need, span in wanted:
        start = arith.as_int(offsets[name])
        stop = start + arith.as_int(need)
        assert start % 64 == 0 and stop <= total
        for other_start, other_stop, other in ends:
            assert not other.overlaps(span) or stop <= other_start or other_stop <= start
        ends.append((start, stop, span))
    return total


def test_the_largest_live_set():
    assert largest_live_bytes(requests((1, 0, 1), (2, 1, 2), (4, 3, 3))) == 64 * 4
    assert largest_live_bytes(requests((1, 0, 1), (2, 1, 2), (4, 2, 3))) == 64 * 6
    assert largest_live_bytes([]) == 0


@pytest.mark.parametrize("rows", [
    # first fit, largest first, needs 1.5 times the largest live set
    [(7, 3, 4), (8, 1, 3), (7, 5, 5), (4, 4, 7), (4, 4, 8)],
    # a U-Net: each level is read again on the way up
    [(16, 4, 6), (16, 6, 8), (16, 8, 72), (8, 14, 16), (8, 16, 18), (8, 18, 58), (4, 28, 44),
     (8, 44, 46), (16, 54, 56), (8, 56, 58), (16, 58, 60), (17, 60, 62), (8, 62, 64), (8, 64, 66),
     (8, 66, 68), (32, 68, 70), (16, 70, 72), (32, 72, 74), (33, 74, 76), (16, 76, 78)],
])  # fmt: skip
def test_the_arena_is_near_the_lower_bound(rows):
    wanted = requests(*rows)
    assert planned_bytes(wanted) <= ROOM * largest_live_bytes(wanted)


@pytest.mark.parametrize("seed", range(10))
def test_random_lifetimes(seed: int):
    random = np.random.default_rng(seed)
    rows = []
    for at in range(60):
        length = int(random.geometric(0.4)) if random.random() < 0.8 else int(random.integers(40))
        rows.append((int(random.integers(1, 30)), at, at + length))
    wanted = requests(*rows)
    assert largest_live_bytes(wanted) <= planned_bytes(wanted) <= 1.25 * largest_live_bytes(wanted)


def arena_and_live_bytes(program: ir.Program) -> tuple[int, int]:
    """Of a planned program with static shapes."""
    spans = lifetimes(program)
    temps = [b for b in program.buffers if b.storage is ir.Storage.TEMP]
    (arena,) = [a for a in program.arenas if a.name == MAIN]
    wanted = [(b.name, b.size_bytes, spans[b.name]) for b in temps]
    return arith.evaluate(arena.size_bytes, {}), largest_live_bytes(wanted)


@pytest.mark.parametrize(
    "name", ["residual_cnn", "transformer_block", "kv_cache_scatter", "lstm_both"]
)
def test_models_waste_little(name: str):
    model, feeds = HARD[name]()
    shapes = {
        dim.dim_param: size
        for value in model.graph.input
        if value.name in feeds
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape)
        if dim.dim_param
    }
    session = api.make_session(shapes=shapes)
    program = pipeline.run_stages(model, session, stop_after="plan_memory")
    arena, live = arena_and_live_bytes(program)
    assert 0 < live <= arena <= ROOM * live
