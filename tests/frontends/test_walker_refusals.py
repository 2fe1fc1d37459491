"""The walker: rejected models and their errors."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper, numpy_helper

from ingot.frontends.onnx.walker import import_model
from ingot.graph.store import ConstantStore
from ingot.support.errors import IngotError
from tests.frontends.walker_models import X, refused_model, simple
from tests.models import build
from tests.models.parts import graph, info, node
from tests.refusal import refused


def test_all_missing_operators_at_once() -> None:
    inner = graph("inner", [node("Gone", "x", "z")], [], [info("z", [2, 3])])
    other = graph("other", [node("Relu", "x", "z2")], [], [info("z2", [2, 3])])
    nodes = [node("Vanished", "x", f"v{i}", domain="my.domain") for i in range(7)]
    nodes += [node("If", "flag", "a", then_branch=inner, else_branch=other)]
    nodes += [node("Call", "a", "y", domain="local")]
    proto = simple(*nodes, flag=True)
    lost = [node("Lost", "p", "q", domain="my.domain")]
    proto.functions.append(helper.make_function("local", "Call", ["p"], ["q"], lost, []))
    proto.opset_import.append(helper.make_opsetid("my.domain", 3))
    facts = (3, "ai.onnx.Gone", 17, "'Gone_z'", "my.domain.Lost", "'Call/Lost_q'")
    facts += ("my.domain.Vanished", 7, "'Vanished_v0'", 2)
    keys = '"Gone": kernel, "my.domain:Lost": kernel, "my.domain:Vanished": kernel'
    hint = (f"kernels={{{keys}}}", "@ingot.kernel")
    refused_model(proto, *facts, where="test", code="unsupported-op", hint=hint)


def test_cycle() -> None:
    proto = simple(node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y"))
    error = refused_model(proto, "'Relu_b'", "'Add_a'", where="'Relu_b'")
    assert "Relu_y" not in error.text()


def test_dangling_name() -> None:
    refused_model(simple(node("Add", "x nowhere", "y")), "'nowhere'", where="'Add_y'")


def test_a_name_defined_twice() -> None:
    nodes = node("Relu", "x", "y"), node("Neg", "x", "y")
    refused_model(simple(*nodes), "'y'", "'Relu_y'", where="'Neg_y'")
    again = simple(node("Relu", "c", "x"), node("Relu", "x", "y"), c=1.0)
    refused_model(again, "'x'", where="'Relu_x'")
    twice = simple(node("Relu", "x", "y"), inputs=(X, X))
    refused_model(twice, "'x'", where="'test'")


def test_an_undefined_output() -> None:
    refused_model(simple(node("Relu", "x", "z")), "'y'", where="'test'")


def test_bad_attributes() -> None:
    wrong = simple(node("Softmax", "x", "y", axis=1.5))
    refused_model(wrong, "'axis'", "float", "int", where="'Softmax_y'")
    refused_model(simple(node("Cast", "x", "y")), "'to'", where="'Cast_y'")
    liar = node("Softmax", "x", "y", axis=1)
    liar.attribute[0].f = 2.0
    refused_model(simple(liar), "'axis'", "f", "i", where="'Softmax_y'")
    twice = node("Softmax", "x", "y", axis=1)
    twice.attribute.append(twice.attribute[0])
    refused_model(simple(twice), "'axis'", where="'Softmax_y'")
    text = node("Gelu", "x", "y", approximate="x")
    text.attribute[0].s = b"\xff\xfe"
    proto = simple(text)
    proto.opset_import[0].version = 20
    refused_model(proto, "'approximate'", "UTF-8", where="'Gelu_y'")
    damaged = node("Constant", "", "c", value=numpy_helper.from_array(np.ones(3)))
    damaged.attribute[0].t.raw_data = b"123"
    model = simple(damaged, node("Relu", "x", "y"))
    refused_model(model, "'value'", "[3]", 24, 3, where="'Constant_c'")


def test_numbers_and_shapes_that_mean_nothing() -> None:
    image, out = info("x", [1, 2, 3, 3]), info("y", [1, 2, 3, 3])
    lrn = simple(node("LRN", "x", "y", size=0), inputs=(image,), outputs=(out,))
    refused_model(lrn, "'size'", 0, where="'LRN_y'")
    condition = np.array(True)
    kept = simple(node("Compress", "x c", "y"), outputs=(info("y", [6]),), c=condition)
    refused_model(kept, "bool[]", where="'Compress_y'")


def test_operand_counts() -> None:
    refused_model(simple(node("Add", "x", "y")), 1, "Add", 2, where="'Add_y'")
    refused_model(simple(node("Relu", "_", "y")), 0, where="'Relu_y'")
    refused_model(simple(node("Relu", "x", "y z")), 2, 1, where="'Relu_y'")


def test_sizes_are_not_negative() -> None:
    proto = simple(node("Relu", "x", "y"), inputs=(info("x", [2, -3]),))
    refused_model(proto, -3, "axis 1", where="'x'")


def test_inputs_that_are_no_tensors() -> None:
    complex_ = simple(node("Relu", "x", "y"), inputs=(info("x", [2], P.COMPLEX64),))
    refused_model(complex_, "complex64", where="'x'", code="unsupported-op", hint=True)
    many = helper.make_tensor_sequence_value_info("x", P.FLOAT, [2])
    sequence = simple(node("Relu", "x", "y"), inputs=(many,))
    refused_model(sequence, "sequence", where="Relu", code="bad-type")
    shapeless = helper.make_tensor_value_info("x", P.FLOAT, None)
    refused_model(simple(node("Relu", "x", "y"), inputs=(shapeless,)), where="'x'", hint=True)


def test_nesting_is_bounded() -> None:
    proto = simple(node("Relu", "x", "y"))
    inner = proto.graph
    for _ in range(80):
        step = inner.node.add(op_type="If", input=["x"])
        inner = step.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    refused_model(proto, 64, where="'If#0'")


def test_a_recursive_function() -> None:
    proto = simple(node("F", "x", "y", domain="local"))
    body = [node("F", "p", "q", domain="local")]
    proto.functions.append(helper.make_function("local", "F", ["p"], ["q"], body, []))
    refused_model(proto, "'F'", where="'F/F_q'")


def test_functions_that_inline_exponentially() -> None:
    """Twenty functions, each of ten calls of the next."""
    proto = simple(node("L0", "x", "y", domain="local"))
    for level in range(20):
        op, domain = (f"L{level + 1}", "local") if level < 19 else ("Relu", "")
        body = [node(op, f"v{i}", f"v{i + 1}", domain=domain) for i in range(10)]
        versions = [helper.make_opsetid("", 17)]
        made = helper.make_function("local", f"L{level}", ["v0"], ["v10"], body, versions)
        proto.functions.append(made)
    error = refused_model(proto, 200000, code="limit")
    assert "(L" in error.where


@pytest.mark.parametrize("sizes", [[1 << 40, 1 << 20], [1 << 47], [0, 1 << 62], [1 << 62] * 3])
def test_sizes_that_nothing_can_hold(sizes: list[int]) -> None:
    inputs = (info("x", sizes),)
    given = simple(node("Relu", "x", "y"), inputs=inputs)
    refused_model(given, f"f32{sizes}", "64 TB", where="'x'", code="limit")
    filled = simple(node("ConstantOfShape", "shape", "y"), shape=np.array(sizes))
    refused_model(filled, f"f32{sizes}", "64 TB", where="'ConstantOfShape_y'", code="limit")


def test_inconsistent_counts() -> None:
    """They are checked before anything of that length is allocated."""
    split = node("Split", "x", "y z", axis=1, num_outputs=1 << 53)
    proto = simple(split)
    proto.opset_import[0].version = 18
    refused_model(proto, "num_outputs", 1 << 53, 2, where="'Split_y'")
    body = graph("b", [node("Identity", "r", "z")], [info("r", [3])], [info("z", [3])])
    for count in (1 << 53, 0, -1):
        scan = simple(node("Scan", "x", "y", body=body, num_scan_inputs=count))
        refused_model(scan, "num_scan_inputs", count, 1, where="'Scan_y'")


def test_sizes_that_come_out_negative() -> None:
    depth, values = np.array(-3), np.array([0, 1], np.float32)
    proto = simple(node("OneHot", "i depth values", "y"), i=[0, 1], depth=depth, values=values)
    refused_model(proto, "f32[2, -3]", where="'OneHot_y'")


def test_tensors_of_very_many_axes() -> None:
    axes = simple(node("Unsqueeze", "x axes", "y"), axes=np.arange(40))
    refused_model(axes, 42, 32, where="'Unsqueeze_y'", code="limit")
    many = simple(node("Relu", "w", "y"), w=np.ones([1] * 33))
    refused_model(many, 33, 32, where="'w'", code="limit")


@pytest.mark.parametrize("seed", range(6))
def test_damaged_bytes_give_errors_of_ours(seed: int) -> None:
    """Flipped, lost and added bytes: an IngotError, or the model is still valid."""
    random = Random(seed)
    cases = [build.HARD[n]()[0] for n in ("loop", "dynamic_sequence", "kv_cache_scatter", "lstm")]
    for proto in cases * 20:
        data = bytearray(proto.SerializeToString())
        for _ in range(random.choice((1, 1, 2, 5))):
            start = random.randrange(len(data))
            end = start + random.choice((0, 1, 1, 3))
            data[start:end] = random.randbytes(random.choice((0, 1, 1, 2)))
        try:
            import_model(bytes(data), ConstantStore())
        except IngotError as error:
            assert error.code in ("bad-model", "unsupported-op", "bad-type", "limit"), error


def test_names_are_text() -> None:
    data = simple(node("Relu", "x", "y")).SerializeToString()
    with refused("bad-model", "NodeProto", "UTF-8", hint=False):
        import_model(data.replace(b"Relu_y", b"Relu\xff\xfe"), ConstantStore())
