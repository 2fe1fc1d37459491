"""ONNX models in f16 or bf16: single GEMMs, and conversions of whole f32 models.

`converted` does what onnxconverter-common's float16 conversion does: constants, inputs, outputs and
casts to f32 become the narrow type; what overflows becomes its largest number. `rounded` keeps a
model in f32 and rounds its weights to numbers of the narrow type, as an exporter of a bf16
checkpoint leaves them.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from benchmarks.weight_only_models import Decoder, Model, decoder, decoder_feeds

NARROW: dict[str, tuple[int, np.dtype]] = {
    "f32": (TensorProto.FLOAT, np.dtype(np.float32)),
    "f16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}


def gemm(name: str, rows: int, depth: int, columns: int) -> tuple[ModelProto, np.ndarray]:
    """x · w with constant weights, all of it in one type; and its input."""
    code, dtype = NARROW[name]
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((depth, columns), np.float32) / np.sqrt(depth)).astype(dtype)
    x = rng.standard_normal((rows, depth), np.float32).astype(dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "gemm",
        [helper.make_tensor_value_info("x", code, x.shape)],
        [helper.make_tensor_value_info("y", code, [rows, columns])],
        [_tensor("w", w, code)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), x


class Unpacked(Model):
    """The decoder of weight_only_models with plain weights, in f32."""

    def product(self, name: str, x: str, k: int, n: int, output: str = "") -> str:
        weights = np.random.default_rng(self.count).standard_normal((k, n), np.float32)
        return self.node("MatMul", [x, self.external(name, weights / np.float32(k**0.5))], output)


def decoding(folder: Path, d: Decoder) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """One token of a decoder in f32, and its inputs."""
    model = Unpacked(folder, f"unpacked_{d.layers}_{d.width}", d.block, d.bits)
    outputs = decoder(model, d)
    file = model.save(*map(list, zip(*outputs.items())))[0]
    return onnx.load(file), decoder_feeds(d)


def converted(model: ModelProto, name: str) -> ModelProto:
    """The model with all its floats in the narrow type."""
    made = ModelProto()
    made.CopyFrom(model)
    _convert(made.graph, *NARROW[name])
    return made


def rounded(model: ModelProto, name: str) -> ModelProto:
    """The f32 model with weights that are numbers of the narrow type."""
    made = ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            narrow = _clipped(numpy_helper.to_array(tensor), NARROW[name][1])
            tensor.CopyFrom(_tensor(tensor.name, narrow.astype(np.float32), TensorProto.FLOAT))
    return made


def _convert(graph: GraphProto, code: int, dtype: np.dtype) -> None:
    for tensor in graph.initializer:
        _convert_tensor(tensor, code, dtype)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = code
    for node in graph.node:
        for attr in node.attribute:
            if attr.type == AttributeProto.TENSOR:
                _convert_tensor(attr.t, code, dtype)
            elif attr.type == AttributeProto.GRAPH:
                _convert(attr.g, code, dtype)
            elif node.op_type == "Cast" and attr.name == "to" and attr.i == TensorProto.FLOAT:
                attr.i = code


def _convert_tensor(tensor: TensorProto, code: int, dtype: np.dtype) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        narrow = _clipped(numpy_helper.to_array(tensor), dtype)
        tensor.CopyFrom(_tensor(tensor.name, narrow, code))


def _clipped(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    most = float(ml_dtypes.finfo(dtype).max)
    return np.clip(array, -most, most).astype(dtype)


def _tensor(name: str, array: np.ndarray, code: int) -> TensorProto:
    return TensorProto(name=name, data_type=code, dims=array.shape, raw_data=array.tobytes())
