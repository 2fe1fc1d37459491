"""Random networks with QuantizeLinear and DequantizeLinear around their operators.

A float network is grown from one map: convolutions of all kinds, residual sums, pools, concats,
activations, movement, GEMMs. ONNX Runtime runs it once for the ranges; then values, weights and
biases are quantised in the ways that quantisers have and in some that they do not: per tensor and
per channel, signed and not, with a zero point in the weights, twice in a row, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.quantised.cut import values_of
from tests.fuzz.pointwise import Rng, pick

SIZES, CHANNELS = (4, 5, 7, 8, 11), (1, 3, 4, 8, 16, 17, 20)
MOST = 9000  # elements of a value


@dataclass
class Net:
    """`maps`: names and shapes of the values, of rank 4 or 2. `weights`: a weight's name → its
    axis of output channels, if it may be quantised."""

    rng: Rng
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    biases: dict[str, tuple[str, str]] = field(default_factory=dict)  # its input and its weights
    maps: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def value(self, rank: int = 4) -> tuple[str, tuple[int, ...]]:
        """A value of this rank; later ones more often."""
        found = [m for m in self.maps if len(m[1]) == rank]
        return pick(self.rng, found[-3:] if self.rng.random() < 0.8 else found)

    def add(self, op: str, inputs: str, shape: tuple[int, ...], **attrs) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        ins = ["" if i == "_" else i for i in inputs.split()]
        self.nodes.append(helper.make_node(op, ins, [name], name, **attrs))
        if np.prod(shape) <= MOST:
            self.maps.append((name, shape))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weight(self, axis: int, fan_in: int, *shape: int) -> str:
        name = self.constant((self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))
        self.weights[name] = axis
        return name

    def bias(self, x: str, w: str, count: int) -> str:
        if self.rng.random() < 0.3:
            return ""
        name = self.constant((0.3 * self.rng.standard_normal(count)).astype(np.float32))
        self.biases[name] = (x, w)
        return name


# --- steps --------------------------------------------------------------------------------------


def convolve(n: Net) -> None:
    r, (x, (batch, channels, *space)) = n.rng, n.value()
    kind = pick(r, ("plain", "plain", "point", "depthwise", "grouped", "transposed"))
    groups = [g for g in (2, 4) if channels % g == 0]
    group = channels if kind == "depthwise" else pick(r, groups or [1]) if kind == "grouped" else 1
    out = channels if kind == "depthwise" else group * max(1, pick(r, CHANNELS) // group)
    kernel = [1, 1] if kind == "point" else [pick(r, (1, 2, 3)), pick(r, (1, 3, 3))]
    strides = [pick(r, (1, 1, 2)), pick(r, (1, 1, 2))]
    pads = [int(r.integers(0, k)) for k in (*kernel, *kernel)]
    pairs = list(zip(space, kernel, strides, pads[:2], pads[2:]))
    if kind == "transposed":
        w = n.weight(1, channels, channels, out, *kernel)
        sizes = [(d - 1) * s + k - a - b for d, k, s, a, b in pairs]
        op = "ConvTranspose"
    else:
        w = n.weight(0, channels // group * kernel[0] * kernel[1], out, channels // group, *kernel)
        sizes = [(d + a + b - k) // s + 1 for d, k, s, a, b in pairs]
        op = "Conv"
    if min(sizes) < 1:
        return
    bias = n.bias(x, w, out)
    attrs = {"strides": strides, "pads": pads, "group": group}
    y = n.add(op, f"{x} {w} {bias}", (batch, out, *sizes), **attrs)
    if r.random() < 0.6:
        activate(n, (y, (batch, out, *sizes)))


def activate(n: Net, given: tuple[str, tuple[int, ...]] | None = None) -> None:
    x, shape = given or n.value(pick(n.rng, sorted({len(s) for _, s in n.maps})))
    op = pick(n.rng, ("Relu", "Relu", "Clip", "Sigmoid", "LeakyRelu", "HardSwish", "Tanh", "silu"))
    if op == "silu":
        n.add("Mul", f"{x} {n.add('Sigmoid', x, shape)}", shape)
    elif op == "Clip":
        low, high = (n.constant(np.array(v, np.float32)) for v in (0, 1.5))
        n.add("Clip", f"{x} {low} {high}", shape)
    else:
        n.add(op, x, shape)


def combine(n: Net) -> None:
    """A sum or product of two values of one shape, or of a value and its means."""
    op, (x, shape) = pick(n.rng, ("Add", "Add", "Mul")), n.value()
    others = [name for name, s in n.maps if s == shape]
    if n.rng.random() < 0.3:
        means = n.add("GlobalAveragePool", x, (*shape[:2], 1, 1))
        n.add("Mul", f"{x} {n.add('Sigmoid', means, (*shape[:2], 1, 1))}", shape)
    else:
        n.add(op, f"{x} {pick(n.rng, others)}", shape)


def pool(n: Net) -> None:
    x, (batch, channels, *space) = n.value()
    kernel = [min(d, pick(n.rng, (2, 3))) for d in space]
    strides = [pick(n.rng, (1, 2)), pick(n.rng, (1, 2))]
    sizes = [(d - k) // s + 1 for d, k, s in zip(space, kernel, strides)]
    attrs = {"kernel_shape": kernel, "strides": strides}
    n.add(pick(n.rng, ("MaxPool", "AveragePool")), x, (batch, channels, *sizes), **attrs)


def join(n: Net) -> None:
    x, (batch, channels, *space) = n.value()
    others = [(m, s) for m, s in n.maps if len(s) == 4 and s[2:] == tuple(space) and s[0] == batch]
    chosen = [pick(n.rng, others) for _ in range(pick(n.rng, (1, 2)))]
    total = channels + sum(s[1] for _, s in chosen)
    n.add("Concat", " ".join([x, *(m for m, _ in chosen)]), (batch, total, *space), axis=1)


def move(n: Net) -> None:
    x, shape = n.value()
    batch, channels, height, width = shape
    match pick(n.rng, ("turn", "slice", "pad", "resize", "shuffle")):
        case "turn":
            n.add("Transpose", x, (batch, channels, width, height), perm=[0, 1, 3, 2])
        case "slice" if height > 2:
            starts, ends, axes = (n.constant(np.array([v])) for v in (1, height, 2))
            n.add("Slice", f"{x} {starts} {ends} {axes}", (batch, channels, height - 1, width))
        case "pad":
            pads = n.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2]))
            n.add("Pad", f"{x} {pads}", (batch, channels, height + 1, width + 2))
        case "resize":
            scales = n.constant(np.array([1, 1, 2, 2], np.float32))
            attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            n.add("Resize", f"{x} _ {scales}", (batch, channels, 2 * height, 2 * width), **attrs)
        case "shuffle" if channels % 2 == 0:
            parts = n.constant(np.array([batch, 2, channels // 2, height, width]))
            y = n.add("Reshape", f"{x} {parts}", (MOST + 1,))
            y = n.add("Transpose", y, (MOST + 1,), perm=[0, 2, 1, 3, 4])
            n.add("Reshape", f"{y} {n.constant(np.array(shape))}", shape)


def multiply(n: Net) -> None:
    """x · xᵀ of each channel, and its softmax."""
    x, (batch, channels, height, width) = n.value()
    y = n.add("Transpose", x, (batch, channels, width, height), perm=[0, 1, 3, 2])
    shape = (batch, channels, height, height)
    n.add("Softmax", n.add("MatMul", f"{x} {y}", shape), shape, axis=-1)


def flatten(n: Net) -> None:
    """A GEMM over all of a map, or over its means."""
    x, (batch, channels, *space) = n.value()
    if n.rng.random() < 0.6:
        x, space = n.add("GlobalAveragePool", x, (batch, channels, 1, 1)), [1, 1]
    count = channels * space[0] * space[1]
    linear(n, n.add("Flatten", x, (batch, count)), (batch, count))


def linear(n: Net, x: str, shape: tuple[int, ...]) -> None:
    batch, count = shape
    out, turned = pick(n.rng, (3, 10, 16, 33)), int(n.rng.random() < 0.5)
    if n.rng.random() < 0.5:
        w = n.weight(1 - turned, count, *((out, count) if turned else (count, out)))
        n.add("Gemm", f"{x} {w} {n.bias(x, w, out)}", (batch, out), transB=turned)
    else:
        n.add("MatMul", f"{x} {n.weight(1, count, count, out)}", (batch, out))


def more_linear(n: Net) -> None:
    if any(len(shape) == 2 for _, shape in n.maps):
        linear(n, *n.value(2))


STEPS: list[Callable[[Net], None]] = [
    convolve, convolve, convolve, convolve, activate, combine, combine, pool, join, move, multiply,
    flatten, more_linear,
]  # fmt: skip


def network(rng: Rng) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A quantised network and its input."""
    n = Net(rng)
    shape = (pick(rng, (1, 1, 2)), pick(rng, CHANNELS), pick(rng, SIZES), pick(rng, SIZES))
    n.maps.append(("x", shape))
    for _ in range(int(rng.integers(3, 9))):
        pick(rng, STEPS)(n)
    if not n.nodes:
        convolve(n)
    feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
    return Quantiser(n, feeds).model(), feeds


