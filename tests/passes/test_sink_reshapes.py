"""sink_reshapes: which reshapes sink below elementwise operators, and equal outputs."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.interp import run as interpret
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from ingot.passes.fuse import fuse
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.sink_reshapes import sink_reshapes
from ingot.support import options
from tests.graph.graphs import graph

GEMM = """
graph g(%x: f32[12, 5], %w: f32[5, 6], %y: f32[3, 4, 6], %v: f32[6]) {
  %p: f32[12, 6] = matmul(%x, %w)
  %r: f32[3, 4, 6] = reshape(%p) {shape=[3, 4, 6]}
  BODY
  return %z
}
"""
STORE = ConstantStore()


def made(body: str):
    before = graph(GEMM.replace("BODY", body))
    after = remove_dead_code(sink_reshapes(before, STORE), STORE)
    verify(after)
    random = np.random.default_rng(0)
    shapes = [(12, 5), (5, 6), (3, 4, 6), (6,)]
    feeds = [random.standard_normal(s).astype(np.float32) for s in shapes]
    for a, b in zip(interpret(before, STORE, feeds), interpret(after, STORE, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return after


@pytest.mark.parametrize(
    "body",
    [
        "%z: f32[3, 4, 6] = relu(%r)",
        "%z: f32[3, 4, 6] = add(%r, %y)",
        "%z: f32[3, 4, 6] = mul(%v, %r)",
        "%a: f32[3, 4, 6] = add(%r, %y)\n  %b: f32[3, 4, 6] = relu(%a)\n"
        "  %z: f32[3, 4, 6] = mul(%b, %v)",
    ],
)
def test_elementwise_operators_fuse_into_the_gemm(body):
    after = made(body)
    assert after.nodes[-1].op == "reshape" and after.outputs[0].name == "z"
    (group,) = [n for n in fuse(after).nodes if n.attr("family") == "matmul"]
    assert [n.op for n in group.attr("body").nodes][1:] == [
        line.split("= ")[1].split("(")[0] for line in body.splitlines()
    ]


@pytest.mark.parametrize(
    "body",
    [
        "%z: f32[2, 3, 4, 6] = add(%r, %q)",  # it grows
        "%z: f32[3, 4, 6] = add(%r, %s)",  # one number for each of the inner four
        "%u: f32[3, 4, 6] = neg(%r)\n  %z: f32[3, 4, 6] = add(%r, %u)",  # read twice
        "%t: f32[3, 4, 6] = exp(%y)\n  %z: f32[3, 4, 6] = relu(%t)",  # no GEMM
    ],
)
def test_others_stay(body):
    text = GEMM.replace("BODY", body)
    text = text.replace("%v: f32[6])", "%v: f32[6], %q: f32[2, 1, 1, 1], %s: f32[4, 1])")
    before = graph(text)
    assert [n.op for n in sink_reshapes(before, STORE).nodes] == [n.op for n in before.nodes]


def test_it_can_be_switched_off():
    before = graph(GEMM.replace("BODY", "%z: f32[3, 4, 6] = relu(%r)"))
    with options.override(off={"sink_reshapes"}):
        assert sink_reshapes(before, STORE) == before
