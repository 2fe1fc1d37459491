"""Models whose KV cache grows: present = concat(past, new rows). For tests of growing states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto as P

from tests.models.parts import Feeds, info, model, node, rng, weight

HEADS, WIDTH = 2, 16


@dataclass(frozen=True)
class Cache:
    """A decoder of some layers: causal attention over the cache, with a residual. `axis` is that of
    the rows in a cache of the axes batch, heads and width; `mask` makes padding an input."""

    axis: int = 2
    layers: int = 1
    batch: str | int = "batch"
    mask: bool = True

    @property
    def state(self) -> dict[str, str]:
        return {f"past_{k}{i}": f"present_{k}{i}" for i in range(self.layers) for k in "kv"}

    def cache_shape(self, batch: int | str, rows: int | str) -> list[int | str]:
        others: list[int | str] = [batch, HEADS, WIDTH]
        return [*others[: self.axis], rows, *others[self.axis :]]

    def empty(self, batch: int) -> Feeds:
        shape = [int(n) for n in self.cache_shape(batch, 0)]
        return {name: np.zeros(shape, np.float32) for name in self.state}

    def call(self, seed: int, batch: int, new: int, length: int) -> Feeds:
        feeds: Feeds = {"x": rng(seed).standard_normal((batch, new, HEADS * WIDTH), np.float32)}
        if self.mask:
            feeds["mask"] = np.ones((batch, length + new), np.float32)
            feeds["mask"][-1, 0] = 0.0 if batch > 1 else 1.0
        return feeds

    def proto(self) -> onnx.ModelProto:
        nodes, constants = _causal(self), _constants(self)
        for layer in range(self.layers):
            nodes += _layer(self, layer)
        nodes.append(node("Tanh", f"x{self.layers}" if self.layers else "x", "y"))
        x = info("x", [self.batch, "seq", HEADS * WIDTH])
        mask = [info("mask", [self.batch, "total"])] if self.mask else []
        caches = [info(n, self.cache_shape(self.batch, "past")) for n in self.state]
        outputs = [info("y", [None] * 3), *(info(n, [None] * 4) for n in self.state.values())]
        return model("cache", nodes, [x, *mask, *caches], outputs, constants)


def _causal(cache: Cache) -> list[onnx.NodeProto]:
    """allowed[seq, past + seq], from the sizes of the inputs."""
    nodes = [
        node("Shape", "past_k0", "past_shape"),
        node("Gather", "past_shape row_axis", "past_rows", axis=0),
        node("Shape", "x", "x_shape"),
        node("Gather", "x_shape one", "new_rows", axis=0),
        node("Add", "past_rows new_rows", "end"),
        node("Range", "past_rows end one", "rows"),
        node("Range", "zero end one", "columns"),
        node("Unsqueeze", "rows axis_1", "rows_column"),
        node("LessOrEqual", "columns rows_column", "causal"),
    ]
    if not cache.mask:
        return [*nodes, node("Identity", "causal", "allowed")]
    return [
        *nodes,
        node("Cast", "mask", "mask_bool", to=P.BOOL),
        node("Unsqueeze", "mask_bool axes_12", "padding"),
        node("And", "causal padding", "allowed"),
    ]


def _constants(cache: Cache) -> dict[str, np.ndarray]:
    hidden = HEADS * WIDTH
    constants = {
        "row_axis": np.array(cache.axis), "zero": np.array(0), "one": np.array(1),
        "axis_1": np.array([1]), "axes_12": np.array([1, 2]), "minus": np.float32(-1e9),
        "heads": np.array([0, 0, HEADS, WIDTH]), "hidden": np.array([0, 0, hidden]),
    }  # fmt: skip
    for layer in range(cache.layers):
        names = [f"w_{part}{layer}" for part in "qkvo"]
        constants |= {n: weight(7 * layer + i, hidden, hidden) for i, n in enumerate(names)}
    return constants


def _layer(cache: Cache, layer: int) -> list[onnx.NodeProto]:
    """x → x + attention(x), with keys and values concatenated to the cache's layout."""
    axes = [0, 2, 3]  # batch, heads, width of [batch, rows, heads, width]
    perm = [*axes[: cache.axis], 1, *axes[cache.axis :]]
    back = [perm.index(axis) for axis in (0, 2, 1, 3)]  # to [batch, heads, rows, width]
    nodes = []
    for part in "qkv":
        nodes += [
            node("MatMul", f"x{layer or ''} w_{part}{layer}", f"{part}{layer}_flat"),
            node("Reshape", f"{part}{layer}_flat heads", f"{part}{layer}_split"),
        ]
    for part in "kv":
        name = f"{part}{layer}"
        nodes += [
            node("Transpose", f"{name}_split", f"{name}_new", perm=perm),
            node("Concat", f"past_{name} {name}_new", f"present_{name}", axis=cache.axis),
            node("Transpose", f"present_{name}", f"{name}_all", perm=back),
        ]
    return [
        *nodes,
        node("Transpose", f"q{layer}_split", f"q{layer}", perm=[0, 2, 1, 3]),
        node("Transpose", f"k{layer}_all", f"k{layer}_t", perm=[0, 1, 3, 2]),
        node("MatMul", f"q{layer} k{layer}_t", f"scores{layer}"),
        node("Where", f"allowed scores{layer} minus", f"masked{layer}"),
        node("Softmax", f"masked{layer}", f"weights{layer}", axis=-1),
        node("MatMul", f"weights{layer} v{layer}_all", f"mixed{layer}"),
        node("Transpose", f"mixed{layer}", f"mixed_t{layer}", perm=[0, 2, 1, 3]),
        node("Reshape", f"mixed_t{layer} hidden", f"merged{layer}"),
        node("MatMul", f"merged{layer} w_o{layer}", f"out{layer}"),
        node("Add", f"x{layer or ''} out{layer}", f"x{layer + 1}"),
    ]
