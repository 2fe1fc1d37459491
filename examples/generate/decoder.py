"""A small GPT-like decoder as an ONNX model, with seeded weights and a KV cache.

    tokens[batch, seq], past_key_0[batch, heads, past, width], …  →  logits, present_key_0, …

As transformers exports one: present = concat(past, the keys of the new tokens) in every layer.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 2, 4, 16, 96, 512
HIDDEN = HEADS * WIDTH
STATE = {
    f"past_{kind}_{layer}": f"present_{kind}_{layer}"
    for layer in range(LAYERS)
    for kind in ("key", "value")
}


class _Builder:
    """The nodes and constants of the model, in order."""

    def __init__(self, seed: int = 0):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def add(self, op: str, *inputs: str, out: str = "", outs: int = 1, **attrs: object) -> str:
        base = out or f"{op}_{len(self.nodes)}"
        names = [base] if outs == 1 else [f"{base}_{i}" for i in range(outs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=base, **attrs))
        return names[0] if outs == 1 else base

    def constant(self, value: object, name: str = "") -> str:
        name = name or f"c_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def table(self, rows: int) -> str:
        return self.constant(self.rng.standard_normal((rows, HIDDEN)).astype(np.float32))

    def norm(self, x: str) -> str:
        scale, shift = (np.full(HIDDEN, v, np.float32) for v in (1, 0))
        return self.add("LayerNormalization", x, self.constant(scale), self.constant(shift))

    def size(self, x: str, axis: int) -> str:
        return self.add("Gather", self.add("Shape", x), self.constant(np.int64(axis)))


def _attention(b: _Builder, x: str, allowed: str, layer: int) -> str:
    qkv = b.add("MatMul", b.norm(x), b.weight(HIDDEN, 3 * HIDDEN))
    parts = b.add("Split", qkv, axis=-1, num_outputs=3, outs=3)
    heads = b.constant(np.array([0, 0, HEADS, WIDTH]))
    q, k, v = (
        b.add("Transpose", b.add("Reshape", f"{parts}_{i}", heads), perm=[0, 2, 1, 3])
        for i in range(3)
    )
    k = b.add("Concat", f"past_key_{layer}", k, axis=2, out=f"present_key_{layer}")
    v = b.add("Concat", f"past_value_{layer}", v, axis=2, out=f"present_value_{layer}")
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = b.add("Mul", scores, b.constant(np.float32(WIDTH**-0.5)))
    masked = b.add("Where", allowed, scaled, b.constant(np.float32(-1e9)))
    mixed = b.add("MatMul", b.add("Softmax", masked, axis=-1), v)
    merged = b.add("Transpose", mixed, perm=[0, 2, 1, 3])
    merged = b.add("Reshape", merged, b.constant(np.array([0, 0, HIDDEN])))
    return b.add("Add", x, b.add("MatMul", merged, b.weight(HIDDEN, HIDDEN)))


def _mlp(b: _Builder, x: str) -> str:
    inner = b.add("Relu", b.add("MatMul", b.norm(x), b.weight(HIDDEN, 4 * HIDDEN)))
    return b.add("Add", x, b.add("MatMul", inner, b.weight(4 * HIDDEN, HIDDEN)))


def decoder() -> onnx.ModelProto:
    b = _Builder()
    past, new = b.size("past_key_0", 2), b.size("tokens", 1)
    end, zero, one = b.add("Add", past, new), b.constant(np.int64(0)), b.constant(np.int64(1))
    rows, columns = b.add("Range", past, end, one), b.add("Range", zero, end, one)
    below = b.add("Unsqueeze", rows, b.constant(np.array([1])))
    allowed = b.add("LessOrEqual", columns, below)  # a token sees itself and those before it
    x = b.add("Gather", b.table(VOCABULARY), "tokens")
    x = b.add("Add", x, b.add("Gather", b.table(POSITIONS), rows))
    for layer in range(LAYERS):
        x = _mlp(b, _attention(b, x, allowed, layer))
    b.add("MatMul", b.norm(x), b.weight(HIDDEN, VOCABULARY), out="logits")
    cache = ["batch", HEADS, "past", WIDTH]
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", "seq"])]
    inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, cache) for n in STATE]
    outputs = ["logits", *STATE.values()]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(b.nodes, "decoder", inputs, infos, b.constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)
