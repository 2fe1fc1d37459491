"""Kernels as operators of ONNX models: custom domains, attributes, functions, refusals."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.graph.builder import GraphBuilder
from ingot.graph.store import ConstantStore
from ingot.script import *
from tests.kernels.samples import floats, mm_relu
from tests.refusal import check, refused

DOMAIN = "com.acme"


def leaky_of(attrs):
    """A kernel for each value of the node's attribute."""
    alpha = attrs.get("alpha", 0.01)

    @ingot.kernel
    def leaky(n: size, m: size, X: f32[n, m], Y: f32[n, m]):
        for i, j in grid(n, m):
            with block("Y", spatial=(i, j)) as (i, j):
                Y[i, j] = select(X[i, j] > 0.0, X[i, j], X[i, j] * alpha)

    return leaky


def model(*nodes: onnx.NodeProto, inputs: dict, outputs: dict, functions=()) -> onnx.ModelProto:
    def infos(ports):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports.items()]

    graph = helper.make_graph(list(nodes), "custom", infos(inputs), infos(outputs))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=versions, functions=functions, ir_version=9)


def custom(op: str, ins: list[str], outs: list[str], **attrs) -> onnx.NodeProto:
    return helper.make_node(op, ins, outs, name=f"my_{op}", domain=DOMAIN, **attrs)


def leaks() -> onnx.ModelProto:
    nodes = [
        custom("Leak", ["x"], ["t"], alpha=0.25),
        helper.make_node("Add", ["t", "x"], ["u"]),
        custom("Leak", ["u"], ["y"]),
    ]
    return model(*nodes, inputs={"x": ["batch", 5]}, outputs={"y": ["batch", 5]})


def numpy_leaks(x: np.ndarray) -> np.ndarray:
    u = np.where(x > 0, x, x * np.float32(0.25)) + x
    return np.where(u > 0, u, u * np.float32(0.01))


def refusal(proto, **options) -> ingot.IngotError:
    with pytest.raises(ingot.IngotError) as caught:
        ingot.compile(proto, **options)
    return caught.value


@pytest.mark.parametrize("key", ["com.acme:Leak", "Leak"])
def test_a_factory_from_attributes(key):
    exe = ingot.compile(leaks(), kernels={key: leaky_of})
    for batch in (1, 4):
        x = floats(batch, 5)
        np.testing.assert_allclose(exe(x)[0], numpy_leaks(x), rtol=1e-6)


def test_a_kernel_with_two_operands_from_a_file(tmp_path):
    node = custom("MatMulRelu", ["a", "b"], ["y"])
    proto = model(node, inputs={"a": [3, "k"], "b": ["k", 4]}, outputs={"y": [3, 4]})
    onnx.save(proto, tmp_path / "m.onnx")
    exe = ingot.compile(str(tmp_path / "m.onnx"), kernels={"com.acme:MatMulRelu": mm_relu})
    a, b = floats(3, 7), floats(7, 4, seed=1)
    np.testing.assert_allclose(exe(a, b)[0], np.maximum(a @ b, 0), 1e-5, 1e-5)


def test_sizes_that_must_agree_are_taken_to():
    node = custom("MatMulRelu", ["a", "b"], ["y"])
    proto = model(node, inputs={"a": [3, "p"], "b": ["q", 4]}, outputs={"y": [3, 4]})
    exe = ingot.compile(proto, kernels={"MatMulRelu": mm_relu})
    a, b = floats(3, 7), floats(7, 4, seed=1)
    np.testing.assert_allclose(exe(a, b)[0], np.maximum(a @ b, 0), 1e-5, 1e-5)
    with refused("bad-input", "p", 7, 6, where="'my_MatMulRelu'", why=("'a'", "'b'"), hint="'p'"):
        exe(a, floats(6, 4))


