"""Models with weights of a few bits: one product, and a decoder of about 1 B parameters.

The decoder is shaped like Llama 3.2 1B: 16 layers, width 2048, 32 heads of 64 with 8 heads of keys
and values, an MLP of 8192, RMS norms, rotary positions, a vocabulary of 32,000. Its weights are
random codes, its inputs the embedding of one token and the keys and values of earlier ones. In: a
folder for the files. Out: .onnx files, one for each accuracy level, that share a file of weights;
inputs, and outputs computed in float64. Called by weight_only.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

LEVELS = (0, 4)  # MatMulNBits' accuracy_level: activations in f32, and quantised to int8
EPSILON = 1e-5
THETA = 500_000.0


@dataclass(frozen=True)
class Decoder:
    layers: int = 16
    width: int = 2048
    heads: int = 32
    kv_heads: int = 8
    mlp: int = 8192
    vocabulary: int = 32_000
    past: int = 64  # tokens before this one
    block: int = 32
    bits: int = 4

    @property
    def head(self) -> int:
        return self.width // self.heads

    def products(self) -> Iterator[tuple[str, int, int]]:
        """Name, K and N of every product with packed weights."""
        kv = self.kv_heads * self.head
        shapes = (("q", self.width, self.width), ("k", self.width, kv), ("v", self.width, kv),
                  ("o", self.width, self.width), ("gate", self.width, self.mlp),
                  ("up", self.width, self.mlp), ("down", self.mlp, self.width))  # fmt: skip
        for layer in range(self.layers):
            yield from ((f"{name}_{layer}", k, n) for name, k, n in shapes)
        yield "head", self.width, self.vocabulary

    @property
    def weight_bytes(self) -> int:
        """Bytes of codes and scales that one token reads."""
        return sum(product_bytes(k, n, self.block, self.bits) for _, k, n in self.products())


def product_bytes(k: int, n: int, block: int, bits: int) -> int:
    return n * -(-k // block) * (block * bits // 8 + 4)


@dataclass
class Files:
    """What a benchmark needs of a model."""

    levels: dict[int, Path]
    feeds: dict[str, np.ndarray]
    exact: list[np.ndarray]
    weight_bytes: int


def codes_of(name: str, k: int, n: int, block: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Random packed codes, (n, blocks, bytes), and scales that keep the size of activations."""
    rng = np.random.default_rng(list(name.encode()))
    blocks, deviation = -(-k // block), (1 << bits) / 12**0.5
    codes = rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    scale = rng.uniform(0.5, 1.5, (n, blocks)) / (deviation * k**0.5)
    return codes, scale.astype(np.float32)


def real_weights(name: str, k: int, n: int, block: int, bits: int) -> np.ndarray:
    """The same dequantised, (n, k), in float64."""
    codes, scale = codes_of(name, k, n, block, bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (codes[..., None] >> shifts & ((1 << bits) - 1)).reshape(n, -1, block)
    real = (numbers.astype(np.float64) - (1 << (bits - 1))) * scale[..., None]
    return real.reshape(n, -1)[:, :k]


# --- one product --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    rows: int
    k: int
    n: int
    block: int
    bits: int = 4

    def __str__(self) -> str:
        return f"{self.rows} x {self.k} x {self.n}, {self.bits} bits, block {self.block}"

    def files(self, folder: Path) -> Files:
        name = f"product_{self.rows}_{self.k}_{self.n}_{self.block}_{self.bits}"
        model = Model(folder, name, self.block, self.bits)
        model.input("x", (self.rows, self.k))
        model.product("w", "x", self.k, self.n, "y")
        levels = model.save(["y"], [(self.rows, self.n)])
        x = np.random.default_rng(1).standard_normal((self.rows, self.k)).astype(np.float32)
        exact = x.astype(np.float64) @ real_weights("w", self.k, self.n, self.block, self.bits).T
        size = product_bytes(self.k, self.n, self.block, self.bits)
        return Files(levels, {"x": x}, [exact], size)


# --- the decoder --------------------------------------------------------------------------------


def decoder_files(folder: Path, d: Decoder) -> Files:
    name = f"decoder_{d.layers}_{d.width}_{d.block}_{d.bits}"
    model = Model(folder, name, d.block, d.bits)
    outputs = decoder(model, d)
    levels = model.save(*map(list, zip(*outputs.items())))
    feeds = decoder_feeds(d)
    return Files(levels, feeds, _exact(d, feeds), d.weight_bytes)


def decoder_feeds(d: Decoder) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 1, d.width)}
    for layer in range(d.layers):
        shapes |= {f"{n}_{layer}": (1, d.kv_heads, d.past, d.head) for n in ("keys", "values")}
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


