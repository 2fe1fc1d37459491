"""Sequence models: LSTM with lengths, dynamic dimensions, a KV cache, a transformer block."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as P

from tests.models.parts import Case, Feeds, info, model, node, rng, weight

# --- sequences ----------------------------------------------------------------------------------


def lstm_lengths(direction: str = "forward", length: int = 6) -> Case:
    """An LSTM over sequences of different lengths, with bias, peepholes and first states."""
    count, hidden, features, batch = (2 if direction == "bidirectional" else 1), 5, 3, 4
    nodes = [
        node("LSTM", "x w r b lens h0 c0 p", "y y_h y_c", hidden_size=hidden, direction=direction)
    ]
    constants = {
        "w": weight(10, count, 4 * hidden, features),
        "r": weight(11, count, 4 * hidden, hidden),
        "b": weight(12, count, 8 * hidden),
        "p": weight(13, count, 3 * hidden),
    }
    state = [count, batch, hidden]
    inputs = [info("x", [length, batch, features]), info("lens", [batch], P.INT32)]
    inputs += [info("h0", state), info("c0", state)]
    outputs = [info("y", [length, count, batch, hidden]), info("y_h", state), info("y_c", state)]
    proto = model(f"lstm_{direction}", nodes, inputs, outputs, constants)
    r = rng(14)
    feeds: Feeds = {
        "x": r.standard_normal((length, batch, features)).astype(np.float32),
        "lens": np.array([length, 1, length - 2, 3], np.int32),
        "h0": r.standard_normal(state).astype(np.float32),
        "c0": r.standard_normal(state).astype(np.float32),
    }
    return proto, feeds


def dynamic_sequence(batch: int = 2, length: int = 5) -> Case:
    """Dynamic batch and length; shapes by Shape, Gather and Concat; positions by Range."""
    nodes = [
        node("Gather", "table ids", "embedded", axis=0),  # [b, t, 8]
        node("Shape", "ids", "shape"),
        node("Gather", "shape i0", "b", axis=0),
        node("Gather", "shape i1", "t", axis=0),
        node("Range", "i0 t i1", "positions"),
        node("Gather", "places positions", "placed", axis=0),  # [t, 8]
        node("Add", "embedded placed", "x"),
        node("Unsqueeze", "b axes0", "b1"),
        node("Unsqueeze", "t axes0", "t1"),
        node("Mul", "b1 t1", "bt"),
        node("Concat", "bt eight", "flat_shape", axis=0),
        node("Reshape", "x flat_shape", "flat"),  # [b·t, 8]
        node("Gemm", "flat w1 b1_", "h1"),
        node("Relu", "h1", "h2"),
        node("Concat", "b1 t1 heads minus", "split_shape", axis=0),
        node("Reshape", "h2 split_shape", "split"),  # [b, t, 2, 6]
        node("Transpose", "split", "turned", perm=[0, 2, 1, 3]),
        node("ReduceMean", "turned", "pooled", axes=[2], keepdims=0),  # [b, 2, 6]
        node("Concat", "b1 minus", "out_shape", axis=0),
        node("Reshape", "pooled out_shape", "y"),
    ]
    constants = {
        "table": weight(20, 50, 8), "places": weight(21, 64, 8), "w1": weight(22, 8, 12),
        "b1_": weight(23, 12), "i0": np.array(0), "i1": np.array(1), "axes0": np.array([0]),
        "eight": np.array([8]), "heads": np.array([2]), "minus": np.array([-1]),
    }  # fmt: skip
    inputs = [info("ids", ["batch", "length"], P.INT64)]
    proto = model("dynamic_sequence", nodes, inputs, [info("y", ["batch", 12])], constants)
    return proto, {"ids": rng(24).integers(0, 50, (batch, length))}


def kv_cache(pos: int = 3, write: str = "scatter") -> Case:
    """One step of attention: new keys and values go into a cache of fixed size at `pos`; places
    beyond it are masked. `write` is "scatter" (ScatterND) or "mask" (Where on position == pos)."""
    heads, slots, width = 2, 8, 4
    where = [node("LessOrEqual", "slots pos", "seen"), node("Equal", "slots pos", "here")]
    for part in ("k", "v"):
        if write == "scatter":
            where += [
                node("Transpose", f"past_{part}", f"{part}_slots", perm=[2, 0, 1, 3]),
                node("Transpose", f"new_{part}", f"{part}_row", perm=[2, 0, 1, 3]),
                node("Reshape", "pos at_shape", f"{part}_at"),
                node("ScatterND", f"{part}_slots {part}_at {part}_row", f"{part}_full"),
                node("Transpose", f"{part}_full", f"present_{part}", perm=[1, 2, 0, 3]),
            ]
        else:
            where += [
                node("Unsqueeze", "here column", f"{part}_here"),
                node("Where", f"{part}_here new_{part} past_{part}", f"present_{part}"),
            ]
    nodes = [
        *where,
        node("Transpose", "present_k", "k_t", perm=[0, 1, 3, 2]),
        node("MatMul", "q k_t", "scores"),
        node("Mul", "scores scale", "scaled"),
        node("Where", "seen scaled minus_inf", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights present_v", "y"),
    ]
    constants = {
        "slots": np.arange(slots), "at_shape": np.array([1, 1]), "column": np.array([1]),
        "scale": np.float32(0.5), "minus_inf": np.float32(-np.inf),
    }  # fmt: skip
    one, cache = [1, heads, 1, width], [1, heads, slots, width]
    inputs = [info("q", one), info("new_k", one), info("new_v", one), info("pos", [], P.INT64)]
    inputs += [info("past_k", cache), info("past_v", cache)]
    outputs = [info("y", one), info("present_k", cache), info("present_v", cache)]
    r = rng(30)
    feeds: Feeds = {n: r.standard_normal(one).astype(np.float32) for n in ("q", "new_k", "new_v")}
    feeds |= {n: r.standard_normal(cache).astype(np.float32) for n in ("past_k", "past_v")}
    feeds["pos"] = np.array(pos)
    return model(f"kv_cache_{write}", nodes, inputs, outputs, constants), feeds


def transformer_block(batch: int = 2, length: int = 6, fully_masked: bool = True) -> Case:
    """Attention with a padding mask (a whole sequence of it masked: its rows are NaN, as the
    standard says), residual sums, layer norms and a gelu written with Erf."""
    heads, width, hidden = 2, 8, 16
    nodes = [
        node("LayerNormalization", "x ln1_s ln1_b", "n1", axis=-1, epsilon=1e-5),
        *[step for part in "qkv" for step in _head_split(part)],
        node("Transpose", "k_heads", "k_t", perm=[0, 1, 3, 2]),
        node("MatMul", "q_heads k_t", "scores"),
        node("Div", "scores root", "scaled"),
        node("Unsqueeze", "mask one_two", "mask4"),  # [b, 1, 1, t]
        node("Where", "mask4 scaled minus_inf", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights v_heads", "mixed"),
        node("Transpose", "mixed", "mixed_t", perm=[0, 2, 1, 3]),
        node("Reshape", "mixed_t merge", "merged"),
        node("MatMul", "merged w_o", "attended"),
        node("Add", "x attended", "x1"),
        node("LayerNormalization", "x1 ln2_s ln2_b", "n2", axis=-1, epsilon=1e-5),
        node("MatMul", "n2 w_up", "up"),
        *_gelu("up", "active"),
        node("MatMul", "active w_down", "down"),
        node("Add", "x1 down", "y"),
    ]
    constants = {f"w_{p}": weight(70 + i, width, width) for i, p in enumerate("qkvo")}
    constants |= {"w_up": weight(75, width, hidden), "w_down": weight(76, hidden, width)}
    for i, name in enumerate(("ln1", "ln2")):
        constants[f"{name}_s"] = rng(77 + i).uniform(0.8, 1.2, width).astype(np.float32)
        constants[f"{name}_b"] = weight(79 + i, width)
    constants |= {
        "split": np.array([0, 0, heads, width // heads]), "merge": np.array([0, 0, width]),
        "one_two": np.array([1, 2]), "root": np.float32(np.sqrt(width // heads)),
        "minus_inf": np.float32(-np.inf), "sqrt2": np.float32(np.sqrt(2)),
        "one": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip
    inputs = [info("x", ["batch", "length", width]), info("mask", ["batch", "length"], P.BOOL)]
    outputs = [info("y", ["batch", "length", width])]
    proto = model("transformer_block", nodes, inputs, outputs, constants)
    mask = rng(81).random((batch, length)) < 0.7
    mask[:, 0] = True
    if fully_masked:
        mask[-1] = False
    x = rng(82).standard_normal((batch, length, width)).astype(np.float32)
    return proto, {"x": x, "mask": mask}


def _head_split(part: str) -> list:
    return [
        node("MatMul", f"n1 w_{part}", f"{part}_flat"),
        node("Reshape", f"{part}_flat split", f"{part}_split"),
        node("Transpose", f"{part}_split", f"{part}_heads", perm=[0, 2, 1, 3]),
    ]


def _gelu(x: str, y: str) -> list:
    return [
        node("Div", f"{x} sqrt2", f"{y}_d"),
        node("Erf", f"{y}_d", f"{y}_e"),
        node("Add", f"{y}_e one", f"{y}_a"),
        node("Mul", f"{x} {y}_a", f"{y}_m"),
        node("Mul", f"{y}_m half", y),
    ]
