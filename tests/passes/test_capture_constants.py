"""capture_constants: constants that a loop or a branch captures are its own."""

from __future__ import annotations

import numpy as np
from onnx import parser

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from ingot.passes.capture_constants import capture_constants

# a weight and an input that a loop captures, and a branch inside it that captures them again
TEXT = """
<ir_version: 10, opset_import: ["" : 17]>
m (int64 trips, float[2, 2] v, float[1, 2] x) => (float[1, 2] h) {
  w = Constant <value = float[2, 2] {0.5, -1.0, 0.25, 2.0}> ()
  one = Constant <value = int64 {1}> ()
  h = Loop (trips, , x) <body = body (int64 i, bool c, float[1, 2] hi)
      => (bool c2, float[1, 2] ho) {
    c2 = Identity(c)
    is_first = Less(i, one)
    ho = If (is_first) <
      then_branch = first () => (float[1, 2] a) { a = MatMul(hi, w) },
      else_branch = other () => (float[1, 2] b) { m = MatMul(hi, v) b = MatMul(m, w) }>
  }>
}"""


def feeds(trips: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal(s).astype(np.float32) for s in ((2, 2), (1, 2)))
    return [np.array(trips), *arrays]


def test_constants_move_into_sub_graphs_at_all_depths():
    store = ConstantStore()
    before = import_model(parser.parse_model(TEXT), store)
    after = capture_constants(before, store)
    verify(after)
    (loop,) = [n for n in after.nodes if n.op == "loop"]
    body = loop.attr("body")
    (branch,) = [n for n in body.nodes if n.op == "if"]
    for sub in (branch.attr("then_branch"), branch.attr("else_branch")):
        assert any(n.op == "constant" and n.outputs[0].shape == (2, 2) for n in sub.nodes)
    assert len(branch.attr("else_branch").inputs) == 2, "the state and the input stay captured"
    assert capture_constants(after, store) == after
    for trips in (0, 1, 3):
        want, got = (interp.run(g, store, feeds(trips)) for g in (before, after))
        np.testing.assert_array_equal(got[0], want[0])


def test_recurrent_weights_are_packed_when_compiling():
    """Without the pass the weights are packed, or read with a stride, in each step."""
    rng, hidden = np.random.default_rng(0), 32
    weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in
               (("w", (1, 4 * hidden, 8)), ("r", (1, 4 * hidden, hidden)))}  # fmt: skip
    text = f"""
    <ir_version: 10, opset_import: ["" : 17]>
    m (float[n, b, 8] x) => (y) <float[1, {4 * hidden}, 8] w = {{{_numbers(weights["w"])}}},
        float[1, {4 * hidden}, {hidden}] r = {{{_numbers(weights["r"])}}}> {{
      y = LSTM <hidden_size = {hidden}> (x, w, r)
    }}"""
    report = ingot.compile(parser.parse_model(text), target="x86-64-v3").report()
    steps = [line for line in report.splitlines() if line.startswith("gather_matmul")]
    assert steps and all("packing=given" in line for line in steps if "gemm" in line)
    assert any("packing=given" in line for line in steps)


def _numbers(array: np.ndarray) -> str:
    return ", ".join(f"{x:.4f}" for x in array.ravel())
