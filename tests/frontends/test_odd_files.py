"""Files that ONNX Runtime accepts although the checker frowns: the same numbers come out of Ingot.

Each model is small, saved to a file and run by both. What Ingot refuses is at the end, with what
its error must tell.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from onnx import TensorProto as P
from onnx import helper, numpy_helper, printer

import ingot
from tests.models.parts import Feeds, graph, info, model, node
from tests.refusal import refused

A = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
W = np.arange(9, dtype=np.float32).reshape(3, 3) - 4
X, Y = info("x", [2, 3]), info("y", [2, 3])
Case = tuple[onnx.ModelProto, Feeds]
CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


def relu(inputs=(X,), outputs=(Y,), **constants) -> onnx.ModelProto:
    return model("odd", [node("Relu", "x", "y")], inputs, outputs, constants)


def matmul(inputs=(X,), outputs=(Y,), **constants) -> onnx.ModelProto:
    return model("odd", [node("MatMul", "x w", "y")], inputs, outputs, constants)


def run_both(path: Path, feeds: Feeds) -> None:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wants = session.run(None, feeds)
    exe = ingot.compile(path, jobs=1, threads=1)
    for got, want in zip(exe.run(None, feeds), wants, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# --- nodes and names ------------------------------------------------------------------------------


@case
def nodes_in_no_order():
    nodes = [node("Neg", "b", "y"), node("Relu", "a", "b"), node("MatMul", "x w", "a")]
    return model("odd", nodes, [X], [Y], {"w": W}), {"x": A}


@case
def empty_node_names():
    proto = model("odd", [node("Relu", "x", "a"), node("Neg", "a", "y")], [X], [Y])
    for each in proto.graph.node:
        each.name = ""
    proto.graph.name = ""
    return proto, {"x": A}


@case
def an_empty_name_for_an_optional_output():
    proto = model("odd", [node("Dropout", "x", "y mask")], [X], [Y])
    proto.graph.node[0].output[1] = ""
    return proto, {"x": A}


@case
def empty_names_for_trailing_operands():
    return model("odd", [node("Clip", "x _ _", "y")], [X], [Y]), {"x": A}


@case
def an_output_twice():
    return relu(outputs=(Y, Y)), {"x": A}


@case
def outputs_that_are_an_input_and_a_constant():
    return relu(outputs=(Y, X, info("w", [3, 3])), w=W), {"x": A}


@case
def no_nodes_at_all():
    return model("odd", [], [X], [X]), {"x": A}


@case
def an_unused_input():
    return relu(inputs=(X, info("unused", [3]))), {"x": A, "unused": A[0]}


@case
def texts_metadata_training_and_quantisation():
    """Nothing of these is read, whatever it holds."""
    proto = relu()
    proto.doc_string = proto.graph.doc_string = proto.graph.node[0].doc_string = "é"
    proto.metadata_props.add(key="author", value="ø")
    proto.graph.node[0].metadata_props.add(key="k", value="v")
    proto.training_info.add().algorithm.CopyFrom(graph("t", [node("Vanished", "q", "r")], [], []))
    annotation = proto.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="nowhere")
    return proto, {"x": A}


# --- versions and domains -------------------------------------------------------------------------


@case
def the_long_name_of_the_default_domain():
    proto = relu()
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    return proto, {"x": A}


@case
def a_domain_that_is_not_imported():
    return model("odd", [node("Gelu", "x", "y", domain="com.microsoft")], [X], [Y]), {"x": A}


@case
def only_another_domain_is_imported():
    proto = relu()
    proto.opset_import[0].CopyFrom(helper.make_opsetid("ai.onnx.ml", 3))
    return proto, {"x": A}


# --- initializers ---------------------------------------------------------------------------------


@case
def an_initializer_that_is_an_input():
    return matmul([X, info("w", [3, 3])], w=W), {"x": A}


@case
def an_initializer_that_is_an_input_and_is_overridden():
    return matmul([X, info("w", [3, 3])], w=W), {"x": A, "w": W * 2 + 1}


@case
def an_initializer_that_is_an_input_of_an_old_file():
    proto = matmul([X, info("w", [3, 3])], w=W)
    proto.ir_version, proto.opset_import[0].version = 3, 8
    return proto, {"x": A}


@case
def one_initializer_twice():
    """The last one counts."""
    proto = matmul(w=W)
    proto.graph.initializer.append(numpy_helper.from_array(W + 1, "w"))
    return proto, {"x": A}


@case
def unused_initializers():
    """One of them could not be read; none has a name."""
    proto = relu(w=W)
    proto.graph.initializer.append(P(name="broken", data_type=P.FLOAT, dims=[4], raw_data=b"123"))
    proto.graph.initializer.append(numpy_helper.from_array(W))
    return proto, {"x": A}


@case
def raw_and_typed_data():
    proto = matmul(w=W)
    proto.graph.initializer[0].float_data.extend([1.0] * 9)
    return proto, {"x": A}


@case
def a_sparse_initializer():
    proto = matmul()
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 5], np.int64))
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3, 3]))
    return proto, {"x": A}


@case
def an_initializer_of_zero_size():
    proto = model("odd", [node("Concat", "x none", "y", axis=0)], [X], [Y])
    proto.graph.initializer.append(P(name="none", data_type=P.FLOAT, dims=[0, 3]))
    return proto, {"x": A}


# --- declared types and shapes --------------------------------------------------------------------


@case
def inner_types_that_are_wrong():
    proto = model("odd", [node("Relu", "x", "a"), node("Neg", "a", "y")], [X], [Y])
    proto.graph.value_info.append(info("a", [7, 9]))
    return proto, {"x": A}


@case
def an_output_of_the_wrong_shape():
    return relu(outputs=(info("y", [5, 5]),)), {"x": A}


@case
def an_output_of_the_wrong_rank():
    return relu(outputs=(info("y", [5]),)), {"x": A}


@case
def an_output_without_a_type():
    return relu(outputs=(onnx.ValueInfoProto(name="y"),)), {"x": A}


@case
def sizes_written_as_minus_one():
    return relu([info("x", [-1, 3])], [info("y", [-1, 3])]), {"x": A}


@case
def sizes_written_as_zero():
    return relu([info("x", [0, 3])], [info("y", [0, 3])]), {"x": A[:0]}


@case
def sizes_of_one_name_that_differ():
    inputs = [info("x", ["n", 3]), info("z", ["n", 3])]
    return model("odd", [node("Add", "x z", "y")], inputs, [Y]), {"x": A, "z": A[:1]}


# --- scalars with an axis -------------------------------------------------------------------------


@case
def bounds_of_clip():
    bounds = {"lo": np.zeros(1, np.float32)}
    return model("odd", [node("Clip", "x lo", "y")], [X], [Y], bounds), {"x": A}


@case
def an_axis_without_one():
    nodes = [node("Unsqueeze", "x axis", "y")]
    return model("odd", nodes, [X], [info("y", [1, 2, 3])], {"axis": np.int64(0)}), {"x": A}


@case
def the_depth_of_one_hot():
    constants = {"depth": np.array([4]), "values": np.array([0, 1], np.float32)}
    nodes = [node("OneHot", "i depth values", "y")]
    proto = model("odd", nodes, [info("i", [2], P.INT64)], [info("y", [2, 4])], constants)
    return proto, {"i": np.array([1, 3])}


@case
def scale_and_zero_point():
    constants = {"s": np.array([0.1], np.float32), "z": np.array([3], np.uint8)}
    nodes = [node("QuantizeLinear", "x s z", "y")]
    return model("odd", nodes, [X], [info("y", [2, 3], P.UINT8)], constants), {"x": A}


@case
def the_condition_of_an_if():
    branches = {
        f"{name}_branch": graph(name, [node(op, "x", name)], [], [info(name, [2, 3])])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [node("If", "c", "y", **branches)]
    proto = model("odd", nodes, [X, info("c", [1], P.BOOL)], [Y])
    return proto, {"x": A, "c": np.array([True])}


@case
def the_count_of_a_loop():
    body = graph(
        "body",
        [node("Identity", "go", "go_on"), node("Add", "v v", "w")],
        [info("i", [], P.INT64), info("go", [], P.BOOL), info("v", [2, 3])],
        [info("go_on", [], P.BOOL), info("w", [2, 3])],
    )
    nodes = [node("Loop", "n _ x", "y", body=body)]
    return model("odd", nodes, [X], [Y], {"n": np.array([3])}), {"x": A}


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_accepts_it_and_so_does_ingot(name: str, tmp_path: Path) -> None:
    proto, feeds = CASES[name]()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    run_both(tmp_path / "model.onnx", feeds)


# --- overridden defaults --------------------------------------------------------------------------


def test_an_overridden_default_of_several_shapes() -> None:
    """Versions are kept, and the default still holds in the next call without it."""
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "y")]
    inputs = [info("x", ["n", 3]), info("w", [3, "m"]), info("b", [1])]
    constants = {"w": W, "b": np.ones(1, np.float32)}
    exe = ingot.compile(model("odd", nodes, inputs, [info("y", ["n", "m"])], constants), jobs=1)
    assert [port.name for port in exe.inputs] == ["x"]
    for w in (W[:, :2], W + 1, W[:, :2] * 3):
        np.testing.assert_allclose(exe.run(None, {"x": A, "w": w})[0], A @ w + 1, rtol=1e-5)
        np.testing.assert_allclose(exe(x=A)[0], A @ W + 1, rtol=1e-5)
    np.testing.assert_allclose(exe(x=A, w=W, b=np.zeros(1, np.float32))[0], A @ W, rtol=1e-5)
    with refused("bad-input", "w"):
        exe.run(None, {"x": A, "w": W[:2]})


def test_what_has_no_default_is_not_overridden() -> None:
    exe = ingot.compile(matmul(w=W), jobs=1)  # a constant, which the inputs do not list
    with refused("bad-input", "w", hint="x"):
        exe.run(None, {"x": A, "w": W})
    old = matmul([X, info("w", [3, 3])], w=W)
    old.ir_version, old.opset_import[0].version = 3, 8
    with refused("bad-input", "w", hint="x"):
        ingot.compile(old, jobs=1).run(None, {"x": A, "w": W})


# --- more than ONNX Runtime accepts, and what both refuse -----------------------------------------


def test_a_newer_format_is_read_if_its_operators_are_known() -> None:
    proto = relu()
    proto.ir_version = 99
    np.testing.assert_array_equal(ingot.compile(proto, jobs=1)(A)[0], np.maximum(A, 0))


def test_two_nodes_of_one_name() -> None:
    proto = model("odd", [node("Relu", "x", "a"), node("Neg", "a", "y")], [X], [Y])
    for each in proto.graph.node:
        each.name = "it"
    np.testing.assert_array_equal(ingot.compile(proto, jobs=1)(A)[0], -np.maximum(A, 0))


def test_an_input_without_a_rank_is_refused() -> None:
    proto = relu([onnx.ValueInfoProto(name="x")])
    with refused("bad-model", where="x", hint=False):
        ingot.compile(proto)
    proto.graph.input[0].type.tensor_type.elem_type = P.FLOAT
    with refused("bad-model", "rank", where="x", hint="shape"):
        ingot.compile(proto)


OTHER_FORMATS: dict[str, tuple[Callable[[onnx.ModelProto], bytes], str]] = {
    "model.onnxtxt": (lambda m: printer.to_text(m).encode(), "onnxtxt"),
    "model.pbtxt": (lambda m: text_format.MessageToString(m).encode(), "textproto"),
    "model.json": (lambda m: b'{\n  "irVersion": "9"}', "json"),
    "model.onnx.gz": (lambda m: gzip.compress(m.SerializeToString()), "compressed"),
    "model.ort": (lambda m: b"\x30\0\0\0ORTM" + bytes(60), "ONNX Runtime's own"),
    "model.tflite": (lambda m: b"\x1c\0\0\0TFL3" + bytes(60), "tf2onnx"),
    "model.h5": (lambda m: b"\x89HDF\r\n\x1a\n" + bytes(60), "tf2onnx"),
    "page.onnx": (lambda m: b"<!DOCTYPE html><html></html>", "web page"),
    "pointer.onnx": (lambda m: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "model.pt2": (lambda m: b"PK\3\4" + bytes(60), "torch.onnx.export"),
    "weights.safetensors": (lambda m: b'\x40\0\0\0\0\0\0\0{"a":{}}', "weights only"),
    "short.onnx": (lambda m: m.SerializeToString()[:-7], "downloaded completely"),
}


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_other_formats_are_named(name: str, tmp_path: Path) -> None:
    make, fact = OTHER_FORMATS[name]
    (tmp_path / name).write_bytes(make(relu()))
    with refused("bad-model", where=str(tmp_path / name), hint=fact):
        ingot.compile(tmp_path / name)


def test_the_extension_does_not_matter(tmp_path: Path) -> None:
    for name in ("model.ort", "model"):
        (tmp_path / name).write_bytes(relu().SerializeToString())
        np.testing.assert_array_equal(ingot.compile(tmp_path / name)(A)[0], np.maximum(A, 0))


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "inside.onnx").write_bytes(relu().SerializeToString())
    with refused("bad-model", where=str(tmp_path), hint="inside.onnx"):
        ingot.compile(tmp_path)
