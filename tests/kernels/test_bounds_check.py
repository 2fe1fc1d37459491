"""A kernel definition rejects accesses that are always out of range; not those that may be skipped
or whose range is unknown."""

from __future__ import annotations

from pathlib import Path

import ingot
from ingot.script import *
from tests.refusal import refused

HERE = Path(__file__)


def assert_line(error: ingot.IngotError, line: str) -> None:
    """The error names the line of this file that begins so."""
    texts = [text.strip() for text in HERE.read_text(encoding="utf-8").splitlines()]
    (number,) = [n for n, text in enumerate(texts, 1) if text.startswith(line)]
    assert error.code == "bad-loops" and f"{HERE.name}:{number}:" in error.where


def test_a_read_beyond_the_end():
    with refused("bad-loops", where="A[i + 1]", why=("n", "n - 1"), hint=False) as caught:

        @ingot.kernel
        def shifted(A: f32[n], B: f32[n], n: size):
            for i in range(n):
                B[i] = A[i + 1] * 2.0

    assert_line(caught.value, "B[i] = A[i + 1] * 2.0")


def test_a_read_before_the_beginning():
    with refused("bad-loops", where="A[vi * 4 + vj - 1]", why=-1, hint=False) as caught:

        @ingot.kernel
        def early(A: f32[16], B: f32[16]):
            for i, j in grid(4, 4):
                with block("B", spatial=(i, j)) as (vi, vj):
                    B[vi * 4 + vj] = A[vi * 4 + vj - 1]

    assert_line(caught.value, "B[vi * 4 + vj] = A[vi * 4 + vj - 1]")


def test_a_write_beyond_the_end():
    with refused("bad-loops", where="B[i, j]", why=(7, "4 - 1"), hint=False) as caught:

        @ingot.kernel
        def wide(A: f32[4, 8], B: f32[8, 4]):
            for i, j in grid(4, 8):
                B[i, j] = A[i, j]

    assert_line(caught.value, "B[i, j] = A[i, j]")


def test_skipped_accesses_are_accepted():
    @ingot.kernel
    def guarded(A: f32[n], B: f32[n], n: size):
        for i in range(n):
            if i + 1 < n:
                B[i] = A[i + 1]
            else:
                B[i] = select(i < n - 1, A[i + 1], 0.0)

    @ingot.kernel
    def in_where(A: f32[n], B: f32[n], n: size):
        for i in range(n):
            with block("B", spatial=(i,)) as (vi,):
                where(vi + 1 < n)
                B[vi] = A[vi + 1]

    @ingot.kernel
    def never(A: f32[8]):
        for i in range(9, 9):
            A[i] = 0.0


def test_accesses_of_unknown_range_are_accepted():
    @ingot.kernel
    def sizes(A: f32[n], B: f32[m], n: size, m: size):
        for i in range(m):
            B[i] = A[i]  # m may be n or less

    @ingot.kernel
    def clamped(A: f32[n], B: f32[n], n: size):
        for i in range(n):
            B[i] = A[min(i + 1, n - 1)]

    @ingot.kernel
    def triangle(A: f32[8], B: f32[8]):
        for i in range(8):
            for j in range(i):
                B[j] = A[i - 1]  # at i = 0 there is no j

    @ingot.kernel
    def window(A: f32[n + 2], B: f32[n], n: size):
        for i, k in grid(n, 3):
            with block("B", spatial=(i,), reduce=(k,)) as (vi, vk):
                with init():
                    B[vi] = 0.0
                B[vi] += A[vi + vk]
