"""ONNX Runtime's `InferenceSession` over Ingot, for test suites that are written against it.

As a pytest plugin (`-p tests.ml.session`) it replaces `onnxruntime.InferenceSession` before tests
are collected, so that `from onnxruntime import InferenceSession` gives this class. Every model is
compiled; an operator that Ingot lacks is an error of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import ingot

TYPES = {
    onnx.TensorProto.FLOAT: "float", onnx.TensorProto.DOUBLE: "double",
    onnx.TensorProto.INT64: "int64", onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.STRING: "string", onnx.TensorProto.BOOL: "bool",
    onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT8: "int8", onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.UINT16: "uint16", onnx.TensorProto.UINT32: "uint32",
    onnx.TensorProto.UINT64: "uint64",
}  # fmt: skip


@dataclass
class Argument:
    """An input or output, as `get_inputs` and `get_outputs` give it."""

    name: str
    type: str
    shape: list[Any]


@dataclass
class ModelMeta:
    producer_name: str
    graph_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        **kwargs: Any,
    ):
        self._model = _model_of(path_or_bytes)
        self._executable = ingot.compile(self._model, jobs=1, threads=1)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:  # fmt: skip
        feeds = {name: _array(value) for name, value in input_feed.items()}
        names = [value.name for value in self._model.graph.output]
        made = dict(zip(names, self._executable.run(None, feeds), strict=True))
        return [made[name] for name in (output_names or names)]

    def get_inputs(self) -> list[Argument]:
        constant = {tensor.name for tensor in self._model.graph.initializer}
        return [_argument(v) for v in self._model.graph.input if v.name not in constant]

    def get_outputs(self) -> list[Argument]:
        return [_argument(value) for value in self._model.graph.output]

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_modelmeta(self) -> ModelMeta:
        m = self._model
        extra = {pair.key: pair.value for pair in m.metadata_props}
        return ModelMeta(
            m.producer_name, m.graph.name, m.domain, m.doc_string, m.model_version, extra
        )


def _model_of(given: Any) -> onnx.ModelProto:
    if isinstance(given, str | PathLike):
        return onnx.load_model_from_string(Path(given).read_bytes())
    return onnx.load_model_from_string(bytes(given))


def _array(value: Any) -> Any:
    return value if isinstance(value, dict) else np.asarray(value)


def _argument(value: onnx.ValueInfoProto) -> Argument:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Argument(value.name, f"{(kind or 'none').removesuffix('_type')}(…)", [])
    tensor = value.type.tensor_type
    shape: list[Any] = [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    ]
    return Argument(value.name, f"tensor({TYPES.get(tensor.elem_type, '?')})", shape)


def pytest_configure(config: Any) -> None:
    """Called by pytest when this module is a plugin."""
    import onnxruntime

    onnxruntime.InferenceSession = InferenceSession