def decoder(m: Model, d: Decoder) -> dict[str, tuple[int, ...]]:
    """Adds the nodes; the outputs with their shapes."""
    kv_shape, group = (1, d.kv_heads, d.past + 1, d.head), d.heads // d.kv_heads
    m.input("x", (1, 1, d.width))
    cos, sin = rotation(d)
    m.constant("cos", cos.astype(np.float32))
    m.constant("sin", sin.astype(np.float32))
    outputs: dict[str, tuple[int, ...]] = {}
    x = "x"
    for i in range(d.layers):
        for name in ("keys", "values"):
            m.input(f"{name}_{i}", (1, d.kv_heads, d.past, d.head))
        y = m.norm(f"norm_a_{i}", x, d.width)
        kv = d.kv_heads * d.head
        q, k, v = (
            m.product(f"{n}_{i}", y, d.width, s) for n, s in (("q", d.width), ("k", kv), ("v", kv))
        )
        q = m.rotated(m.reshaped(q, (1, d.kv_heads, group, d.head)), d.head)
        k = m.rotated(m.reshaped(k, (1, d.kv_heads, 1, d.head)), d.head)
        v = m.reshaped(v, (1, d.kv_heads, 1, d.head))
        keys = m.node("Concat", [f"keys_{i}", k], f"new_keys_{i}", axis=2)
        values = m.node("Concat", [f"values_{i}", v], f"new_values_{i}", axis=2)
        outputs |= {keys: kv_shape, values: kv_shape}
        scores = m.node("MatMul", [q, m.node("Transpose", [keys], perm=[0, 1, 3, 2])])
        scores = m.node("Mul", [scores, m.scalar(d.head**-0.5)])
        mixed = m.node("MatMul", [m.node("Softmax", [scores], axis=-1), values])
        mixed = m.product(f"o_{i}", m.reshaped(mixed, (1, 1, d.width)), d.width, d.width)
        x = m.node("Add", [x, mixed])
        y = m.norm(f"norm_b_{i}", x, d.width)
        gate, up = (m.product(f"{n}_{i}", y, d.width, d.mlp) for n in ("gate", "up"))
        gate = m.node("Mul", [gate, m.node("Sigmoid", [gate])])
        down = m.product(f"down_{i}", m.node("Mul", [gate, up]), d.mlp, d.width)
        x = m.node("Add", [x, down])
    y = m.norm("norm", x, d.width)
    m.product("head", y, d.width, d.vocabulary, "logits")
    return {"logits": (1, 1, d.vocabulary), **outputs}


def rotation(d: Decoder) -> tuple[np.ndarray, np.ndarray]:
    angle = d.past * THETA ** (-np.arange(0, d.head, 2) / d.head)
    return np.cos(np.tile(angle, 2)), np.sin(np.tile(angle, 2))


def _exact(d: Decoder, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs in float64, in the order of the model's."""
    cos, sin = rotation(d)
    group = d.heads // d.kv_heads

    def product(name: str, x: np.ndarray, k: int, n: int) -> np.ndarray:
        return x @ real_weights(name, k, n, d.block, d.bits).T

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean() + EPSILON) * gains(name, d.width).astype(np.float64)

    def rotated(x: np.ndarray) -> np.ndarray:
        half = d.head // 2
        return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin

    x, caches = feeds["x"].reshape(-1).astype(np.float64), []
    for i in range(d.layers):
        y = norm(f"norm_a_{i}", x)
        kv = d.kv_heads * d.head
        q = rotated(product(f"q_{i}", y, d.width, d.width).reshape(d.kv_heads, group, d.head))
        k = rotated(product(f"k_{i}", y, d.width, kv).reshape(d.kv_heads, 1, d.head))
        v = product(f"v_{i}", y, d.width, kv).reshape(d.kv_heads, 1, d.head)
        keys = np.concatenate([feeds[f"keys_{i}"][0].astype(np.float64), k], 1)
        values = np.concatenate([feeds[f"values_{i}"][0].astype(np.float64), v], 1)
        caches += [keys[None], values[None]]
        scores = q @ keys.transpose(0, 2, 1) * d.head**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ values
        x = x + product(f"o_{i}", mixed.reshape(-1), d.width, d.width)
        y = norm(f"norm_b_{i}", x)
        gate, up = (product(f"{n}_{i}", y, d.width, d.mlp) for n in ("gate", "up"))
        x = x + product(f"down_{i}", gate / (1 + np.exp(-gate)) * up, d.mlp, d.width)
    logits = product("head", norm("norm", x), d.width, d.vocabulary)
    return [logits.reshape(1, 1, -1), *caches]


