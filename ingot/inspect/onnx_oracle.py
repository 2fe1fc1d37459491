"""Every value of an ONNX model as ONNX Runtime computes it, and a model of one of its nodes.

In: a model file, its bytes or a ModelProto; inputs by name. Out: arrays by the file's own names.
Optimisations are off, so that each node runs as it is written. Loaded by name: it imports onnx and
onnxruntime. Called by imported.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from ingot.support.errors import IngotError

_FOLDER = "session.model_external_initializers_file_folder_path"


def values(model: Any, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs, outputs and all values between them that are tensors, in the order of the nodes."""
    proto, folder = _loaded(model)
    given = {v.name for v in proto.graph.output}
    made = [name for node in proto.graph.node for name in node.output if name]
    others = (name for name in made if name not in given)
    proto.graph.output.extend(map(helper.make_empty_tensor_value_info, others))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if folder:
        options.add_session_config_entry(_FOLDER, folder)
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        known = {v.name for v in session.get_inputs()}
        found = session.run(made, {n: a for n, a in feeds.items() if n in known})
    except Exception as error:  # onnxruntime's errors have no common class
        why = str(error).strip().splitlines()[0]
        raise IngotError("bad-model", "ONNX Runtime cannot run the model", why=why) from error
    pairs = zip(made, found)
    return {**feeds, **{name: array for name, array in pairs if isinstance(array, np.ndarray)}}


def _loaded(model: Any) -> tuple[onnx.ModelProto, str]:
    """A copy of the model, and the folder of its external data."""
    copy, folder = onnx.ModelProto(), ""
    if isinstance(model, str | PathLike):
        path = Path(fspath(model))
        model, folder = path.read_bytes(), str(path.parent.absolute())
    if isinstance(model, bytes | bytearray | memoryview):
        copy.ParseFromString(bytes(model))
    else:
        copy.CopyFrom(model)
    return copy, folder


def one_node(model: Any, name: str, known: Mapping[str, np.ndarray]) -> onnx.ModelProto | None:
    """The node that makes the value `name`, as a model whose operands are constants where the file
    has constants, else inputs. None for a node with bodies, which may read values outside it."""
    proto, folder = _loaded(model)
    node = next((n for n in proto.graph.node if name in n.output), None)
    if node is None or any(a.HasField("g") for a in node.attribute):
        return None
    held = {t.name: t for t in proto.graph.initializer}
    made = {n.output[0]: n for n in proto.graph.node if n.op_type == "Constant"}
    read = list(dict.fromkeys(n for n in node.input if n))
    constants = [_as_tensor(held[n], folder) for n in read if n in held]
    nodes = [made[n] for n in read if n in made]
    inputs = [_port(n, known[n]) for n in read if n not in held and n not in made]
    outputs = [_port(n, known[n]) for n in node.output if n in known]
    graph = helper.make_graph([*nodes, node], node.name or name, inputs, outputs, constants)
    small = helper.make_model(graph, opset_imports=proto.opset_import, functions=proto.functions)
    small.ir_version = proto.ir_version
    return small


def _as_tensor(tensor: onnx.TensorProto, folder: str) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor, folder), tensor.name)


def _port(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)
