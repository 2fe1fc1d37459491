"""Ranges hold every value; `prove` claims no falsehood, and proves what schedules need."""

from __future__ import annotations

import operator

import pytest

from ingot.arith import interval as ranges
from ingot.arith.bounds import Interval, bounds_of, extent, prove
from ingot.arith.expr import FOLD, Opaque, Var, maximum, minimum

i, j, k, n, m, f = map(Var, "ijknmf")
SIZES = {v: Interval(0, None) for v in "ijkf"} | {v: Interval(1, None) for v in "nm"}
HOLDS = {
    "lt": operator.lt, "le": operator.le, "eq": operator.eq,
    "ge": operator.ge, "gt": operator.gt, "ne": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize(
    "expr, want",
    [
        (4 * i + j, (0, 31)),
        (i - j, (-3, 7)),
        (i * -2, (-14, 0)),
        (i // 3, (0, 2)),
        (i % 3, (0, 2)),
        ((i + 8) % 16, (8, 15)),
        (i % -3, (-2, 0)),
        (minimum(i, 2), (0, 2)),
        (maximum(i, 2), (2, 7)),
        (i - i // 4 * 4, (0, 3)),
        (n + i, (None, None)),
        (n % 4, (0, 3)),
        (k * k, (0, None)),
    ],
)
def test_known_ranges(expr, want):
    env = {"i": extent(8), "j": extent(4), "k": Interval(0, None)}
    assert bounds_of(expr, env) == Interval(*want)


def test_opaque_leaves_have_the_range_a_callback_gives():
    load = Opaque("table")
    assert bounds_of(load + 1) == Interval(None, None)
    known = bounds_of(load + 1, opaque=lambda payload: Interval(0, 9))
    assert known == Interval(1, 10)
    assert prove("lt", load, 10, opaque=lambda payload: Interval(0, 9))
    assert not prove("lt", load, 10)


@pytest.mark.parametrize(
    "op, a, b, limits",
    [
        ("lt", i, n, {"i": n}),
        ("le", i + 1, n, {"i": n}),
        ("lt", i * m + j, n * m, {"i": n, "j": m}),
        ("lt", (i * m + j) * 4 + 3, n * m * 4, {"i": n, "j": m}),
        ("lt", f // m, n, {"f": n * m}),
        ("lt", f % m, m, {}),
        ("lt", f // (k * 7), n, {"f": n * k * 7}),  # k may be 0, but no divisor is
        ("lt", f % k, k, {}),
        ("lt", 16 * i + j, n, {"j": minimum(16, n - 16 * i)}),
        ("lt", 4 * i + j, n, {"i": n // 4, "j": 4 + n * 0}),
        ("lt", i, j, {"i": k, "k": j + 1}),
        ("le", n, (n + 7) // 8 * 8, {}),
        ("lt", (n + 7) // 8 * 8, n + 8, {}),
        ("le", minimum(n, m), n, {}),
        ("ge", maximum(n, m), m, {}),
        ("ge", n * m, n, {}),
        ("eq", n * (m + 1), m * n + n, {}),
        ("ne", 2 * i, 2 * j + 1, {}),
        ("gt", n, i, {"i": n}),
    ],
)
def test_symbolic_proofs(op, a, b, limits):
    assert prove(op, a, b, SIZES, limits)


@pytest.mark.parametrize(
    "op, a, b, limits",
    [
        ("lt", i, n, {}),
        ("lt", i + 1, n, {"i": n}),
        ("lt", 16 * i + j, n, {"j": 16 + n * 0}),
        ("ge", n * k, n, {}),
        ("eq", n, m, {}),
        ("ne", n, m, {}),
    ],
)
def test_what_is_not_so_is_not_proved(op, a, b, limits):
    assert not prove(op, a, b, SIZES, limits)


def test_unknown_relation_is_refused():
    with pytest.raises(ValueError, match="almost"):
        prove("almost", i, j)  # type: ignore[arg-type]


def test_ranges_hold_every_value(fuzz, at):
    rnd, bounded = fuzz(31), 0
    for _ in range(1500):
        env, limits, expr = rnd.env(), rnd.limits(), rnd.expr(4)
        got = bounds_of(expr, env, limits)
        bounded += got.is_bounded
        for point in rnd.points(env, limits, 12):
            value = at(expr, point)
            assert value is None or got.contains(value), f"{expr} = {value} not in {got}: {point}"
    assert bounded > 100


def test_prove_never_claims_a_falsehood(fuzz, at):
    rnd, claims = fuzz(32), 0
    for _ in range(1200):
        env, limits = rnd.env(), rnd.limits()
        a, b = rnd.expr(3), rnd.expr(2)
        shown = [op for op in HOLDS if prove(op, a, b, env, limits)]
        claims += len(shown)
        for point in rnd.points(env, limits, 10) if shown else ():
            x, y = at(a, point), at(b, point)
            for op in shown:
                assert x is None or y is None or HOLDS[op](x, y), f"{a} {op} {b} at {point}"
    assert claims > 200


@pytest.mark.parametrize("kind", list(FOLD), ids=lambda kind: kind.__name__)
def test_interval_arithmetic_is_sound_and_tight_at_points(kind, fuzz):
    rnd = fuzz(33)
    for _ in range(400):
        a, b = rnd.interval(), rnd.interval()
        got = ranges.ACT[kind](a, b)
        for _ in range(10):
            x, y = rnd.value(a), rnd.value(b)
            if y == 0 and kind.symbol in ("//", "%"):
                continue
            value = FOLD[kind](x, y)
            assert got.contains(value), f"{x} {kind.symbol} {y} = {value} not in {got}"
            assert ranges.ACT[kind](ranges.point(x), ranges.point(y)).value == value


def test_stops_that_contradict_each_other_end():
    limits = {"i": j, "j": i, "k": k // 2 + i}
    assert prove("lt", i, j, SIZES, limits)
    bounds_of((i + j) // (k + 1) + minimum(i * k, j // 3), SIZES, limits)


def test_a_counterexample_is_within_the_ranges():
    env = {"n": Interval(1, 3), "m": Interval(None, 4), "empty": Interval(2, 1)}
    n, m, empty = (Var(name) for name in env)
    assert prove("le", n * n, 9, env)
    assert prove("le", m + n, 7, env)
    assert not prove("le", m + n, 6, env)
    assert prove("ge", (n + 4) // 5, 1, env)
    assert not prove("ge", n - m, 0, env)
    assert prove("le", empty, 1, env) and prove("ge", empty, 2, env)
