"""The ONNX importer as an entry point of `ingot.frontends` (registry.py). In: a path, bytes or
ModelProto. Out: a graph. The library `onnx` is imported only when a model is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from ingot.support import lazy
from ingot.support.file_digest import ModelIdentity, identity_of

if TYPE_CHECKING:
    from ingot.graph.ir import Graph
    from ingot.graph.store import ConstantStore

FIRST_BYTE = 0x08  # of a ModelProto as all libraries write it: field 1, ir_version, a varint


class OnnxImporter:
    name = "onnx"

    def accepts(self, model: Any) -> bool:
        match model:
            case bytes() | bytearray() | memoryview():
                return bytes(model[:1]) == bytes([FIRST_BYTE])
            case str() | PathLike():
                return str(fspath(model)).endswith((".onnx", ".ort"))
        kind = type(model)
        return kind.__name__ == "ModelProto" and kind.__module__.startswith("onnx")

    def identity(self, model: Any) -> ModelIdentity | None:
        return identity_of(model)

    def import_model(
        self,
        model: Any,
        store: ConstantStore,
        shapes: Mapping[str, Any],
        kernels: Mapping[str, Any],
        example: Mapping[str, tuple[int, ...]],
    ) -> Graph:
        return lazy.load("onnx")(model, store, shapes, kernels, example)

    def dim_names(self, model: Any) -> dict[str, tuple[str, ...]]:
        inputs = lazy.load("onnx.loading").load(model).model.graph.input
        rows = [(info.name, info.type.tensor_type.shape.dim) for info in inputs]
        return {name: tuple(dim.dim_param for dim in dims) for name, dims in rows}

    def with_outputs(self, model: Any, names: Sequence[str]) -> Any:
        return lazy.load("onnx.outputs")(lazy.load("onnx.loading").load(model), names)

    def inputs_with_defaults(self, model: Any) -> list[str]:
        return lazy.load("onnx.loading").inputs_with_defaults(lazy.load("onnx.loading").load(model))


IMPORTER = OnnxImporter()
