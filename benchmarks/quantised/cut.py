"""Cut a quantised model at its quantised values, so that each layer can be checked by itself.

In: an ONNX model with QuantizeLinear nodes. Out: the model in which whatever reads a quantised
value reads an input instead, and every quantised value is an output; its inputs' values from one
run of the whole model. A flipped tie in one layer then changes no other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

Feeds = Mapping[str, np.ndarray]
SUFFIX = "__given"
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def onnxruntime_outputs(
    model: onnx.ModelProto, feeds: Feeds, level: str = LEVELS[0]
) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {name: feeds[name] for name in (i.name for i in session.get_inputs())})


def quantised_values(model: onnx.ModelProto) -> list[str]:
    """The outputs of QuantizeLinear nodes that depend on an input."""
    live = {value.name for value in model.graph.input}
    found = []
    for node in model.graph.node:
        if live & set(node.input):
            live |= set(node.output)
            found += [node.output[0]] if node.op_type == "QuantizeLinear" else []
    return found


def values_of(model: onnx.ModelProto, names: list[str], feeds: Feeds) -> dict[str, np.ndarray]:
    """The values so called, by ONNX Runtime without optimisations."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, onnxruntime_outputs(whole, feeds)))


def cut(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model in layers: inputs called `value + SUFFIX`, outputs by their own names."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    read = set()
    for node in made.graph.node:
        for position, name in enumerate(node.input):
            if name in values:
                node.input[position] = name + SUFFIX
                read.add(name)
    inputs = [info(name + SUFFIX, values[name]) for name in values if name in read]
    made.graph.input.extend(inputs)
    del made.graph.output[:], made.graph.value_info[:]
    made.graph.output.extend(info(name, array) for name, array in values.items())
    return made


def given(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs of the cut model."""
    return {name + SUFFIX: array for name, array in values.items()}


def info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, list(array.shape))


def output_steps(
    model: onnx.ModelProto, outputs: Mapping[str, np.ndarray]
) -> dict[str, float | np.ndarray]:
    """The step of each output: the scale of the quantisation that made it, where nothing but
    DequantizeLinear and movement of data comes after; 1 if it is an integer; else a 255th of the
    range of its values, which is the step that its own quantisation to 8 bits would have."""
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {t.name: t for t in model.graph.initializer}
    found: dict[str, float | np.ndarray] = {}
    for name, array in outputs.items():
        node, wide = makers.get(name), array.astype(np.float64)
        while node is not None and node.op_type in ("Reshape", "Transpose", "Identity", "Flatten"):
            node = makers.get(node.input[0])
        if array.dtype.kind in "iu":
            found[name] = 1.0
        elif node is not None and node.op_type == "DequantizeLinear":
            scale = numpy_helper.to_array(constants[node.input[1]])
            found[name] = float(scale.max())
        else:
            spread = float(wide.max() - wide.min()) or float(np.abs(wide).max()) or 1.0
            found[name] = spread / 255
    return found
