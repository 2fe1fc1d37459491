"""The nine light models of the `onnx` package, their weights refilled.

Every weight of these files is one repeated number, so their outputs are constant. Here each weight
is a seeded random initializer, scaled by its fan-in, and the logits before a final Softmax are an
output too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.zoo.common import Entry, Feeds, Sizes, rng

NAMES = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def entries() -> list[Entry]:
    return [
        Entry(
            f"light_{name}", partial(_write, name), partial(_feeds, name), source="onnx, refilled"
        )
        for name in NAMES
    ]


def refilled(name: str) -> onnx.ModelProto:
    """One light model with random weights."""
    proto = _load(name)
    refill(proto.graph, rng(len(name)))
    expose_logits(proto.graph)
    return proto


def image_of(proto: onnx.ModelProto) -> tuple[str, list[int]]:
    """The one input that is not a weight, and its shape."""
    weights = {t.name for t in proto.graph.initializer}
    shapes = {n.input[0] for n in proto.graph.node if n.op_type == "ConstantOfShape"}
    given = [v for v in proto.graph.input if v.name not in weights | shapes]
    (image,) = given
    return image.name, [d.dim_value for d in image.type.tensor_type.shape.dim]


def _load(name: str) -> onnx.ModelProto:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    return onnx.load(folder / f"light_{name}.onnx")


def _write(name: str, path: Path) -> None:
    onnx.save(refilled(name), path)


def _feeds(name: str, sizes: Sizes) -> Feeds:
    image, shape = image_of(_load(name))
    return {image: rng(7).standard_normal(shape).astype(np.float32)}


# --- weights ------------------------------------------------------------------------------------


def refill(graph: onnx.GraphProto, r: np.random.Generator) -> None:
    """Every weight, a ConstantOfShape node or a constant initializer, becomes random numbers."""
    roles = _roles(graph)
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    makers = {n.output[0]: n for n in graph.node if n.op_type == "ConstantOfShape"}
    shapes = {name: tuple(tensors[n.input[0]]) for name, n in makers.items()}
    shapes |= {name: tensors[name].shape for name in roles if name in tensors}
    kept = {n: a for n, a in tensors.items() if n not in roles and not n.endswith("__SHAPE")}
    fresh = {name: _numbers(roles.get(name, "bias"), s, r) for name, s in shapes.items()}
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (kept | fresh).items())
    inputs = [v for v in graph.input if not v.name.endswith("__SHAPE")]
    del graph.input[:]
    graph.input.extend(inputs)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """Weight → its role in the node that reads it."""
    added = {name for n in graph.node if n.op_type in ("Sum", "Add") for name in n.input}
    roles: dict[str, str] = {}
    for n in graph.node:
        if n.op_type in ("Conv", "Gemm"):
            roles[n.input[1]] = "weight"
            roles |= dict.fromkeys(n.input[2:3], "bias")
        elif n.op_type == "BatchNormalization":
            # damp the branches of residual sums: else activations grow with every layer
            scale = "damped" if n.output[0] in added else "scale"
            roles |= dict(zip(n.input[1:5], (scale, "bias", "bias", "variance")))
    return roles


def _numbers(role: str, shape: tuple[int, ...], r: np.random.Generator) -> np.ndarray:
    match role:
        case "weight":
            fan_in = int(np.prod(shape[1:]))
            values = r.standard_normal(shape) * np.sqrt(2 / fan_in)
        case "scale":
            values = r.uniform(0.9, 1.1, shape)
        case "damped":
            values = r.uniform(0.2, 0.3, shape)
        case "variance":
            values = r.uniform(0.8, 1.2, shape)
        case _:
            values = r.standard_normal(shape) * 0.1
    return values.astype(np.float32)


def expose_logits(graph: onnx.GraphProto) -> None:
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output.append(helper.make_empty_tensor_value_info(last.input[0]))
