"""Matrix products, f32, beside OpenBLAS (numpy) and MKL (torch):  python benchmarks/products.py

Both operands arrive with the call, so packing is inside the timing; a second column has B as a
constant. Shapes come from a seed that is printed: large (M, N, K ≥ 256), awkward (multiples of
nothing), skinny (M from 1 to 16). Few of them: --few 6.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from benchmarks.micro import command
from benchmarks.micro.contest import Contestant
from benchmarks.micro.models import Case, node

CONTESTANTS = (
    Contestant("Ingot", "ingot", is_ours=True),
    Contestant("Ingot constant B", "ingot", is_frozen=True, is_ours=True),
    Contestant("OpenBLAS", "openblas"),
    Contestant("MKL", "torch_eager"),
)
LARGE, AWKWARD, SKINNY = 60, 24, 24
SMALL_PRIMES = (7, 13, 17, 31, 61, 97, 127, 251)
ROWS = (1, 2, 3, 4, 5, 7, 8, 12, 16)


def cases(random: np.random.Generator) -> list[Case]:
    large = [tuple(_between(random, 256, 2048) for _ in range(3)) for _ in range(LARGE)]
    awkward = [_awkward(random) for _ in range(AWKWARD)]
    skinny = [
        (ROWS[i % len(ROWS)], _between(random, 256, 4096), _between(random, 256, 4096))
        for i in range(SKINNY)
    ]
    kinds = (("large", large), ("awkward", awkward), ("skinny", skinny))
    return [_case(kind, *shape) for kind, shapes in kinds for shape in shapes]


def _between(random: np.random.Generator, low: int, high: int) -> int:
    """As likely to double as to halve."""
    return round(np.exp(random.uniform(np.log(low), np.log(high))))


def _awkward(random: np.random.Generator) -> tuple[int, ...]:
    """One size is a small prime, the others are one off a multiple of 64."""
    sizes = [64 * int(random.integers(2, 17)) + int(random.choice((-1, 1))) for _ in range(3)]
    sizes[int(random.integers(0, 3))] = int(random.choice(SMALL_PRIMES))
    return tuple(sizes)


def _case(kind: str, m: int, n: int, k: int) -> Case:
    shapes, name = {"a": (m, k), "b": (k, n)}, f"{m}x{n}x{k}"
    return Case(name, kind, (node("MatMul", "ab"),), shapes, flops=2 * m * n * k, frozen=("b",))


if __name__ == "__main__":
    command.main("products", cases, CONTESTANTS)
