"""hoist_invariants: a loop carries only what its iterations change."""

from __future__ import annotations

import numpy as np
from onnx import parser

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from ingot.passes.hoist_invariants import hoist_invariants

# two carried weights (a constant, an input) that stay, a state that changes, one that swaps
TEXT = """
<ir_version: 10, opset_import: ["" : 17]>
m (int64 trips, float[2, 2] v, float[1, 2] x, float[1, 2] z) =>
    (float[1, 2] h, float[1, 2] a, float[1, 2] b, float[2, 2] w_out) {
  w = Constant <value = float[2, 2] {0.5, -1.0, 0.25, 2.0}> ()
  w_out, h, v_out, a, b = Loop (trips, , w, x, v, x, z) <body = body
      (int64 i, bool c, float[2, 2] wi, float[1, 2] hi, float[2, 2] vi, float[1, 2] p,
       float[1, 2] q) =>
      (bool c2, float[2, 2] wo, float[1, 2] ho, float[2, 2] vo, float[1, 2] po, float[1, 2] qo) {
    c2 = Identity(c)  wo = Identity(wi)  vo = Identity(vi)
    m1 = MatMul(hi, wi)  m2 = MatMul(m1, vi)  ho = Tanh(m2)
    po = Identity(q)  qo = Identity(p)
  }>
}"""


def feeds(trips: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((2, 2), (1, 2), (1, 2))
    return [np.array(trips), *(rng.standard_normal(s).astype(np.float32) for s in shapes)]


def test_only_what_changes_is_carried():
    store = ConstantStore()
    before = import_model(parser.parse_model(TEXT), store)
    after = hoist_invariants(before, store)
    verify(after)
    (loop,) = [n for n in after.nodes if n.op == "loop"]
    assert loop.attr("carried") == 3, "the state and the two that swap"
    body = loop.attr("body")
    assert any(n.op == "constant" and n.outputs[0].shape == (2, 2) for n in body.nodes)
    assert hoist_invariants(after, store) == after
    for trips in (0, 1, 3):
        want = interp.run(before, store, feeds(trips))
        got = interp.run(after, store, feeds(trips))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_compiled():
    exe = ingot.compile(parser.parse_model(TEXT))
    for trips in (0, 3):
        given = dict(zip(("trips", "v", "x", "z"), feeds(trips)))
        store = ConstantStore()
        want = interp.run(import_model(parser.parse_model(TEXT), store), store, feeds(trips))
        for a, b in zip(exe.run(None, given), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