def test_a_kernel_goes_before_what_ingot_has():
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = model(node, inputs={"x": [2, 3]}, outputs={"y": [2, 3]})
    exe = ingot.compile(proto, kernels={"ai.onnx:Relu": leaky_of({"alpha": 0.5})})
    x = floats(2, 3)
    np.testing.assert_allclose(exe(x)[0], np.where(x > 0, x, x / 2))
    error = refusal(proto, kernels={"com.acme:Relu": leaky_of})  # of another domain
    check(error, "bad-option", "kernels=", "'com.acme:Relu'", hint="'Relu'")


def test_inside_a_function_of_the_model():
    body = [custom("Leak", ["p"], ["q"], alpha=0.5), helper.make_node("Neg", ["q"], ["r"])]
    versions = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    function = helper.make_function(DOMAIN, "Outer", ["p"], ["r"], body, versions)
    proto = model(
        custom("Outer", ["x"], ["y"]), inputs={"x": [2, 3]}, outputs={"y": [2, 3]},
        functions=[function],
    )  # fmt: skip
    x = floats(2, 3)
    exe = ingot.compile(proto, kernels={"com.acme:Leak": leaky_of})
    np.testing.assert_allclose(exe(x)[0], -np.where(x > 0, x, x / 2))


def test_scheduled_kernels_and_schedules_are_taken():
    node = custom("MatMulRelu", ["a", "b"], ["y"])
    proto = model(node, inputs={"a": [24, 40], "b": [40, 32]}, outputs={"y": [24, 32]})
    a, b = floats(24, 40), floats(40, 32, seed=1)
    for kernel in (mm_relu.schedule(), ingot.Schedule(mm_relu), mm_relu.ir):
        exe = ingot.compile(proto, kernels={"MatMulRelu": kernel})
        np.testing.assert_allclose(exe(a, b)[0], np.maximum(a @ b, 0), 1e-4, 1e-4)


# --- refusals -------------------------------------------------------------------------------------


def test_the_error_for_a_missing_operator_names_the_hook():
    error = refusal(leaks())
    hint = ('kernels={"com.acme:Leak": kernel}', "@ingot.kernel", "docs/kernels.md")
    check(error, "unsupported-op", 1, "com.acme.Leak", "'my_Leak'", where="custom", hint=hint)


def test_operands_that_do_not_fit_name_the_node():
    error = refusal(leaks(), kernels={"Leak": mm_relu})
    assert error.where == "node 'my_Leak' (Leak)"
    check(error, "bad-type", "mm_relu", 2, "A, B", 1, hint=False)


def test_too_many_outputs():
    proto = model(custom("Leak", ["x"], ["y", "z"]), inputs={"x": [2, 3]}, outputs={"y": [2, 3]})
    error = refusal(proto, kernels={"Leak": leaky_of})
    check(error, "bad-option", 2, 1, where="'my_Leak'", hint=False)


def test_what_is_no_kernel():
    check(refusal(leaks(), kernels={"Leak": "leaky"}), "bad-option", "kernels['Leak']", "str")
    error = refusal(leaks(), kernels=[leaky_of])
    check(error, "bad-option", "kernels=", "list", hint='{"domain:Op": kernel}')
    error = refusal(leaks(), kernels={"Leak": lambda attrs: None})
    check(error, "bad-option", "NoneType", where="my_Leak", hint="@ingot.kernel")


def test_a_kernel_for_no_node_of_the_model():
    given = {"Leak": leaky_of, "Leek": leaky_of, "com.acme:Nope": leaky_of}
    error = refusal(leaks(), kernels=given)
    check(error, "bad-option", "kernels=", "'Leek'", "'com.acme:Nope'", hint="'Leak'")
    graph = GraphBuilder("empty", ConstantStore())
    error = refusal(graph.finish([]), kernels=given)
    check(error, "bad-option", "kernels=", hint='g.add("kernel", [x], **kernel.attrs)')


def test_a_factory_that_fails_is_reported_with_its_node():
    error = refusal(leaks(), kernels={"Leak": lambda attrs: leaky_of({"alpha": attrs["beta"]})})
    check(error, "bad-model", "KeyError", "'beta'", where="'my_Leak'", hint=False)
