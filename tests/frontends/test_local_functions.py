"""A model's own functions, run by Ingot and by ONNX Runtime: nesting, overloads, attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto as Attr
from onnx import TensorProto as P
from onnx import helper

import ingot
from tests.models.parts import Feeds, graph, info, model, node
from tests.refusal import refused

A = np.random.default_rng(6).standard_normal((2, 3)).astype(np.float32)
X, Y, C = info("x", [2, 3]), info("y", [2, 3]), info("c", [], P.BOOL)
Case = tuple[onnx.ModelProto, Feeds]
CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


def call(op: str, inputs: str, outputs: str, domain: str = "own", **attrs) -> onnx.NodeProto:
    return node(op, inputs, outputs, domain=domain, **attrs)


def refer(made: onnx.NodeProto, name: str, to: str, kind: int = Attr.FLOAT) -> onnx.NodeProto:
    """An attribute that is the enclosing function's."""
    made.attribute.add(name=name, ref_attr_name=to, type=kind)
    return made


def function(
    name: str, inputs: str, outputs: str, nodes: Sequence[onnx.NodeProto],
    attrs: Sequence[str] = (), defaults: Sequence[Attr] = (), opset: int = 17, overload: str = "",
) -> onnx.FunctionProto:  # fmt: skip
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = helper.make_function(
        "own", name, inputs.split(), outputs.split(), list(nodes), versions, list(attrs),
        list(defaults),
    )  # fmt: skip
    made.overload = overload
    return made


def with_functions(
    nodes: Sequence[onnx.NodeProto],
    functions: Sequence[onnx.FunctionProto],
    inputs=(X,),
    **constants,
) -> onnx.ModelProto:
    proto = model("calls", nodes, inputs, [Y], constants)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.extend(functions)
    proto.ir_version = 10
    return proto


def leaky(default: Sequence[Attr] = (), attrs: Sequence[str] = ()) -> onnx.FunctionProto:
    body = [refer(node("LeakyRelu", "a", "b"), "alpha", "slope")]
    return function("Leaky", "a", "b", body, attrs, default)


HALF = [helper.make_attribute("slope", 0.5)]


@case
def a_function_in_a_function_with_a_default():
    outer = function(
        "Outer",
        "p",
        "q",
        [refer(call("Leaky", "p", "t"), "slope", "z"), node("Neg", "t", "q")],
        ["z"],
    )
    nodes = [call("Outer", "x", "u", z=0.3), call("Leaky", "u", "y")]
    return with_functions(nodes, [outer, leaky(HALF)]), {"x": A}


@case
def an_attribute_that_no_caller_gives_has_the_operators_default():
    return with_functions([call("Leaky", "x", "y")], [leaky(attrs=["slope"])]), {"x": A}


@case
def an_attribute_that_is_handed_on_and_absent_has_the_inner_default():
    body = [refer(call("Leaky", "p", "q"), "slope", "z")]
    outer = function("Outer", "p", "q", body, ["z"])
    return with_functions([call("Outer", "x", "y")], [leaky(HALF), outer]), {"x": A}


@case
def overloads_of_one_name():
    functions = [
        function("F", "a", "b", [node(op, "a", "b")], overload=overload)
        for overload, op in (("one", "Relu"), ("two", "Neg"))
    ]
    nodes = [call("F", "x", "t"), call("F", "t", "y")]
    nodes[0].overload, nodes[1].overload = "one", "two"
    return with_functions(nodes, functions), {"x": A}


@case
def operands_that_the_caller_leaves_out():
    body = [node("Clip", "a lo hi", "b")]
    nodes = [call("F", "x _ top", "t"), call("F", "t", "y")]
    functions = [function("F", "a lo hi", "b", body)]
    return with_functions(nodes, functions, top=np.float32(0.1)), {"x": A}


@case
def a_constant_from_an_attribute():
    body = [refer(node("Constant", "", "k"), "value_float", "s"), node("Add", "a k", "b")]
    functions = [function("F", "a", "b", body, ["s"])]
    return with_functions([call("F", "x", "y", s=0.4)], functions), {"x": A}