# --- quantisation -------------------------------------------------------------------------------


class Quantiser:
    def __init__(self, net: Net, feeds: dict[str, np.ndarray]):
        self.net, self.rng, self.feeds = net, net.rng, feeds
        self.nodes: list[onnx.NodeProto] = []
        self.constants = dict(net.constants)
        self.scales: dict[str, np.ndarray] = {}  # of values and weights
        self.kind = pick(self.rng, (np.uint8, np.uint8, np.int8))

    def model(self) -> onnx.ModelProto:
        net, names = self.net, {"x": self.quantised("x", self.feeds["x"])}
        plain = self.proto(net.nodes, [net.nodes[-1].output[0]])
        outputs = [node.output[0] for node in net.nodes]
        values = values_of(plain, outputs, self.feeds)
        for node in net.nodes:
            inputs = [self.operand(name, names) for name in node.input]
            made = onnx.NodeProto()
            made.CopyFrom(node)
            del made.input[:]
            made.input.extend(inputs)
            self.nodes.append(made)
            name = node.output[0]
            skips = self.rng.random() < 0.12 or np.ptp(values[name]) == 0
            names[name] = name if skips else self.quantised(name, values[name])
        read = {name for node in self.nodes for name in node.input}
        last = [n for n in names.values() if n not in read and n != names["x"]]
        return self.proto(self.nodes, last)

    def operand(self, name: str, names: dict[str, str]) -> str:
        if name in self.net.weights:
            return self.weight(name, self.net.weights[name])
        if name in self.net.biases:
            return self.bias(name)
        return names.get(name, name)

    def quantised(self, name: str, array: np.ndarray) -> str:
        """The name of the value after a pair, or two, of quantisation and its inverse."""
        kind = self.kind if self.rng.random() < 0.85 else pick(self.rng, (np.uint8, np.int8))
        low, high = min(float(array.min()), 0), max(float(array.max()), 0)
        if self.rng.random() < 0.3:  # symmetric
            high = max(high, -low)
            low = -high
        scale = np.array((high - low) * self.rng.uniform(0.8, 1.1) / 255 or 1, np.float32)
        limits = np.iinfo(kind)
        zero = np.array(np.clip(np.rint(limits.min - low / scale), limits.min, limits.max), kind)
        self.scales[name] = scale
        y = self.pair(name, scale, zero)
        if self.rng.random() < 0.06:
            y = self.pair(y, scale * pick(self.rng, (1, 1.31)), zero)
        return y

    def pair(self, name: str, scale: np.ndarray, zero: np.ndarray) -> str:
        s, z = self.constant(np.asarray(scale, np.float32)), self.constant(zero)
        q, d = f"{name}_q", f"{name}_d"
        self.nodes.append(helper.make_node("QuantizeLinear", [name, s, z], [q], q))
        self.nodes.append(helper.make_node("DequantizeLinear", [q, s, z], [d], d))
        return d

    def weight(self, name: str, axis: int) -> str:
        if self.rng.random() < 0.05 or name in self.scales:
            return name
        array = self.constants[name]
        per_channel = self.rng.random() < 0.6
        others = tuple(i for i in range(array.ndim) if i != axis) if per_channel else None
        largest = np.maximum(np.abs(array).max(others), 1e-3)
        scale = (largest / 127).astype(np.float32)
        kind = np.int8 if self.rng.random() < 0.8 else np.uint8
        zero = np.zeros(scale.shape, kind)
        if kind is np.uint8:
            zero += pick(self.rng, (128, 128, 117))
        elif self.rng.random() < 0.1:
            zero += 3
        wide = np.expand_dims(scale, others) if per_channel else scale
        offset = np.expand_dims(zero, others) if per_channel else zero
        limits = np.iinfo(kind)
        whole = np.clip(np.rint(array / wide) + offset, limits.min, limits.max).astype(kind)
        self.scales[name] = scale
        return self.dequantised(name, whole, scale, zero, axis)

    def bias(self, name: str) -> str:
        """In 32 bits, by the product of the scales where there are both; or in f32."""
        x, w = (self.scales.get(n) for n in self.net.biases[name])
        if x is None or w is None or self.rng.random() < 0.25:
            return name
        scale = np.asarray(x * w, np.float32)
        if self.rng.random() < 0.1:
            scale = scale * np.float32(1.7)
        whole = np.rint(self.constants[name] / scale).astype(np.int32)
        return self.dequantised(name, whole, scale, np.zeros(scale.shape, np.int32), 0)

    def dequantised(
        self, name: str, whole: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int
    ) -> str:
        inputs = [self.constant(a) for a in (whole, np.asarray(scale, np.float32), zero)]
        made = f"{name}_d"
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [made], made, axis=axis))
        return made

    def constant(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def proto(self, nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.feeds["x"].shape)
        used = {name for node in nodes for name in node.input}
        tensors = [numpy_helper.from_array(a, n) for n, a in self.constants.items() if n in used]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(nodes, "quantised", [x], results, tensors)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)
