"""Control flow, data-dependent sizes, narrow numbers and convolutions, one small model each."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as P

from tests.models.parts import Case, graph, info, model, node, rng, weight

# --- control flow -------------------------------------------------------------------------------


def if_on_flag(sign: float = 1.0) -> Case:
    """Which branch runs is computed; both capture outer values."""
    then = graph("then", [node("MatMul", "x w", "then_y")], [], [info("then_y", [3, 4])])
    other = [node("Mul", "x half", "scaled"), node("Sub", "scaled x", "else_y")]
    orelse = graph("else", other, [], [info("else_y", [3, 4])], {"half": np.float32(0.5)})
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "flag"),
        node("If", "flag", "picked", then_branch=then, else_branch=orelse),
        node("Relu", "picked", "y"),
    ]
    constants = {"zero": np.float32(0), "w": weight(1, 4, 4)}
    proto = model("if_on_flag", nodes, [info("x", [3, 4])], [info("y", [3, 4])], constants)
    x = np.abs(rng(0).standard_normal((3, 4))).astype(np.float32) * np.float32(sign)
    return proto, {"x": x}


def if_of_sizes(sign: float = 1.0) -> Case:
    """Branches whose results differ in size: one finds, the other keeps all."""
    found = graph(
        "found", [node("NonZero", "x", "places")], [], [info("places", [1, None], P.INT64)]
    )
    kept = graph(
        "kept",
        [node("Cast", "x", "whole", to=P.INT64), node("Unsqueeze", "whole first", "row")],
        [], [info("row", [1, None], P.INT64)],
    )  # fmt: skip
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "flag"),
        node("If", "flag", "picked", then_branch=found, else_branch=kept),
        node("Add", "picked one", "y"),
    ]
    integers = {"first": np.zeros(1, np.int64), "one": np.ones((), np.int64)}
    constants = {"zero": np.zeros((), np.float32), **integers}
    proto = model(
        "if_of_sizes", nodes, [info("x", [6])], [info("y", [1, None], P.INT64)], constants
    )
    return proto, {"x": np.array([0, 1, 0, 2, 0, 3], np.float32) * np.float32(sign)}


def loop_with_state(trips: int = 4) -> Case:
    """A carried state, a trip count read from data, an early stop, and a scan output."""
    body = graph(
        "body",
        [
            node("MatMul", "state w", "turned"),
            node("Tanh", "turned", "next_state"),
            node("ReduceMax", "next_state", "peak", keepdims=0),
            node("Less", "peak limit", "go_on"),
            node("Identity", "next_state", "step_out"),
        ],
        [info("i", [], P.INT64), info("go_in", [], P.BOOL), info("state", [2, 4])],
        [info("go_on", [], P.BOOL), info("next_state", [2, 4]), info("step_out", [2, 4])],
    )
    nodes = [
        node("ReduceSum", "counts", "trips", keepdims=0),
        node("Loop", "trips go x", "last steps", body=body),
    ]
    constants = {"w": weight(2, 4, 4), "limit": np.float32(5), "go": np.array(True)}
    proto = model(
        "loop_with_state",
        nodes,
        [info("x", [2, 4]), info("counts", [2], P.INT64)],
        [info("last", [2, 4]), info("steps", ["n", 2, 4])],
        constants,
    )
    x = rng(3).standard_normal((2, 4)).astype(np.float32)
    return proto, {"x": x, "counts": np.array([1, trips - 1], np.int64)}


def nonzero_gather(kept: int = 5) -> Case:
    """Rows picked by a condition on data: the size of the answer is not known before."""
    nodes = [
        node("Greater", "score zero", "keep"),
        node("NonZero", "keep", "found"),
        node("Squeeze", "found axes0", "rows"),
        node("Gather", "x rows", "picked", axis=0),
        node("MatMul", "picked w", "y"),
        node("Shape", "rows", "count"),
    ]
    constants = {"zero": np.float32(0), "axes0": np.array([0]), "w": weight(4, 3, 5)}
    inputs = [info("x", [8, 3]), info("score", [8])]
    outputs = [info("y", ["n", 5]), info("count", [1], P.INT64)]
    proto = model("nonzero_gather", nodes, inputs, outputs, constants)
    score = np.full(8, -1, np.float32)
    score[rng(5).permutation(8)[:kept]] = 1
    x = rng(6).standard_normal((8, 3)).astype(np.float32)
    return proto, {"x": x, "score": score}


# --- numbers ------------------------------------------------------------------------------------


def f16_weights() -> Case:
    """Weights stored as f16: one product after a cast to f32, one in f16 throughout."""
    nodes = [
        node("Cast", "w1", "wide", to=P.FLOAT),
        node("MatMul", "x wide", "h"),
        node("Relu", "h", "h_relu"),
        node("Cast", "h_relu", "narrow", to=P.FLOAT16),
        node("MatMul", "narrow w2", "y16"),
        node("Add", "y16 b2", "z16"),
        node("Cast", "z16", "y", to=P.FLOAT),
    ]
    constants = {
        "w1": weight(40, 16, 32).astype(np.float16),
        "w2": weight(41, 32, 8).astype(np.float16),
        "b2": weight(42, 8).astype(np.float16),
    }
    proto = model("f16_weights", nodes, [info("x", [4, 16])], [info("y", [4, 8])], constants)
    return proto, {"x": rng(43).standard_normal((4, 16)).astype(np.float32)}


def gather_rows(bad: bool = False) -> Case:
    """A table looked up by data; with `bad`, one index is out of range."""
    nodes = [node("Gather", "table rows", "y", axis=0)]
    constants = {"table": weight(45, 10, 4)}
    inputs = [info("rows", [6], P.INT64)]
    proto = model("gather_rows", nodes, inputs, [info("y", [6, 4])], constants)
    rows = np.array([0, 9, -1, -10, 4, 10 if bad else 5])
    return proto, {"rows": rows}


def int8_matmul() -> Case:
    """Int8 weights with a scale and a zero point per column, made real before the product."""
    nodes = [
        node("DequantizeLinear", "w scale zero", "real", axis=1),
        node("MatMul", "x real", "h"),
        node("Add", "h b", "y"),
    ]
    r = rng(50)
    constants = {
        "w": r.integers(-128, 128, (16, 12)).astype(np.int8),
        "scale": r.uniform(0.002, 0.02, 12).astype(np.float32),
        "zero": r.integers(-5, 6, 12).astype(np.int8),
        "b": weight(51, 12),
    }
    proto = model("int8_matmul", nodes, [info("x", ["n", 16])], [info("y", ["n", 12])], constants)
    return proto, {"x": r.standard_normal((5, 16)).astype(np.float32)}


# --- convolutions -------------------------------------------------------------------------------


def residual_cnn(batch: int = 2) -> Case:
    """Convolution, batch norm, residual sums, both poolings, a grouped convolution, Gemm."""
    nodes = [node("Conv", "x w0 c0", "t0", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])]
    constants = {"w0": weight(60, 8, 3, 3, 3) * np.float32(1.4), "c0": weight(61, 8)}
    nodes += _batch_norm("t0", "n0", 8, 62, constants)
    nodes += [
        node("Relu", "n0", "r0"),
        node("MaxPool", "r0", "p0", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", "p0 w1", "t1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        *_batch_norm("t1", "n1", 8, 63, constants),
        node("Relu", "n1", "r1"),
        node("Conv", "r1 w2", "t2", kernel_shape=[3, 3], auto_pad="SAME_UPPER", group=4),
        *_batch_norm("t2", "n2", 8, 64, constants),
        node("Add", "n2 p0", "sum"),
        node("Relu", "sum", "r2"),
        node("AveragePool", "r2", "p1", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("GlobalAveragePool", "p1", "pooled"),
        node("Flatten", "pooled", "flat"),
        node("Gemm", "flat fc c1", "logits", transB=1),
        node("Softmax", "logits", "y", axis=-1),
    ]
    constants |= {"w1": weight(65, 8, 8, 3, 3), "w2": weight(66, 8, 2, 3, 3)}
    constants |= {"fc": weight(67, 10, 8, 1)[:, :, 0], "c1": weight(68, 10)}
    outputs = [info("y", ["batch", 10]), info("logits", ["batch", 10])]
    proto = model("residual_cnn", nodes, [info("x", ["batch", 3, 18, 18])], outputs, constants)
    return proto, {"x": rng(69).standard_normal((batch, 3, 18, 18)).astype(np.float32)}


def _batch_norm(x: str, y: str, channels: int, seed: int, constants: dict) -> list:
    r = rng(seed)
    constants[f"{y}_scale"] = r.uniform(0.8, 1.2, channels).astype(np.float32)
    constants[f"{y}_bias"] = (r.standard_normal(channels) * 0.1).astype(np.float32)
    constants[f"{y}_mean"] = (r.standard_normal(channels) * 0.1).astype(np.float32)
    constants[f"{y}_var"] = r.uniform(0.5, 1.5, channels).astype(np.float32)
    names = f"{x} {y}_scale {y}_bias {y}_mean {y}_var"
    return [node("BatchNormalization", names, y, epsilon=1e-5)]