@case
def a_call_in_a_branch_and_a_branch_in_a_function():
    def branch(name: str, made: onnx.NodeProto) -> onnx.GraphProto:
        return graph(name, [made], [], [info(name, [2, 3])])

    inner = node(
        "If", "c", "b", then_branch=branch("t", refer(node("LeakyRelu", "a", "t"), "alpha", "s")),
        else_branch=branch("e", node("Neg", "a", "e")),
    )  # fmt: skip
    functions = [function("Inner", "a c", "b", [inner], ["s"])]
    outer = node(
        "If", "c", "y", then_branch=branch("t", call("Inner", "x c", "t", s=0.4)),
        else_branch=branch("e", node("Relu", "x", "e")),
    )  # fmt: skip
    return with_functions([outer], functions, [X, C]), {"x": A, "c": np.array(True)}


@case
def one_function_called_twice():
    functions = [function("F", "a", "b", [node("Neg", "a", "t"), node("Tanh", "t", "b")])]
    return with_functions([call("F", "x", "m"), call("F", "m", "y")], functions), {"x": A}


@case
def functions_of_the_standard():
    """One whose body is fixed, and one whose body depends on the operand's type."""
    nodes = [
        node("MeanVarianceNormalization", "x", "m", axes=[1]),
        node("Celu", "m", "y", alpha=0.3),
    ]
    return model("standard", nodes, [X], [Y]), {"x": A}


@pytest.mark.parametrize("name", CASES)
def test_calls_agree_with_onnx_runtime(name: str) -> None:
    proto, feeds = CASES[name]()
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    (got,) = ingot.compile(proto, jobs=1, threads=1).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# --- beyond ONNX Runtime --------------------------------------------------------------------------


def test_a_function_has_operator_sets_of_its_own() -> None:
    """Softmax of opset 11 flattens, and its Unsqueeze has its axes as an attribute."""
    body = [node("Unsqueeze", "a", "t", axes=[1]), node("Softmax", "t", "s", axis=0),
            node("Squeeze", "s", "b", axes=[1])]  # fmt: skip
    proto = with_functions([call("F", "x", "y")], [function("F", "a", "b", body, opset=11)])
    want = np.exp(A) / np.exp(A).sum()
    np.testing.assert_allclose(ingot.compile(proto, jobs=1)(A)[0], want, rtol=1e-5)


def test_nodes_of_a_function_in_no_order_and_an_input_as_output() -> None:
    body = [node("Neg", "t", "b"), node("Relu", "a", "t")]
    functions = [function("F", "a", "b a", body)]
    proto = with_functions([call("F", "x", "p q"), node("Add", "p q", "y")], functions)
    np.testing.assert_allclose(ingot.compile(proto, jobs=1)(A)[0], A - np.maximum(A, 0))


def test_a_function_does_not_see_the_names_of_its_caller() -> None:
    functions = [function("F", "a", "b", [node("Add", "a w", "b")])]
    with refused("bad-model", "w", where="F_y/Add_b", hint=False):
        ingot.compile(with_functions([call("F", "x", "y")], functions, w=A))


def test_every_missing_operator_is_listed_once() -> None:
    """Of the graph, of a branch, and of a function that is called; not of one that is not."""
    gone = [node(op, "a", "b", domain="gone") for op in ("InF", "InG")]
    functions = [function(name, "a", "b", [made]) for name, made in zip("FG", gone)]
    branches = {
        f"{name}_branch": graph(name, [node(op, "x", name)], [], [info(name, [2, 3])])
        for name, op in (("then", "InBranch"), ("else", "Relu"))
    }
    nodes = [node("If", "c", "i", **branches), call("F", "i", "f"), node("InGraph", "f", "y")]
    with refused("unsupported-op", 3, "InGraph", "InBranch", "InF", "F/InF_b") as caught:
        ingot.compile(with_functions(nodes, functions, [X, C]))
    assert "InG'" not in str(caught.value) and "gone:InF" in caught.value.hint
