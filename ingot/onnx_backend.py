"""ONNX's backend protocol: `onnx.backend.test` and other tools run models through Ingot.

    import ingot.onnx_backend as backend
    (y,) = backend.prepare(model).run([x])
    backend.run_node(node, [x], opset_version=11)
    backend.is_compatible(model)

In: a ModelProto and arrays. Out: arrays, in the order of the model's outputs. A sequence is a list
of arrays, an empty optional is None. Every model is compiled; nothing is interpreted or handed to
another runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

import ingot
from ingot.frontends.onnx.tensors import DTYPES
from ingot.frontends.onnx.walker import check_operators
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
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Are the device and all operators of the model supported? Nothing is compiled."""
        try:
            check_operators(model)
        except IngotError:
            return False
        return cls.supports_device(device)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """A model of one node, whose inputs have the types and sizes of the arrays. The option
        `opset_version` is that of the node's own domain; without it, the newest."""
        version = options.pop("opset_version", None)
        names = [name for name in node.input if name]
        values = dict(zip(names, inputs if isinstance(inputs, list | tuple) else [inputs]))
        given = {
            name: v if v is None or _is_sequence(v) else np.asarray(v) for name, v in values.items()
        }
        graph = onnx.helper.make_graph(
            [node],
            node.op_type,
            [onnx.helper.make_value_info(name, _type(value)) for name, value in given.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        model = onnx.helper.make_model(graph)
        if version is not None:
            del model.opset_import[:]
            model.opset_import.add(domain=node.domain, version=version)
        return cls.run_model(model, given, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value)


def _type(value: Any) -> onnx.TypeProto:
    """The type of an array, of a list of arrays (sizes in which they differ are open), or of None,
    an empty optional."""
    tensor = onnx.helper.make_tensor_type_proto
    if value is None:
        return onnx.helper.make_optional_type_proto(tensor(onnx.TensorProto.FLOAT, []))
    if not _is_sequence(value):
        return tensor(_code(value), value.shape)
    code = _code(value[0]) if value else onnx.TensorProto.FLOAT
    shape: list[int | None] | None = None
    if len({array.ndim for array in value}) == 1:
        sizes = zip(*(array.shape for array in value))
        shape = [each[0] if len(set(each)) == 1 else None for each in sizes]
    return onnx.helper.make_sequence_type_proto(tensor(code, shape))


def _code(array: np.ndarray) -> int:
    if array.dtype.kind in "OUST":
        return onnx.TensorProto.STRING
    codes = {dtype.numpy: code for code, dtype in DTYPES.items()}
    if array.dtype not in codes:
        what = f"arrays of {array.dtype} are not supported"
        raise IngotError("bad-input", what, hint="give integers, floats, bool or strings")
    return codes[array.dtype]


prepare, run_model, run_node = IngotBackend.prepare, IngotBackend.run_model, IngotBackend.run_node
supports_device, is_compatible = IngotBackend.supports_device, IngotBackend.is_compatible
