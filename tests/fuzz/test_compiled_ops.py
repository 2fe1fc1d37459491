"""Operators of sizes that take the vectorised, tiled and parallel roads, compiled, beside numpy.

The samples of the operator suite are tiny and mostly stay serial; these do not. Seeded: a failure
names its case, and the same seed builds it again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.fuzz import pointwise, products, rows
from tests.fuzz.harness import Case, check
from tests.fuzz.pointwise import Rng

MAKERS: dict[str, Callable[[Rng], Case]] = {
    "chain": pointwise.chain,
    "cast": pointwise.cast,
    "move": pointwise.move,
    "reduce": rows.reduce,
    "softmax": rows.softmax,
    "masked_softmax": rows.masked_softmax,
    "norm": rows.norm,
    "channel_norm": rows.channel_norm,
    "ordered": rows.ordered,
    "indexed": rows.indexed,
    "quantised": rows.quantised,
    "find": rows.find,
    "matmul": products.matmul,
    "matmul_integer": products.matmul_integer,
    "conv": products.conv,
    "conv_transpose": products.conv_transpose,
    "pool": products.pool,
}
CASES = 4  # compiled together


def run(name: str, seed: int, symbolic: bool, target: str = "cpu") -> None:
    rng = np.random.default_rng([seed, symbolic])
    cases = [MAKERS[name](rng) for _ in range(CASES)]
    check(cases, rng if symbolic else None, target)


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", MAKERS)
def test_operators(name: str, symbolic: bool) -> None:
    run(name, 0, symbolic)


TARGETS = ("cpu", "x86-64-v2")  # the second has half the lanes, no FMA and no f16


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", MAKERS)
def test_many_operators(name: str, symbolic: bool, seed: int) -> None:
    run(name, seed, symbolic, TARGETS[seed % 2])