def gains(name: str, width: int) -> np.ndarray:
    rng = np.random.default_rng(list(name.encode()))
    return rng.uniform(0.5, 1.5, width).astype(np.float32)


# --- writing files ------------------------------------------------------------------------------


@dataclass
class Model:
    """An ONNX model under construction, with its weights in a file of their own."""

    folder: Path
    name: str
    block: int
    bits: int
    nodes: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)
    count: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = (self.folder / f"{self.name}.bin").open("wb")

    def input(self, name: str, shape: tuple[int, ...]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def node(self, op: str, inputs: list[str], output: str = "", **attrs: Any) -> str:
        self.count += 1
        output = output or f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [output], f"n{self.count}", **attrs))
        return output

    def constant(self, name: str, array: np.ndarray) -> str:
        self.tensors.append(onnx.numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        self.count += 1
        return self.constant(f"c{self.count}", np.array(value, np.float32))

    def reshaped(self, x: str, shape: tuple[int, ...]) -> str:
        self.count += 1
        return self.node("Reshape", [x, self.constant(f"c{self.count}", np.array(shape, np.int64))])

    def rotated(self, x: str, head: int) -> str:
        first, second = f"a{self.count}", f"b{self.count}"
        sizes = self.constant(f"h{self.count}", np.array([head // 2, head // 2], np.int64))
        self.nodes.append(helper.make_node("Split", [x, sizes], [first, second], axis=-1))
        turned = self.node("Concat", [self.node("Neg", [second]), first], axis=-1)
        parts = [self.node("Mul", [x, "cos"]), self.node("Mul", [turned, "sin"])]
        return self.node("Add", parts)

    def norm(self, name: str, x: str, width: int) -> str:
        axes = self.constant(f"{name}_axes", np.array([-1], np.int64))
        mean = self.node("ReduceMean", [self.node("Pow", [x, self.scalar(2)]), axes], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.scalar(EPSILON)])])
        return self.node(
            "Mul", [self.node("Div", [x, root]), self.constant(name, gains(name, width))]
        )

    def product(self, name: str, x: str, k: int, n: int, output: str = "") -> str:
        codes, scale = codes_of(name, k, n, self.block, self.bits)
        given = [x, self.external(f"{name}_codes", codes), self.external(f"{name}_scale", scale)]
        made = self.node(
            "MatMulNBits", given, output, domain="com.microsoft", K=k, N=n, bits=self.bits,
            block_size=self.block, accuracy_level=0,
        )  # fmt: skip
        self.products.append(self.nodes[-1])
        return made

    def external(self, name: str, array: np.ndarray) -> str:
        tensor = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        entries = {"location": f"{self.name}.bin", "offset": self.offset, "length": array.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.data.write(array.tobytes())
        padding = -array.nbytes % 4096
        self.data.write(bytes(padding))
        self.offset += array.nbytes + padding
        self.tensors.append(tensor)
        return name

    def save(self, names: list[str], shapes: list[tuple[int, ...]]) -> dict[int, Path]:
        self.data.close()
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(names, shapes)
        ]
        files = {}
        for level in LEVELS:
            for made in self.products:
                next(a for a in made.attribute if a.name == "accuracy_level").i = level
            graph = helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.tensors)
            opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
            model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
            files[level] = self.folder / f"{self.name}_{level}.onnx"
            files[level].write_bytes(model.SerializeToString())
        return files
