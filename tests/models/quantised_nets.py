"""Small float networks, to be quantised by ONNX Runtime's tools. Sizes do not divide vectors.

`NETS`: name → maker of (model, feeds of a seed). `quantised` runs quantize_static on one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from benchmarks.quantised.static import quantise
from tests.models.parts import Feeds, info, model, node, weight

CALIBRATION = 4
Nodes = list[onnx.NodeProto]


class Net:
    """Nodes and weights of a network under construction; a layer returns its output's name."""

    def __init__(self, *shape: int):
        self.shape, self.nodes, self.weights = shape, Nodes(), dict[str, np.ndarray]()

    def add(self, op: str, inputs: str, **attrs: object) -> str:
        made = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(node(op, inputs, made, **attrs))
        return made

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def conv(self, x: str, into: int, out: int, size: int = 3, group: int = 1, **attrs) -> str:
        w = self.constant(weight(len(self.weights), out, into // group, size, size) * 1.4)
        b = self.constant(weight(50 + len(self.weights), out, 1)[:, 0] * 0.3)
        pads = attrs.pop("pads", [size // 2] * 4)
        return self.add("Conv", f"{x} {w} {b}", group=group, pads=pads, **attrs)

    def linear(self, x: str, into: int, out: int) -> str:
        product = self.add("MatMul", f"{x} {self.constant(weight(len(self.weights), into, out))}")
        bias = self.constant(weight(70 + len(self.weights), out, 1)[:, 0] * 0.3)
        return self.add("Add", f"{product} {bias}")

    def silu(self, x: str) -> str:
        return self.add("Mul", f"{x} {self.add('Sigmoid', x)}")

    def classify(self, x: str, channels: int) -> str:
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        w = self.constant(weight(9, channels, 10).T.copy())
        b = self.constant(weight(8, 10, 1)[:, 0])
        return self.add("Gemm", f"{flat} {w} {b}", transB=1)

    def case(self, name: str, *outputs: str) -> tuple[onnx.ModelProto, Callable[[int], Feeds]]:
        def feeds(seed: int) -> Feeds:
            r = np.random.default_rng(seed)
            return {"x": r.standard_normal(self.shape).astype(np.float32)}

        results = [onnx.ValueInfoProto(name=each) for each in outputs]
        inferred = onnx.shape_inference.infer_shapes(
            model(name, self.nodes, [info("x", self.shape)], results, self.weights)
        )
        return inferred, feeds


def convs():
    net = Net(1, 3, 29, 27)
    x = net.add("Relu", net.conv("x", 3, 20, strides=[2, 2]))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    x = net.add("Relu", net.conv(x, 20, 36, 1))
    x = net.conv(x, 36, 17, dilations=[2, 2], pads=[1, 0, 2, 2])
    x = net.add("AveragePool", x, kernel_shape=[3, 3], strides=[2, 1])  # no mean is a tie
    return net.case("convs", net.classify(x, 17), x)


def residual():
    net = Net(2, 16, 14, 11)
    x = "x"
    for width, stride in ((16, 1), (24, 2)):
        y = net.add("Relu", net.conv(x, 16, width, strides=[stride, stride]))
        y = net.conv(y, width, width)
        x = x if stride == 1 else net.conv(x, 16, width, 1, strides=[stride, stride])
        x = net.add("Relu", net.add("Add", f"{y} {x}"))
    return net.case("residual", net.classify(x, 24))


def depthwise():
    net = Net(1, 8, 15, 15)
    low, high = (net.constant(np.array(v, np.float32)) for v in (0, 6))
    x = "x"
    for stride, out in ((1, 8), (2, 12)):
        y = net.add("Clip", f"{net.conv(x, 8, 40, 1)} {low} {high}")
        y = net.conv(y, 40, 40, 3, group=40, strides=[stride, stride])
        y = net.conv(net.add("Clip", f"{y} {low} {high}"), 40, out, 1)
        x = net.add("Add", f"{x} {y}") if stride == 1 else y
    return net.case("depthwise", net.classify(x, 12))


def squeezed():
    """Channels scaled by what their means say, and SiLU."""
    net = Net(1, 3, 17, 18)
    x = net.silu(net.conv("x", 3, 32, strides=[2, 2]))
    x = net.silu(net.conv(x, 32, 32, 5, group=32))
    y = net.silu(net.conv(net.add("GlobalAveragePool", x), 32, 8, 1))
    y = net.add("Sigmoid", net.conv(y, 8, 32, 1))
    x = net.conv(net.add("Mul", f"{x} {y}"), 32, 20, 1)
    return net.case("squeezed", net.classify(x, 20))


def transformer(length: int = 9, heads: int = 2, width: int = 32):
    net = Net(1, length, width)
    shape = net.constant(np.array([1, length, heads, width // heads]))
    back = net.constant(np.array([1, length, width]))
    perms = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    parts = {
        n: net.add("Transpose", net.add("Reshape", f"{net.linear('x', width, width)} {shape}"),
                   perm=perm)
        for n, perm in perms.items()
    }  # fmt: skip
    root = net.constant(np.array(0.25, np.float32))
    q, k, v = parts.values()
    scores = net.add("Mul", f"{net.add('MatMul', f'{q} {k}')} {root}")
    y = net.add("MatMul", f"{net.add('Softmax', scores, axis=-1)} {v}")
    y = net.add("Reshape", f"{net.add('Transpose', y, perm=[0, 2, 1, 3])} {back}")
    x = normed(net, net.add("Add", f"x {net.linear(y, width, width)}"), width)
    y = net.linear(x, width, 2 * width)
    half, one = (net.constant(np.array(v, np.float32)) for v in (0.5, 1))
    erf = net.add("Erf", net.add("Mul", f"{y} {net.constant(np.array(0.5**0.5, np.float32))}"))
    halved = net.add("Mul", f"{y} {half}")
    y = net.add("Mul", f"{halved} {net.add('Add', f'{erf} {one}')}")
    y = net.linear(y, 2 * width, width)
    return net.case("transformer", normed(net, net.add("Add", f"{x} {y}"), width))


def normed(net: Net, x: str, width: int) -> str:
    scale = net.constant(np.linspace(0.8, 1.2, width).astype(np.float32))
    bias = net.constant(np.linspace(-0.1, 0.1, width).astype(np.float32))
    return net.add("LayerNormalization", f"{x} {scale} {bias}", axis=-1)


def detector():
    net = Net(1, 3, 32, 24)
    fine = net.silu(net.conv("x", 3, 16, strides=[2, 2]))
    coarse = net.silu(net.conv(fine, 16, 24, strides=[2, 2]))
    twice = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.add("Resize", f"{coarse} _ {twice}", mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    joined = net.silu(net.conv(net.add("Concat", f"{up} {fine}", axis=1), 40, 32, group=4))
    heads = []
    for x, channels, places in ((joined, 32, 16 * 12), (coarse, 24, 8 * 6)):
        head = net.add("Sigmoid", net.conv(x, channels, 9, 1))
        heads.append(net.add("Reshape", f"{head} {net.constant(np.array([1, 9, places]))}"))
    return net.case("detector", net.add("Concat", " ".join(heads), axis=2))


NETS = {
    make.__name__: make for make in (convs, residual, depthwise, squeezed, transformer, detector)
}


def quantised(name: str, method: str = "u8s8") -> tuple[onnx.ModelProto, Callable[[int], Feeds]]:
    proto, feeds = NETS[name]()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(proto, source)
        quantise(method, source, target, {}, [feeds(100 + k) for k in range(CALIBRATION)])
        return onnx.load(target), feeds
