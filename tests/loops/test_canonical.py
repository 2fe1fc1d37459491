"""Structural identity: names and origins do not matter, anything else does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ingot.dtypes import f32, f64
from ingot.loops import ir, rename, verify, visit
from ingot.loops.canonical import canonical, digest
from ingot.loops.script_parse import parse
from tests.loops import kernels
from tests.loops.kernels import X, buf, i, kernel, loop, num, store

TEXT = """
def NAME(N: size(1, 64), A: f32[N], B: f32[N]):
    T = alloc(f32[N])
    for I in serial(N):
        with block("BLOCK", spatial=(I,)) as (V,):
            L = A[V] * 2.0
            T[V] = L
    copy_async(B[0:N], T[0:N], "TOKEN")
    wait("TOKEN")
"""
WORDS = ("NAME", "N", "A", "B", "T", "I", "BLOCK", "V", "L", "TOKEN")


def renamed(words: dict[str, str]) -> ir.Kernel:
    import re

    return parse(re.sub(r"\b[A-Z]+\b", lambda m: words.get(m.group(), m.group()), TEXT))


def test_names_do_not_matter():
    first = renamed({word: word.lower() for word in WORDS})
    second = renamed({word: f"other_{word.lower()}" for word in WORDS})
    swapped = renamed({"A": "B", "B": "A", "N": "I", "I": "N", "V": "T", "T": "V"})
    assert first != second
    assert canonical(first) == canonical(second) == canonical(swapped)
    assert digest(first) == digest(second) == digest(swapped)


@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_canonical_is_legal_and_its_own_canonical_form(make):
    once = canonical(make())
    verify.verify(once)
    assert canonical(once) == once


def test_everything_else_matters():
    base = kernel([X], loop("i", 4, store(X, i, num(1.0))))
    others = [
        kernel([X], loop("i", 5, store(X, i, num(1.0)))),
        kernel([X], loop("i", 4, store(X, i, num(2.0)))),
        kernel([X], loop("i", 4, store(X, i, num(1.0)), ir.LoopKind.PARALLEL)),
        kernel([X], loop("i", 4, store(X, i, num(1.0)), annotations=(("a", 1),))),
        kernel([q := buf("X", f64, 16)], loop("i", 4, store(q, i, num(1.0, f64)))),
        kernel([X, buf("more", f32, 1)], loop("i", 4, store(X, i, num(1.0)))),
        kernel([X], loop("i", 4, store(X, i, num(1.0))), [ir.Size("n")]),
    ]
    assert len({digest(k) for k in (base, *others)}) == len(others) + 1


def test_origin_and_name_are_left_out():
    base = kernels.matmul()
    other = ir.replace(base, name="else", origin="elsewhere", family="matmul")
    assert digest(base) == digest(other)


def test_the_digest_is_the_same_in_every_process():
    code = (
        "from tests.loops import kernels; from ingot.loops.canonical import digest;"
        "print(*(digest(make()) for make in kernels.ALL))"
    )
    outputs = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert outputs == {" ".join(digest(make()) for make in kernels.ALL) + "\n"}


def test_a_copy_and_its_original_are_legal_together():
    made = kernels.control()
    assert isinstance(made.body, ir.Alloc)
    taken = {p.name for p in made.params} | set(rename.bound_names(made.body))

    def fresh(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    again = rename.copy_of(made.body, fresh)
    verify.verify(ir.replace(made, body=ir.seq(made.body, again)))
    copied = [s.buffer.name for s in visit.walk_stmts(again) if isinstance(s, ir.Alloc)]
    assert copied == ["c_", "t_"]
