"""Whole expressions: exact, canonical, idempotent, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ingot.arith import expr as ir
from ingot.arith.bounds import Interval
from ingot.arith.expr import Const, Opaque, Var, maximum, minimum, show
from ingot.arith.simplify import Simplifier, simplify

i, j, k, n, m, f = map(Var, "ijknmf")
DIGIT = Interval(0, 3)
SIZES = {v: Interval(0, None) for v in "ijkf"} | {v: Interval(1, None) for v in "nm"}


@pytest.mark.parametrize(
    "expr, env, want",
    [
        ((4 * i + j) // 4, {"j": DIGIT}, "i"),
        ((4 * i + j) % 4, {"j": DIGIT}, "j"),
        ((4 * i + j) // 8, {"j": DIGIT}, "i // 2"),
        ((4 * i + j) % 8, {"j": DIGIT}, "j + i % 2 * 4"),
        ((i * 8) // 8, {}, "i"),
        ((i * 8) % 4, {}, "0"),
        (i // 4 * 4 + i % 4, {}, "i"),
        (i // 4 // 3 * 12 + i // 4 % 3 * 4 + i % 4, {}, "i"),
        (i // 12 * 12 + i % 12 // 4 * 4 + i % 4, {}, "i"),
        (i % 4 + i // 4 % 3 * 4, {}, "i % 12"),
        (i - i // 4 * 4, {}, "i % 4"),
        (i // n * n + i % n, {}, "i"),
        (i // (n + 1) * (n + 1) + i % (n + 1), {}, "i"),
        (i % 8 % 4, {}, "i % 4"),
        ((i % 8 + j) % 4, {}, "(i + j) % 4"),
        (i // -4, {}, "i * (-1) // 4"),
        ((n + 3) // 4 - (n - 1) // 4, {}, "1"),
        ((n + 1) // 2 + -n // 2, {}, "0"),
        ((n + 9) // 4 * 3 + (2 - n) // 4 * 3, {}, "6"),
        (3 + i + j - i + 4, {}, "j + 7"),
        (2 * j + 3 * i - j, {}, "i * 3 + j"),
        ((i + 1) * (i - 1), {}, "i * i - 1"),
        (minimum(i, 5), {"i": DIGIT}, "i"),
        (maximum(i, 5), {"i": DIGIT}, "5"),
        (minimum(minimum(i, 8), 4), {}, "min(i, 4)"),
        (minimum(i, i + 1), {}, "i"),
        (maximum(minimum(i, 3), 0), {"i": DIGIT}, "i"),
        (i + 2, {"i": Interval(5, 5)}, "7"),
        (n - n % 4, {}, "n // 4 * 4"),
    ],
)
def test_known_forms(expr, env, want):
    got = simplify(expr, env)
    assert show(got) == want


@pytest.mark.parametrize(
    "expr, limits, want",
    [
        ((i * n + j) // n, {"j": n}, "i"),
        ((i * n + j) % n, {"j": n}, "j"),
        ((i * m * n + j * m + k) // (m * n), {"j": n, "k": m}, "i"),
        ((i * m * n + j * m + k) // m % n, {"j": n, "k": m}, "j"),
        ((i * (n + 1) + j) // (n + 1), {"j": n + 1}, "i"),
        (minimum(i, n), {"i": n}, "i"),
        (f // m // n, {"f": n * m}, "0"),
    ],
)
def test_symbolic_stops(expr, limits, want):
    assert show(simplify(expr, SIZES, limits)) == want


def test_sizes_are_not_taken_as_positive():
    assert show(simplify(maximum(n, 0))) == "max(n, 0)"
    assert show(simplify(maximum(n, 0), {"n": Interval(0, None)})) == "n"
    assert show(simplify(i % n, {}, {"i": n})) == "i % n"


def test_random_expressions_keep_their_value(fuzz, at):
    rnd = fuzz(21)
    for _ in range(1500):
        env, limits = rnd.env(), rnd.limits()
        expr = rnd.expr(rnd.r.randint(1, 5))
        got = simplify(expr, env, limits)
        for point in rnd.points(env, limits, 15):
            want = at(expr, point)
            if want is not None:
                assert at(got, point) == want, f"{expr} -> {got} at {point} in {env} {limits}"


def test_idempotent_and_free_of_history(fuzz):
    """A fresh simplifier answers as one that has answered a thousand questions."""
    rnd = fuzz(22)
    env = {"i": Interval(0, 31), "j": DIGIT, "k": Interval(-2, None), "n": Interval(1, None)}
    for _ in range(800):
        expr = rnd.expr(4)
        got = simplify(expr, env)
        assert simplify(got, env) == got
        assert Simplifier(env).simplify(expr) == got


def test_order_of_writing_does_not_matter(fuzz):
    rnd = fuzz(23)
    for _ in range(300):
        parts = [rnd.expr(2) for _ in range(4)]
        total, mirrored = Const(0), Const(0)
        for part in parts:
            total = total + part
        for part in reversed(parts):
            mirrored = part + mirrored
        assert simplify(total) == simplify(mirrored)


def test_division_by_zero_stays():
    assert simplify(i // (n - n + j), {"j": Interval(0, 0)}) == ir.FloorDiv(i, Const(0))
    assert simplify(ir.Mod(i, n), {"n": Interval(0, 0)}) == ir.Mod(i, Const(0))


def test_opaque_leaves_are_atoms():
    load = Opaque(("load", "x", 3))
    assert simplify(load * 4 + i - load * 4) == i
    assert simplify((load * 4 + j) // 4, {"j": DIGIT}) == load


def test_big_products_are_not_expanded():
    product = Const(1)
    for name in "abcdefghijkl":
        product = product * (Var(name) + 1)
    got = simplify(product)
    assert sum(1 for _ in ir.walk(got)) < 4000
    point = {name: index for index, name in enumerate("abcdefghijkl")}
    assert ir.evaluate(got, point) == ir.evaluate(product, point)


SCRIPT = """
from ingot.arith.expr import Opaque, Var, minimum
from ingot.arith.simplify import simplify
i, j, k, n = map(Var, "ijkn")
load = Opaque(("load", "b"))
for e in (k*n + j*i + i//3 + n%5 + 2, minimum(minimum(n, k), j) * load + i*load, (i+j+k+n)//7 % n):
    print(simplify(e))
"""


def test_same_text_for_every_hash_seed():
    outputs = set()
    for seed in ("0", "1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
