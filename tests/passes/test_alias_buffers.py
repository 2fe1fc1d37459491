"""alias_buffers: offsets of the views, fallbacks to a copy, what lower makes, and equal outputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph, replace
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from ingot.graph.verify import verify
from ingot.lower.lower import lower
from ingot.passes.alias_buffers import alias_buffers
from ingot.passes.fuse import fuse
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support import options
from tests.graph.graphs import graph
from tests.refusal import refused


def launches(text: str, state: tuple = (), is_on: bool = True) -> list[str]:
    """Every launch of a graph: kernel(buffers; sizes)."""
    g = graph(text)
    fused = fuse(ir.replace(g, state=state))
    program = lower(aliased(fused) if is_on else fused, ConstantStore())
    found = [s for s in walk(program.body) if isinstance(s, ir.Launch)]
    return [f"{s.kernel}({' '.join(s.args)};{' '.join(map(str, s.sizes))})" for s in found]


def aliased(fused: Graph) -> Graph:
    """The graph with views: valid, not changed by a second run, and with the same outputs."""
    made = alias_buffers(fused)
    verify(made)
    assert alias_buffers(made) == made
    if not fused.symbols:
        rng, store = np.random.default_rng(1), ConstantStore()
        arrays = [rng.normal(size=v.tensor.static_shape).astype(np.float32) for v in fused.inputs]
        for a, b in zip(interpret(fused, store, arrays), interpret(made, store, arrays)):
            np.testing.assert_array_equal(a, b)
    return made


def views(text: str) -> list[str]:
    """The lines of the views in the text of a graph."""
    lines = show(aliased(fuse(graph(text)))).splitlines()
    return [line.strip() for line in lines if line.strip().startswith("view")]


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
    assert launches(TWO, is_on=False) == ["softmax(x a;)", "softmax.1(y b;)", "concat(a b c;)"]


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


PAD = """
graph g(%x: f32[2, 3, 4]) {
  %a: f32[2, 3, 4] = softmax(%x) {axis=2}
  %y: f32[2, 6, 5] = pad(%a) {after=[0, 1, 0], before=[0, 2, 1], mode="constant"}
  return %y
}
"""


def test_a_pad_is_concats_of_zeros():
    assert views(PAD) == [
        "view %a = %y[0, 2, 1]",
        "view %y_border = %y[0, 0, 0]",
        "view %y_border.1 = %y[0, 5, 0]",
        "view %y_border.2 = %y[0, 2, 0]",
        "view %y_inner = %y[0, 2, 0]",
    ]
    assert [n.op for n in aliased(fuse(graph(PAD))).nodes] == ["fused"] * 4 + ["concat"] * 2
    assert [name.split("(")[0] for name in launches(PAD)] == [
        "softmax", "pad_border", "pad_border.1", "pad_border.2",
    ]  # fmt: skip
    assert [n.split("(")[0] for n in launches(PAD, is_on=False)] == ["softmax", "pad"]


@pytest.mark.parametrize(
    ("before", "after", "shape"),
    [([0, 0, 0], [0, 1, 0], [2, 4, 4]), ([0, 0, 0], [0, 0, 0], [2, 3, 4]),
     ([1, 0, 2], [1, 0, 3], [4, 3, 9])],
)  # fmt: skip
def test_other_pads(before: list[int], after: list[int], shape: list[int]):
    text = PAD.replace("[0, 2, 1]", str(before)).replace("[0, 1, 0]", str(after))
    assert f"view %a = %y{before}" in views(text.replace("[2, 6, 5]", str(shape)))


def test_views_are_in_physical_axes():
    last = "{layout=[[0, 0], [2, 0], [1, 0]]}"
    text = TWO.replace("[40, ", "[7, 40, ").replace("axis=1", "axis=2")
    for name in "abc":
        text = text.replace(f"  %{name}: f32[7, 40, ", f"  %{name}: f32@[7, 40, ")
    for size in (5, 3, 8):
        text = text.replace(f"f32@[7, 40, {size}]", f"f32[7, 40, {size}]{last}")
    text = text.replace("return %c", "%d: f32[7, 40, 8] = softmax(%c) {axis=2}\n  return %d")
    assert views(text) == ["view %a = %c[0, 0, 0]", "view %b = %c[0, 5, 0]"]


def test_sub_graphs_have_views_of_their_own():
    inner = TWO.replace("graph g(", "then_branch=graph t(").replace(
        "f32[40, 3]) {", "f32[40, 3]) {"
    )
    text = f"""
