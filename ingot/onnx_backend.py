"""ONNX's backend protocol: `onnx.backend.test` and other tools run models through Ingot.

    import ingot.onnx_backend as backend
    (y,) = backend.prepare(model).run([x])
    backend.run_node(node, [x])

In: a ModelProto and arrays. Out: arrays, in the order of the model's outputs. Every model is
compiled; nothing is interpreted or handed to another runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

import ingot
from ingot.runtime.executable import Executable
from ingot.support.errors import IngotError


class CompiledModel(BackendRep):
    """A compiled model with the protocol's `run`."""

    def __init__(self, executable: Executable):
        self.executable = executable
        self.names = [port.name for port in executable.inputs]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs; inputs are in the model's order, or by name."""
        feeds = inputs if isinstance(inputs, Mapping) else self._by_name(inputs)
        outputs = self.executable.run(None, feeds)
        return namedtupledict("Outputs", [p.name for p in self.executable.outputs])(*outputs)

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(values) > len(self.names):
            what = f"{len(values)} inputs are given, the model has {len(self.names)}"
            raise IngotError("bad-input", what, hint=f"they are {', '.join(self.names)}")
        return dict(zip(self.names, values))


class IngotBackend(Backend):
    """The protocol's entry points; options of `ingot.compile` are passed through."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> CompiledModel:
        if not cls.supports_device(device):
            raise IngotError("bad-option", f"device {device!r} is not supported", hint='use "CPU"')
        return CompiledModel(ingot.compile(model, **options))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """A model of one node, whose inputs have the types and sizes of the arrays."""
        names = [name for name in node.input if name]
        arrays = dict(zip(names, inputs if isinstance(inputs, Sequence) else [inputs]))
        graph = onnx.helper.make_graph(
            [node],
            node.op_type,
            [_value_info(name, np.asarray(array)) for name, array in arrays.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        return cls.run_model(onnx.helper.make_model(graph), arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _value_info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    is_text = array.dtype.kind in "OUT"
    code = onnx.TensorProto.STRING if is_text else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, code, array.shape)


prepare, run_model, run_node = IngotBackend.prepare, IngotBackend.run_model, IngotBackend.run_node
supports_device, is_compatible = IngotBackend.supports_device, IngotBackend.is_compatible
