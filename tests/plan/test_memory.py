"""Memory planning: live buffers do not overlap, and the arena is near its lower bound."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.arith.tape import definitions
from ingot.graph.types import Symbol
from ingot.plan.first_fit import Item
from ingot.plan.first_fit import largest_live_bytes as live_bytes
from ingot.plan.lifetimes import Lifetime, lifetimes
from ingot.plan.memory import MAIN, assign_offsets
from ingot.plan.place import Request, place
from ingot.program import ir
from ingot.program.verify import verify
from ingot.support.errors import IngotError
from tests.models.build import HARD

ROOM = 1.05  # arena size over the largest live set


def requests(*rows: tuple[int, int, int]) -> list[Request]:
    """(units of 64 bytes, first, last) each."""
    return [
        (f"b{i}", arith.Const(64 * units), Lifetime(first, last))
        for i, (units, first, last) in enumerate(rows)
    ]


def largest_live_bytes(wanted: list[Request]) -> int:
    return live_bytes([Item(name, arith.evaluate(need, {}), span) for name, need, span in wanted])


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


# --- dynamic sizes ------------------------------------------------------------------------------


def placed(wanted: list[Request], symbols: list[Symbol], **sizes: int) -> tuple[int, int]:
    """The arena's bytes and the largest live set at these sizes, after the same check."""
    names, defined = place(wanted, symbols)
    known = definitions(defined).evaluate(sizes)
    spans = []
    for name, need, span in wanted:
        start = known[names[name]]
        stop = start + arith.evaluate(need, sizes)
        assert start % 64 == 0 and stop <= known[defined[-1][0]]
        for other_start, other_stop, other in spans:
            assert not other.overlaps(span) or stop <= other_start or other_stop <= start
        spans.append((start, stop, span))
    numbers = [(name, arith.wrap(arith.evaluate(need, sizes)), span) for name, need, span in wanted]
    return known[defined[-1][0]], largest_live_bytes(numbers)


@pytest.mark.parametrize("seed", range(10))
def test_buffers_of_dynamic_sizes_never_overlap_and_share_memory(seed: int):
    """Whatever the sizes are, in other proportions than those that the plan was made at too."""
    random, n, m = np.random.default_rng(seed), arith.Var("n"), arith.Var("m")
    symbols = [Symbol("n", 1, None), Symbol("m", 0, 4096)]
    kinds = (n * 4, n * 256, (n + 1) // 2 * m * 8, m * 100, arith.Const(5000), m - n)
    wanted = []
    for at in range(60):
        size = kinds[int(random.integers(len(kinds)))] * int(random.integers(1, 9))
        wanted.append((f"b{at}", size, Lifetime(at, at + int(random.geometric(0.4)))))
    for sizes in ({"n": 1, "m": 0}, {"n": 1, "m": 4096}, {"n": 10**6, "m": 3}):
        placed(wanted, symbols, **sizes)
    arena, least = placed(wanted, symbols, n=300, m=300)
    assert arena <= 1.3 * least


@pytest.mark.parametrize("name, sizes", [
    ("residual_cnn", {"batch": 5}), ("transformer_block", {"batch": 2, "length": 90}),
])  # fmt: skip
def test_a_dynamic_plan_is_about_as_small_as_a_static_one(name: str, sizes: dict[str, int]):
    model = HARD[name]()[0]
    dynamic, static = (ingot.compile(model, shapes=s) for s in ({}, sizes))
    arenas = dynamic.memory_for(**sizes)["arena main"], static.memory["arena main"]
    assert arenas[0] <= 1.2 * arenas[1]


def test_edited_definitions_are_refused():
    session = api.make_session("cpu", {}, jobs=1)
    program = pipeline.run_stages(
        HARD["residual_cnn"]()[0], session, stop_after=pipeline.last_program_stage(session.stages)
    )
    verify(program)
    all_, names = list(program.offsets), dict(program.offsets).keys()
    at = next(i for i, (_, e) in enumerate(all_) if arith.free_vars(e) & names)
    (name, e), n = all_[at], arith.Var("batch")
    (below,) = arith.free_vars(e) & names
    for other in (
        [(name, arith.Const(0))],  # on top of another buffer
        [(name, e + 4)],  # not aligned
        [(name, arith.Var(all_[-1][0]))],  # defined later
        [(name, e - n * 64)],  # no sum
        [(name, arith.Var(below) + n * -64)],  # negative
    ):
        refuse(program, [*all_[:at], *other, *all_[at + 1 :]])
    refuse(program, [*all_[:-1], (all_[-1][0], arith.Const(64))])  # a small arena


def refuse(program: ir.Program, offsets: list[tuple[str, arith.Expr]]) -> None:
    with pytest.raises(IngotError) as caught:
        verify(ir.replace(program, offsets=tuple(offsets)))
    assert caught.value.code == "bad-program"
