"""Aliased concat, pad and slice: offsets of the views, fallbacks to a copy, and equal outputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.graph.store import ConstantStore
from ingot.lower.lower import lower
from ingot.passes.fuse import fuse
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support import knobs
from tests.graph.graphs import graph


def launches(text: str, state: tuple = ()) -> list[str]:
    """Every launch of a graph: kernel(buffers; sizes)."""
    g = graph(text)
    program = lower(fuse(ir.replace(g, state=state)), ConstantStore())
    found = [s for s in walk(program.body) if isinstance(s, ir.Launch)]
    return [f"{s.kernel}({' '.join(s.args)};{' '.join(map(str, s.sizes))})" for s in found]


TWO = """
graph g(%x: f32[40, 5], %y: f32[40, 3]) {
  %a: f32[40, 5] = softmax(%x) {axis=1}
  %b: f32[40, 3] = softmax(%y) {axis=1}
  %c: f32[40, 8] = concat(%a, %b) {axis=1}
  return %c
}
"""


def test_concat_operands_are_written_in_place():
    assert launches(TWO) == ["softmax(x c;)", "softmax.1(y c;5)"]
    with knobs.override(alias_buffers=False):
        assert launches(TWO) == ["softmax(x a;)", "softmax.1(y b;)", "concat(a b c;)"]


def test_other_readers_read_the_aliased_view():
    text = TWO.replace("return %c", "%d: f32[40, 3] = softmax(%b) {axis=0}\n  return %c, %d")
    assert launches(text)[-1] == "softmax.2(c d;)"


def test_a_chain_of_concats_is_one_buffer():
    text = TWO.replace(
        "return %c",
        """%d: f32[40, 2] = slice(%c) {starts=[0, 1], sizes=[40, 2], steps=[1, 1]}
  %e: f32[40, 2] = softmax(%d) {axis=1}
  %f: f32[40, 2] = softmax(%e) {axis=0}
  %h: f32[40, 10] = concat(%f, %c) {axis=1}
  return %h""",
    )
    assert launches(text) == [
        "softmax(x h;2)", "softmax.1(y h;7)", "softmax.2(h e;)", "softmax.3(e h;)",
    ]  # fmt: skip


def test_inputs_and_values_concatenated_twice_are_copied():
    text = TWO.replace("concat(%a, %b)", "concat(%a, %y)")
    assert launches(text)[0] == "softmax(x c;)"
    assert launches(text)[-1] == "concat_copy(y c;5)"
    inputs = TWO.replace("concat(%a, %b)", "concat(%x, %y)").replace(
        "return %c", "return %c, %a, %b"
    )
    assert launches(inputs)[-1] == "concat(x y c;)"
    twice = TWO.replace("f32[40, 8] = concat(%a, %b)", "f32[40, 10] = concat(%a, %a)")
    assert any(name.startswith("concat(a") for name in launches(twice))


def test_graph_outputs_are_not_aliased():
    text = TWO.replace("return %c", "return %c, %b")
    assert launches(text) == ["softmax(x c;)", "softmax.1(y b;)", "concat_copy(b c;5)"]


def test_a_view_of_an_operand_needs_its_bytes_together():
    text = TWO.replace(
        "return %c",
        """%d: f32[120] = reshape(%b) {shape=[120]}
  %e: f32[120] = softmax(%d) {axis=0}
  return %c, %e""",
    )
    assert "concat_copy(b c;5)" in launches(text)


def test_dynamic_dimensions():
    beside = TWO.replace("[40, ", "[n, ").replace("{\n", "{\n  symbol n: 1..\n", 1)
    assert launches(beside) == ["softmax(x c;n)", "softmax.1(y c;n 5)"]
    along = (
        TWO.replace("5]", "n]").replace("8]", "n + 3]").replace("{\n", "{\n  symbol n: 1..\n", 1)
    )
    assert launches(along)[-1] == "concat(a b c;n)"


def test_no_kernel_reads_one_view_and_writes_another():
    text = """