graph g(%f: bool[], %x: f32[40, 5], %y: f32[40, 3]) {{
  %z: f32[40, 8] = if(%f, %x, %y) {{else_branch=graph e(%x: f32[40, 5], %y: f32[40, 3]) {{
    %c: f32[40, 8] = concat(%x, %y) {{axis=1}}
    return %c
  }}, {inner.strip()}}}
  return %z
}}"""
    made = alias_buffers(fuse(graph(text)))
    verify(made)
    (node,) = made.nodes
    assert len(node.attr("then_branch").views) == 2 and not node.attr("else_branch").views


# --- the verifier -------------------------------------------------------------------------------


def kernel(name: str, type: str, source: str) -> str:
    return f"""  %{name}: {type} = fused(%{source}) {{anchor=none, body=graph exp(%x0: {type}) {{
    %exp: {type} = exp(%x0)
    return %exp
  }}, family="elementwise"}}
"""


VIEWED = f"""graph g(%x: f32[4, 5], %y: f32[4, 3]) {{
{kernel("a", "f32[4, 5]", "x")}{kernel("b", "f32[4, 3]", "y")}\
  %c: f32[4, 8] = concat(%a, %b) {{axis=1}}
  %s: f32[4, 3] = slice(%c) {{sizes=[4, 3], starts=[0, 5], steps=[1, 1]}}
{kernel("z", "f32[4, 3]", "s")}\
  view %a = %c[0, 0]
  view %b = %c[0, 5]
  view %s = %c[0, 5]
  return %z
}}
"""


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("view %b = %c[0, 5]", "view %b = %c[0, 6]", ["'b'", "'c'"]),
        ("view %b = %c[0, 5]", "view %b = %c[5]", ["'b'"]),
        ("view %b = %c[0, 5]", "view %b = %c[0, 4]", ["'a'", "'b'"]),
        ("view %b = %c[0, 5]", "view %b = %d[0, 5]", ["'b'", "'d'"]),
        ("view %b = %c[0, 5]", "view %b = %s[0, 0]", ["'b'", "'s'"]),
        ("view %s = %c[0, 5]", "view %s = %c[0, 4]", ["'s'"]),
        ("view %s = %c[0, 5]", "view %s = %c[0, 5]\n  view %z = %c[0, 5]", ["'z'"]),
        ("view %s = %c[0, 5]", "view %s = %c[0, 5]\n  view %x = %c[0, 0]", ["'x'"]),
        ("return %z", "return %z, %b", ["'b'"]),
        ("slice(%c) {sizes=[4, 3], starts=[0, 5], steps=[1, 1]}", "relu(%b)", ["'s'"]),
    ],
)
def test_wrong_views_are_refused(old: str, new: str, facts: list[str]):
    verify(parse(VIEWED))
    assert old in VIEWED
    with refused("bad-graph", *facts, where="view"):
        verify(parse(VIEWED.replace(old, new, 1)))


def test_a_concat_that_is_not_in_place_is_a_kernel():
    g = parse(VIEWED.replace("  view %b = %c[0, 5]\n", "").replace("  view %s = %c[0, 5]\n", ""))
    g = replace(g, views=())
    found = [s for s in walk(lower(g, ConstantStore()).body) if isinstance(s, ir.Launch)]
    assert [s.kernel for s in found] == ["exp", "exp.1", "concat", "slice", "exp.1"]


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
    with options.override(cache_dir="off", opt_level=0, work_per_thread_us=0):
        got = ingot.compile(path, threads=2).run(None, {"x": x})
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
