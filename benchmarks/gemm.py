"""GEMM in f32, versus OpenBLAS (numpy) and MKL (torch):  python benchmarks/gemm.py

Both operands are inputs, so packing is part of the time; a second column has B as a constant,
packed at compile time. Shapes come from a seed that is printed: large (M, N, K ≥ 256), irregular
(not multiples of the tile sizes), small-M (M from 1 to 16; GEMV at 1). For a quick look: --few 6.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # this file is run by its path

from benchmarks.micro import command
from benchmarks.micro.models import Case, node
from benchmarks.micro.rounds import Implementation

IMPLEMENTATIONS = (
    Implementation("Ingot", "ingot", is_ours=True),
    Implementation("Ingot constant B", "ingot", is_frozen=True, is_ours=True),
    Implementation("OpenBLAS", "openblas"),
    Implementation("MKL", "torch_eager"),
)
LARGE, IRREGULAR, SMALL_M = 60, 24, 24  # cases of each kind
SMALL_PRIMES = (7, 13, 17, 31, 61, 97, 127, 251)
ROWS = (1, 2, 3, 4, 5, 7, 8, 12, 16)  # M of the small-M cases


def cases(random: np.random.Generator) -> list[Case]:
    large = [tuple(_between(random, 256, 2048) for _ in range(3)) for _ in range(LARGE)]
    irregular = [_irregular(random) for _ in range(IRREGULAR)]
    small_m = [
        (ROWS[i % len(ROWS)], _between(random, 256, 4096), _between(random, 256, 4096))
        for i in range(SMALL_M)
    ]
    kinds = (("large", large), ("irregular", irregular), ("small-M", small_m))
    return [_case(kind, *shape) for kind, shapes in kinds for shape in shapes]


def _between(random: np.random.Generator, low: int, high: int) -> int:
    """Log-uniform."""
    return round(np.exp(random.uniform(np.log(low), np.log(high))))


def _irregular(random: np.random.Generator) -> tuple[int, ...]:
    """One size is a small prime, the others are a multiple of 64 plus or minus 1."""
    sizes = [64 * int(random.integers(2, 17)) + int(random.choice((-1, 1))) for _ in range(3)]
    sizes[int(random.integers(0, 3))] = int(random.choice(SMALL_PRIMES))
    return tuple(sizes)


def _case(kind: str, m: int, n: int, k: int) -> Case:
    shapes, name = {"a": (m, k), "b": (k, n)}, f"{m}x{n}x{k}"
    return Case(name, kind, (node("MatMul", "ab"),), shapes, flops=2 * m * n * k, frozen=("b",))


if __name__ == "__main__":
    command.main("gemm", cases, IMPLEMENTATIONS)