graph g(%x: f32[40, 5]) {
  %a: f32[40, 5] = softmax(%x) {axis=1}
  %b: f32[40, 5] = softmax(%a) {axis=0}
  %c: f32[40, 10] = concat(%a, %b) {axis=1}
  return %c
}
"""
    for launch in launches(text):
        *inputs, output = launch[launch.index("(") + 1 : launch.index(";")].split()
        assert output not in inputs


CUT = """
graph g(%x: f32[40, 6]) {
  %a: f32[40, 6] = softmax(%x) {axis=1}
  %b: f32[40, 3] = slice(%a) {starts=[0, 2], sizes=[40, 3], steps=[1, STEP]}
  %c: f32[40, 3] = softmax(%b) {axis=1}
  return %c
}
"""


def test_slices_are_views():
    assert launches(CUT.replace("STEP", "1")) == ["softmax(x a;)", "softmax.1(a c;)"]
    stepped = CUT.replace("STEP", "-1")
    assert launches(stepped)[1] == "slice(a b;)"


def test_a_slice_of_a_state_is_a_copy():
    text = """
graph g(%s: f32[40, 6], %x: f32[40, 6]) {
  %b: f32[40, 3] = slice(%s) {starts=[0, 2], sizes=[40, 3], steps=[1, 1]}
  %t: f32[40, 6] = add(%s, %x)
  %c: f32[40, 3] = softmax(%b) {axis=1}
  return %t, %c
}
"""
    assert any(name.startswith("slice") for name in launches(text, (("s", "t"),)))


# --- random graphs ------------------------------------------------------------------------------


class Draw:
    """A random network of convolutions, pools, concats and splits along channels."""

    def __init__(self, seed: int):
        self.r = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values = {"x": 6}  # channels

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def pick(self) -> str:
        return str(self.r.choice(list(self.values)[-5:]))

    def add(self, op: str, inputs: list[str], channels: list[int], **attrs) -> None:
        outs = [f"v{len(self.values) + k}" for k in range(len(channels))]
        self.nodes.append(helper.make_node(op, inputs, outs, **attrs))
        self.values.update(zip(outs, channels))

    def step(self) -> None:
        value, kind = self.pick(), self.r.integers(6)
        channels = self.values[value]
        if kind == 0:
            made, side = int(self.r.integers(1, 9)), int(self.r.choice((1, 3)))
            w = self.r.standard_normal((made, channels, side, side)).astype(np.float32) / channels
            self.add("Conv", [value, self.weight(w)], [made], pads=[side // 2] * 4)
        elif kind == 1:
            self.add("Relu", [value], [channels])
        elif kind == 2:
            window = {"kernel_shape": [3, 3], "pads": [1] * 4}
            self.add("MaxPool", [value], [channels], **window)
        elif kind == 3 and channels > 1:
            first = int(self.r.integers(1, channels))
            sizes = self.weight(np.array([first, channels - first]))
            self.add("Split", [value, sizes], [first, channels - first], axis=1)
        else:
            operands = [value, *(self.pick() for _ in range(int(self.r.integers(1, 3))))]
            self.add("Concat", operands, [sum(self.values[p] for p in operands)], axis=1)

    def model(self, batch: int | str) -> bytes:
        for _ in range(14):
            self.step()
        read = {name for n in self.nodes for name in n.input}
        ends = [name for name in self.values if name not in read]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 6, 5, 5])
        outs = [helper.make_tensor_value_info(e, TensorProto.FLOAT, None) for e in ends]
        made = helper.make_graph(self.nodes, "drawn", [x], outs, self.weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("seed", range(4))
def test_random_networks_agree_with_onnxruntime(seed, tmp_path):
    model = Draw(seed).model("n" if seed % 2 else 2)
    path = tmp_path / "drawn.onnx"
    path.write_bytes(model)
    x = np.random.default_rng(seed).standard_normal((2, 6, 5, 5), np.float32)
    session = onnxruntime.InferenceSession(model)
    want = session.run(None, {"x": x})
    with knobs.override(cache_dir="off", opt_level=0, work_per_thread_us=0):
        got = ingot.compile(path, threads=2).run(None, {"x": x})
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
