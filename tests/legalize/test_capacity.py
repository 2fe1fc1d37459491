"""Buffers fit into the memories of the target; the error names the buffer, kernel and node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot.legalize.capacity import check_capacities
from ingot.loops.script_parse import parse
from ingot.target import MemoryScope
from ingot.target import parse as target_of
from tests.refusal import refused

KERNEL = parse("""
@ingot.kernel
def k(x: f32[64], y: f32[64]):
    a = alloc(f32[8], "pad")
    for i in serial(8):
        b = alloc(f32[8], "pad")
        for j in serial(8):
            b[j] = x[i * 8 + j]
        a[i] = b[0]
    for i_2 in serial(8):
        c = alloc(f32[4], "pad")
        c[0] = a[i_2]
        for j_2 in serial(8):
            y[i_2 * 8 + j_2] = c[0]
""")
KERNEL = replace(KERNEL, origin="conv1")


def with_pad(size: int | None):
    memories = (MemoryScope("global"), MemoryScope("pad", size))
    return replace(target_of("x86-64-v3"), memories=memories)


@pytest.mark.parametrize("size", [64, 1000, None])
def test_buffers_that_live_at_once_fit_together(size: int | None):
    check_capacities(KERNEL, with_pad(size))


def test_one_byte_less_is_an_error():
    with refused("limit", "b", "'pad'", 32, where="conv1", why=63, hint=True):
        check_capacities(KERNEL, with_pad(63))


def test_a_memory_that_the_target_lacks():
    with refused("bad-target", "a", "'pad'", where="kernel k", hint="global"):
        check_capacities(KERNEL, target_of("x86-64-v3"))


def test_a_dynamic_size_has_no_place_in_a_fixed_memory():
    kernel = parse("""
@ingot.kernel
def k(n: size, x: f32[n], y: f32[n]):
    a = alloc(f32[n], "pad")
    for i in serial(n):
        a[i] = x[i]
    for i_2 in serial(n):
        y[i_2] = a[i_2]
""")
    with refused("limit", "a", "'pad'", where="kernel k", why=1000, hint=True):
        check_capacities(kernel, with_pad(1000))
